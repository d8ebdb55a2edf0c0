#include "tests/workloads/truth.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tests/workloads/communicator.h"

namespace seqpoint::workload {
namespace {

// Phases left open before the oldest are asked after.
constexpr size_t kOpenPhases = 32;

std::string List(const std::vector<int>& values) {
  return absl::StrCat("[", absl::StrJoin(values, ","), "]");
}

std::string CallsJson(const CallCounts& calls, uint64_t host_ns) {
  return absl::StrFormat(
      R"({"host_ns":%d,"launches":%d,"captured_launches":%d,"graph_launches":%d,"copies":%d,)"
      R"("memsets":%d})",
      host_ns, calls.launches, calls.captured_launches, calls.graph_launches, calls.copies,
      calls.memsets);
}

const char* Name(Phase::Kind kind) {
  switch (kind) {
    case Phase::Kind::kIteration:
      return "iteration";
    case Phase::Kind::kEvaluation:
      return "evaluation";
    case Phase::Kind::kCheckpoint:
      break;
  }
  return "checkpoint";
}

std::string CountersJson(const SwgpuTotals& from, const SwgpuTotals& to) {
  return absl::StrFormat(
      R"({"launches":%d,"kernel_time_ns":%.3f,"dram_read_bytes":%.3f,"dram_write_bytes":%.3f,)"
      R"("instructions":%.3f,"tensor_cycles":%.3f,"sm_active_cycles":%.3f})",
      to.launches - from.launches, to.kernel_time_ns - from.kernel_time_ns,
      to.dram_read_bytes - from.dram_read_bytes, to.dram_write_bytes - from.dram_write_bytes,
      to.instructions - from.instructions, to.tensor_cycles - from.tensor_cycles,
      to.sm_active_cycles - from.sm_active_cycles);
}

}  // namespace

Truth::Truth(std::string path, const std::string& options_json, const std::string& device,
             const Ranks& ranks) {
  if (path.empty()) return;
  if (const size_t at = path.find("%r"); at != std::string::npos) {
    path.replace(at, 2, absl::StrCat(ranks.rank));
  }
  file_ = std::fopen(path.c_str(), "w");
  if (file_ == nullptr) {
    std::fprintf(stderr, "seqpoint_workload: cannot write truth file %s: %s\n", path.c_str(),
                 std::strerror(errno));
    std::exit(1);
  }
  software_ = SoftwareTotals().has_value();
  many_ranks_ = software_ && ranks.count > 1;
  absl::FPrintF(file_,
                R"({"kind":"header","version":1,"device":"%s","software_gpu":%s,"rank":%d,)"
                R"("ranks":%d,"options":%s})",
                device, software_ ? "true" : "false", ranks.rank, ranks.count, options_json);
  std::fputc('\n', file_);
  std::fflush(file_);
}

Truth::~Truth() {
  if (file_ != nullptr) std::fclose(file_);
}

Truth::Mark Truth::TakeMark(Stream stream) {
  Mark mark;
  if (free_events_.empty()) {
    mark.event = CreateEvent(/*timed=*/true);
  } else {
    mark.event = free_events_.back();
    free_events_.pop_back();
  }
  RecordEvent(mark.event, stream);
  mark.host_ns = NowNs();
  mark.calls = Calls();
  if (software_) mark.totals = *SoftwareTotals();
  if (const auto totals = FindSoftwareNccl().totals; many_ranks_ && totals) totals(&mark.nccl);
  return mark;
}

void Truth::Begin(Phase phase, Stream stream) {
  if (file_ == nullptr) return;
  Entry entry;
  entry.phase = std::move(phase);
  entry.begin = TakeMark(stream);
  if (iterations_ == 0) first_host_ns_ = entry.begin.host_ns;
  const Phase::Kind kind = entry.phase.kind;
  const bool training = kind == Phase::Kind::kIteration;
  ++(training ? iterations_ : kind == Phase::Kind::kEvaluation ? evaluations_ : checkpoints_);
  AccountKernels(training ? &training_kernels_ : nullptr);
  open_.push_back(std::move(entry));
  if (open_.size() > kOpenPhases) WriteFinished();
}

void Truth::FirstForward() {
  if (file_ == nullptr || open_.back().forward_host_ns != 0) return;
  open_.back().forward_host_ns = NowNs();
  open_.back().forward_calls = Calls();
}

void Truth::WriteFinished() {
  while (open_.size() > 1 && EventDone(open_[1].begin.event)) {
    Write(open_[0], open_[1].begin);
    free_events_.push_back(open_[0].begin.event);
    open_.pop_front();
  }
}

void Truth::Write(const Entry& entry, const Mark& end) {
  const Phase& phase = entry.phase;
  const double gpu_time_ns = ElapsedNs(entry.begin.event, end.event);
  const CallCounts& from = entry.begin.calls;
  std::string line = absl::StrFormat(
      R"({"kind":"%s","%s":%d,"epoch":%d,"batch":%d,"lengths":%s)", Name(phase.kind),
      phase.kind == Phase::Kind::kIteration ? "iteration" : "after_iterations", phase.number,
      phase.epoch, phase.batch, List(phase.lengths));
  if (phase.micro_lengths.size() > 1) {
    absl::StrAppend(&line, R"(,"micro_lengths":[)",
                    absl::StrJoin(phase.micro_lengths, ",",
                                  [](std::string* out, const std::vector<int>& lengths) {
                                    out->append(List(lengths));
                                  }),
                    "]");
  }
  absl::StrAppendFormat(
      &line, R"(,"gpu_start_ns":%.0f,"gpu_time_ns":%.0f,"kernels":%d,"graph_launches":%d)",
      gpu_start_ns_, gpu_time_ns,
      end.calls.launches + end.calls.graph_kernels - from.launches - from.graph_kernels,
      end.calls.graph_launches - from.graph_launches);
  absl::StrAppend(&line, R"(,"begin":)", CallsJson(from, entry.begin.host_ns),
                  R"(,"first_forward":)", CallsJson(entry.forward_calls, entry.forward_host_ns));
  if (software_) {
    absl::StrAppend(&line, R"(,"counters":)", CountersJson(entry.begin.totals, end.totals));
  }
  if (many_ranks_) absl::StrAppend(&line, R"(,"rank":)", RankJson(entry.begin, end));
  absl::StrAppend(&line, "}\n");
  std::fputs(line.c_str(), file_);
  std::fflush(file_);
  gpu_start_ns_ += gpu_time_ns;
  if (phase.kind == Phase::Kind::kIteration) train_gpu_ns_ += gpu_time_ns;
}

std::string Truth::RankJson(const Mark& begin, const Mark& end) {
  const EventTimes from = SoftwareEventTimes(begin.event).value_or(EventTimes{});
  const EventTimes to = SoftwareEventTimes(end.event).value_or(EventTimes{});
  const auto work_ns = static_cast<int64_t>(to.alone_ns - from.alone_ns);
  const auto time_ns = static_cast<int64_t>(to.ns - from.ns);
  const SwgpuNcclTotals& a = begin.nccl;
  const SwgpuNcclTotals& b = end.nccl;
  return absl::StrFormat(
      R"({"clock_ns":%d,"work_ns":%d,"exposed_wait_ns":%d,"wait_ns":%d,"transfer_ns":%d,)"
      R"("collectives":%d,"transfers":%d,"bytes":%d,"communication_kernels":%d,)"
      R"("last_arrivals":%d})",
      from.ns, work_ns, time_ns - work_ns, b.wait_ns - a.wait_ns, b.transfer_ns - a.transfer_ns,
      b.collectives - a.collectives, b.transfers - a.transfers, b.bytes - a.bytes,
      b.kernels - a.kernels, b.last_arrivals - a.last_arrivals);
}

void Truth::Finish(Stream stream, float final_loss) {
  if (file_ == nullptr) return;
  Entry end;
  end.begin = TakeMark(stream);
  const uint64_t submitted_ns = end.begin.host_ns;
  AccountKernels(nullptr);
  open_.push_back(std::move(end));
  Synchronize(stream);
  WriteFinished();
  std::string line = absl::StrFormat(
      R"({"kind":"totals","iterations":%d,"evaluations":%d,"checkpoints":%d,"gpu_time_ns":%.0f,)"
      R"("train_gpu_time_ns":%.0f,"host_time_ns":%d,"wall_time_ns":%d,"final_loss":%.6g)",
      iterations_, evaluations_, checkpoints_, gpu_start_ns_, train_gpu_ns_,
      submitted_ns - first_host_ns_, NowNs() - first_host_ns_, final_loss);
  if (software_) {
    absl::StrAppend(&line, R"(,"counters":)", CountersJson(SwgpuTotals{}, *SoftwareTotals()),
                    absl::StrFormat(R"(,"digest":"%016x")", SoftwareDigest().value_or(0)),
                    R"(,"training_kernels":{)",
                    absl::StrJoin(training_kernels_, ",",
                                  [](std::string* out, const auto& kernel) {
                                    absl::StrAppend(out, "\"", kernel.first, "\":",
                                                    CountersJson(SwgpuTotals{}, kernel.second));
                                  }),
                    "}");
  }
  absl::StrAppend(&line, "}\n");
  std::fputs(line.c_str(), file_);
  std::fflush(file_);
}

}  // namespace seqpoint::workload
