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

NcclHandle HandleOf(uint64_t word) {
  return NcclHandle::Unpack(reinterpret_cast<const void*>(word));
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

uint64_t seqpoint_group(const char* name, uint64_t hash, int rank, int ranks) {
  const CommunicatorId id = {name, hash, rank, ranks, 0};
  return reinterpret_cast<uint64_t>(g_communicator_table.Open(id, 0, nullptr).Pack());
}

void seqpoint_group_end(uint64_t group) {
  const NcclHandle handle = HandleOf(group);
  if (Guest* guest = g_guest; guest != nullptr) guest->communicators.Flush(handle);
  g_communicator_table.Close(handle);
}

uint64_t seqpoint_collective_begin(uint64_t group, const char* function, const char* datatype,
                                   uint64_t elements, int peer, uint64_t sequence) {
  Guest* guest = g_guest;
  if (guest == nullptr) return 0;
  Operation operation;
  operation.function = function;
  operation.datatype = datatype;
  operation.elements = elements;
  operation.sequence = sequence;
  operation.peer = peer;
  return reinterpret_cast<uint64_t>(
      guest->communicators.OnHostOperation(HandleOf(group), operation));
}

void seqpoint_collective_end(uint64_t collective) {
  Guest* guest = g_guest;
  if (guest == nullptr || collective == 0) return;
  guest->communicators.channels().OnHostEnd(HandleOf(collective), guest->clock.NowNs());
}

void seqpoint_collectives(int works, const char* message) {
  Report(Feature::kCollectives, works != 0, message);
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
