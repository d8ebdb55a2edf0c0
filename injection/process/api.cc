// The C API of seqpoint.h.
#define SEQPOINT_API __attribute__((visibility("default")))
#include "injection/seqpoint.h"

#include "injection/base/identity.h"
#include "injection/process/guest.h"
#include "injection/process/stand_down.h"
#include "injection/version.h"

namespace seqpoint::inject {
namespace {

using abi::Feature;
using abi::FeatureState;
using abi::Op;

constexpr uint32_t kMaxFeatures = 32;

// CUPTI's clock may not be the system's: then there is no telling when that was.
uint64_t TimeOf(Guest* guest, uint64_t at_ns) {
  return at_ns != 0 && !guest->clock.foreign() ? at_ns : guest->clock.NowNs();
}

// One event of the program's or the framework's loop. A second length travels in the place of the
// grid's x dimension.
void Tell(Guest* guest, Op op, const char* name, const int64_t* value, uint64_t at_ns,
          int64_t second_length = 0) {
  if (!guest->state.Watches(op)) return;
  Call call = {};
  call.op = op;
  call.name = name;
  if (value != nullptr) {
    call.flags = abi::kCallHasPayload;
    call.bytes = static_cast<uint64_t>(*value);
  }
  if (second_length > 0 && second_length <= UINT32_MAX) {
    call.grid_x = static_cast<uint32_t>(second_length);
  }
  if (guest->host_times.load(std::memory_order_relaxed)) call.flags |= abi::kCallHostTime;
  call.begin_ns = at_ns;
  guest->router.OnCall(call);
}

void TellFeatures(Guest* guest, uint32_t count, const char* const* names, const int64_t* values,
                  uint64_t at_ns) {
  for (uint32_t i = 0; i < count && i < kMaxFeatures; ++i) {
    Tell(guest, Op::kFeature, names[i], &values[i], at_ns);
  }
}

void Report(Feature feature, bool works, const char* message, uint32_t code = 0) {
  Guest* guest = g_guest;
  if (guest == nullptr || message == nullptr) return;
  guest->features.Report(feature, works ? FeatureState::kReady : FeatureState::kIgnored, code, "%s",
                         message);
}

}  // namespace
}  // namespace seqpoint::inject

using namespace seqpoint;
using namespace seqpoint::inject;

extern "C" {

void seqpoint_iteration_begin(int64_t length) { seqpoint_iteration_begin2(length, 0); }
void seqpoint_iteration_begin2(int64_t length0, int64_t length1) {
  Guest* guest = g_guest;
  if (guest == nullptr || !guest->state.Watches(Op::kMark)) return;
  Tell(guest, Op::kMark, nullptr, &length0, guest->clock.NowNs(), length1);
}

void seqpoint_forward(int training, uint32_t count, const char* const* names, const int64_t* values,
                      uint64_t at_ns) {
  Guest* guest = g_guest;
  if (guest == nullptr) return;
  const uint64_t now_ns = TimeOf(guest, at_ns);
  const char* kind = training != 0 ? abi::kForwardName : abi::kEvaluationName;
  Tell(guest, Op::kForward, kind, nullptr, now_ns);
  TellFeatures(guest, count, names, values, now_ns);
}

void seqpoint_features(uint32_t count, const char* const* names, const int64_t* values,
                       uint64_t at_ns) {
  Guest* guest = g_guest;
  if (guest != nullptr) TellFeatures(guest, count, names, values, TimeOf(guest, at_ns));
}

void seqpoint_step(uint64_t at_ns) {
  Guest* guest = g_guest;
  if (guest != nullptr) Tell(guest, Op::kStep, nullptr, nullptr, TimeOf(guest, at_ns));
}

void seqpoint_describe(int works, const char* message) {
  Report(Feature::kFramework, works != 0, message);
}
void seqpoint_operators(int works, const char* message) {
  Report(Feature::kOperators, works != 0, message);
}

int seqpoint_wants_operators(int64_t length[2]) {
  Guest* guest = g_guest;
  if (guest == nullptr || length == nullptr) return MeasurementWindow::kNotWanted;
  return guest->window.WantsOperators(length);
}

void seqpoint_distort(void) {
  Guest* guest = g_guest;
  if (guest != nullptr) guest->router.Distort();
}

void seqpoint_batches(int per_iteration, const char* message) {
  const uint32_t code = per_iteration < 0    ? abi::kBatchUnknown
                        : per_iteration == 1 ? abi::kBatchOne
                                             : abi::kBatchEach;
  Report(Feature::kBatches, code != abi::kBatchUnknown, message, code);
}

void seqpoint_rank(int rank, int world_size) {
  if (rank < 0 || world_size <= rank) return;
  SetRank(rank, world_size);
  Guest* guest = g_guest;
  if (guest == nullptr || !guest->ring.active()) return;  // its Hello will say so
  const abi::RankEvent event = {rank, world_size};
  guest->ring.WriteEvent(abi::EventType::kRank, &event, sizeof(event), nullptr, 0);
}

int seqpoint_stand_down(const char* holder) { return StandDown(holder); }
int seqpoint_come_back(void) { return ComeBack(); }
int seqpoint_active(void) { return g_guest != nullptr && g_guest->ring.active() ? 1 : 0; }
const char* seqpoint_version(void) { return kLibraryVersion; }
}
