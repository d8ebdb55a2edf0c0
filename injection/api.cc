// The C API of seqpoint.h.
#define SEQPOINT_API __attribute__((visibility("default")))
#include "injection/seqpoint.h"

#include "injection/guest.h"
#include "injection/stand_down.h"
#include "injection/version.h"

namespace {

using seqpoint::inject::Call;
using seqpoint::inject::g_guest;
using seqpoint::inject::Guest;

// The second length travels in the place of the grid's x dimension.
void OnMark(int64_t length0, int64_t length1) {
  Guest* guest = g_guest;
  if (guest == nullptr || !guest->stream.Watches(seqpoint::abi::Op::kMark)) return;
  Call call = {};
  call.op = seqpoint::abi::Op::kMark;
  call.flags = seqpoint::abi::kCallHasPayload;
  call.bytes = static_cast<uint64_t>(length0);
  call.grid_x = length1 > 0 && length1 <= UINT32_MAX ? static_cast<uint32_t>(length1) : 0;
  call.begin_ns = guest->clock.NowNs();
  guest->stream.OnCall(call);
}

}  // namespace

extern "C" {

void seqpoint_iteration_begin(int64_t length) { OnMark(length, 0); }
void seqpoint_iteration_begin2(int64_t length0, int64_t length1) { OnMark(length0, length1); }
int seqpoint_stand_down(const char* holder) { return seqpoint::inject::StandDown(holder); }
int seqpoint_come_back(void) { return seqpoint::inject::ComeBack(); }
int seqpoint_active(void) { return g_guest != nullptr && g_guest->ring.active() ? 1 : 0; }
const char* seqpoint_version(void) { return seqpoint::inject::kLibraryVersion; }
}
