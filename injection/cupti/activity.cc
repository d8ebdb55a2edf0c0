#include "injection/cupti/activity.h"

#include <utility>

#include "injection/cupti/callback_ids.h"
#include "injection/cupti/current_context.h"

namespace seqpoint::inject {
namespace {

struct KindOf {
  uint32_t bit;
  CUpti_ActivityKind kind;
};
constexpr KindOf kKindTable[] = {
    {kKindKernel, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL},
    {kKindCopy, CUPTI_ACTIVITY_KIND_MEMCPY},
    {kKindPeerCopy, CUPTI_ACTIVITY_KIND_MEMCPY2},
    {kKindMemset, CUPTI_ACTIVITY_KIND_MEMSET},
    {kKindSync, CUPTI_ACTIVITY_KIND_SYNCHRONIZATION},
    {kKindGraph, CUPTI_ACTIVITY_KIND_GRAPH_TRACE},
    {kKindApi, CUPTI_ACTIVITY_KIND_DRIVER},
};

// CUPTI 13.0.1 ends the records of both when one of them is switched off, and gives those of the
// other again when that is switched off and on (docs/measurements/2026-11-27-h200.md).
constexpr uint32_t kEndTogether = kKindCopy | kKindMemset;

// Most kernels that came between the two have no times.
bool MostLackTimes(const ActivityDecoder::Seen& before, const ActivityDecoder::Seen& now) {
  return 2 * (now.untimed_kernels - before.untimed_kernels) > now.kernels - before.kernels;
}

}  // namespace

bool Activity::Init() {
  parts_.decoder->Begin();
  // Calls leave records, whenever they are asked for, only where some were wanted when the first
  // context was created (docs/measurements/2026-11-27-h200-2.md). This one is rare.
  if (parts_.cupti->ActivityEnableDriverApi != nullptr && !parts_.cupti->Has(kHangsAfterKernels)) {
    parts_.cupti->ActivityEnableDriverApi(CUPTI_DRIVER_TRACE_CBID_cuProfilerStart, 1);
  }
  // The thread ids of records become those of the system.
  if (parts_.cupti->SetThreadIdType != nullptr) {
    parts_.cupti->SetThreadIdType(CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM);
  }
  if (parts_.cupti->Has(kHangsAfterKernels)) {
    Forbid(~(kKindCopy | kKindMemset));
    parts_.features->Report(
        abi::Feature::kActivity, abi::FeatureState::kIgnored, 0,
        "CUPTI version %u may deadlock when kernels are not recorded any more, and "
        "crash in long runs of CUDA graphs: iterations are timed by their copies and "
        "memsets, and no kernel or graph is recorded; install the CUPTI of CUDA 13.0 "
        "Update 1 or later "
        "(nvidia-cuda-cupti 13.0.85)",
        parts_.cupti->version);
  }
  const uint32_t result = buffers_.Register();
  if (result != CUPTI_SUCCESS) {
    parts_.features->Report(abi::Feature::kActivity, abi::FeatureState::kFailed, result,
                            "cuptiActivityRegisterCallbacks gave %u (%s): GPU times cannot be had; "
                            "iterations are timed by their calls",
                            result, parts_.cupti->ResultName(result));
    return false;
  }
  ready_.store(true, std::memory_order_relaxed);
  return true;
}

void Activity::TakeBuffers(bool clock_claimed) {
  if (!ready()) return;
  InsideScope inside;
  FlushNow(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  buffers_.ExpectLoss();
  buffers_.Register();
  kinds_.store(0, std::memory_order_relaxed);
  ExpectEarlyGraphs();
  BeginAnotherSession();
  if (!clock_claimed) return;
  clock_was_changed_.store(true, std::memory_order_relaxed);
  if (!parts_.cupti->Has(kLosesKernelStarts)) return;
  Forbid(kKindKernel);
  parts_.features->Report(
      abi::Feature::kActivity, abi::FeatureState::kIgnored, 0,
      "another profiler (torch.profiler) has set CUPTI's clock, and CUPTI version %u "
      "gives kernels no times from then on: no iteration is traced in this process any "
      "more; use the CUPTI of CUDA 13.1 or later",
      parts_.cupti->version);
}

// After the first session, which ends where no kind is on, ids of graph launches cannot be trusted,
// and no whole-graph record is asked for.
void Activity::BeginAnotherSession() {
  if (!parts_.cupti->Has(kMixesUpGraphLaunches)) return;
  parts_.decoder->DistrustGraphIds();
  Forbid(kKindGraph);
}

bool Activity::Lost(const ActivityDecoder::Seen& before) const {
  const ActivityDecoder::Seen now = parts_.decoder->seen();
  return now.records == before.records || MostLackTimes(before, now);
}

uint32_t Activity::Turn(CUpti_ActivityKind kind, bool on) {
  CallWatch::Scope watch(parts_.call_watch, on ? "cuptiActivityEnable" : "cuptiActivityDisable");
  if (kind != CUPTI_ACTIVITY_KIND_DRIVER) {
    return on ? parts_.cupti->ActivityEnable(kind) : parts_.cupti->ActivityDisable(kind);
  }
  // Single calls: the whole kind would record thousands of queries that mean nothing to us.
  if (parts_.cupti->ActivityEnableDriverApi == nullptr) return CUPTI_SUCCESS;
  for (uint32_t i = 0; i < kWatchedCallCount; ++i) {
    if (kWatchedCalls[i].op == abi::Op::kNone) continue;
    parts_.cupti->ActivityEnableDriverApi(kWatchedCalls[i].cbid, on ? 1 : 0);
  }
  return CUPTI_SUCCESS;
}

bool Activity::SetKinds(uint32_t kinds, bool synchronize) {
  if (!ready()) return false;
  const uint32_t on = kinds_.load(std::memory_order_relaxed);
  kinds &= allowed();
  if (on == 0 && kinds != 0 && sessions_++ > 0) {
    BeginAnotherSession();
  }
  if ((kinds & ~on & kKindGraph) != 0 && parts_.contexts->any()) ExpectEarlyGraphs();
  kinds &= allowed();
  if (kinds == on) return false;
  InsideScope inside;
  const RelaxedCaptures relaxed(parts_.driver, parts_.captures->MayBeUnderWay());
  // Kernels in flight when tracing begins would be recorded without a start.
  const bool kernels_change = ((kinds ^ on) & kKindKernel) != 0;
  if (synchronize && ((on & ~kinds) != 0 || kernels_change)) WaitForGpu();
  if ((on & ~kinds) != 0) FlushNow(0);
  // The one that stays is begun again.
  const uint32_t again = (on & ~kinds & kEndTogether) != 0 ? on & kinds & kEndTogether : 0;
  for (const KindOf& entry : kKindTable) {
    if ((((on & ~kinds) | again) & entry.bit) != 0) Turn(entry.kind, false);
  }
  for (const KindOf& entry : kKindTable) {
    if ((((kinds & ~on) | again) & entry.bit) == 0) continue;
    const uint32_t result = Turn(entry.kind, true);
    if (result != CUPTI_SUCCESS) {
      parts_.features->Report(
          abi::Feature::kActivity, abi::FeatureState::kFailed, result,
          "cuptiActivityEnable(kind %u) gave %u (%s): this kind of GPU work is not "
          "recorded",
          static_cast<unsigned>(entry.kind), result, parts_.cupti->ResultName(result));
      Forbid(entry.bit);
    }
  }
  kinds_.store(kinds, std::memory_order_relaxed);
  return true;
}

void Activity::SetKindsOfWindow(uint32_t kinds) {
  if (SetKinds(kinds, true) || !ready()) return;
  InsideScope inside;
  WaitForGpu();
  FlushNow(0);
}

// A thread of NVTX ranges alone has no context of its own.
void Activity::WaitForGpu() {
  if (parts_.driver->CtxSynchronize() != CUDA_ERROR_INVALID_CONTEXT) return;
  const CUcontext only = parts_.contexts->Only();
  if (only == nullptr) return;
  const CurrentContext current(parts_.driver, only);
  parts_.driver->CtxSynchronize();
}

uint64_t Activity::Flush(bool forced) {
  if (!ready()) return 0;
  InsideScope inside;
  const uint64_t begin_ns = MonotonicNs();
  FlushNow(forced ? CUPTI_ACTIVITY_FLAG_FLUSH_FORCED : 0);
  flushes_.fetch_add(1, std::memory_order_relaxed);
  return MonotonicNs() - begin_ns;
}

void Activity::FlushNow(uint32_t flag) {
  parts_.decoder->ReadClock();
  CallWatch::Scope watch(parts_.call_watch, "cuptiActivityFlushAll");
  const uint32_t result = parts_.cupti->ActivityFlushAll(flag);
  if (result == CUPTI_SUCCESS || !ready()) return;
  parts_.features->Report(abi::Feature::kActivity, abi::FeatureState::kFailed, result,
                          "cuptiActivityFlushAll gave %u (%s): GPU times come late or never",
                          result, parts_.cupti->ResultName(result));
}

void Activity::Check(uint64_t awaited) {
  CheckTimes();
  // Records come with flushes, which are done less often where they are slow.
  const uint64_t flushes = flushes_.load(std::memory_order_relaxed);
  if (flushes == checked_flushes_) return;
  checked_flushes_ = flushes;
  if (!IsStarved(awaited)) return;
  parts_.features->Report(
      abi::Feature::kActivity, abi::FeatureState::kFailed, 0,
      "another profiler in this process (torch.profiler?) took CUPTI's buffers: GPU "
      "times are lost until the process is restarted without it");
  GiveUp();
}

void Activity::CheckTimes() {
  const ActivityDecoder::Seen now = parts_.decoder->seen();
  if (MostLackTimes(checked_times_, now)) {
    parts_.features->Report(
        abi::Feature::kActivity, abi::FeatureState::kFailed, 0,
        clock_was_changed_.load(std::memory_order_relaxed) || parts_.clock->changed()
            ? "CUPTI delivers kernels without times; it does so from CUDA 12.6 to 13.0 when "
              "another profiler (torch.profiler) sets its clock: stop that profiler, or use a "
              "later CUDA"
            : "CUPTI delivers kernels without times, as it does when its buffers on the GPU have "
              "run out, after millions of kernels: traced iterations are given up");
  } else if (parts_.decoder->foreign() > 0) {
    parts_.features->Report(
        abi::Feature::kActivity, abi::FeatureState::kFailed, 0,
        "CUPTI delivers records with times of another clock, which another profiler "
        "in this process has set: such records are left out; stop that profiler");
  }
  checked_times_ = now;
}

// Events whose records are awaited keep coming, and records do not: another tool has registered its
// own buffers (the last one wins).
bool Activity::IsStarved(uint64_t awaited) {
  constexpr int kStarvedChecks = 3;
  const uint64_t records = parts_.decoder->seen().records;
  const bool starved = any_kind_on() && awaited > checked_awaited_ && records == checked_records_;
  starved_checks_ = starved ? starved_checks_ + 1 : 0;
  checked_awaited_ = awaited;
  checked_records_ = records;
  return starved_checks_ >= kStarvedChecks;
}

void Activity::SayThatGraphsTellNoTimes() {
  if (records(kKindGraph) || !ready() || std::exchange(said_no_graphs_, true)) return;
  parts_.features->Report(
      abi::Feature::kActivity, abi::FeatureState::kIgnored, 0,
      "iterations are timed by CUDA graphs, which are not recorded as a whole any more in this "
      "process: nothing was recorded for a while, and CUPTI may crash on graphs of that time; "
      "start the program again to have the times");
}

void Activity::GiveUp() {
  ready_.store(false, std::memory_order_relaxed);
  kinds_.store(0, std::memory_order_relaxed);
}

}  // namespace seqpoint::inject
