// Our share of CUPTI: takes it, gives it back, stands down for another profiler of the process, and
// notices that another tool has ended CUPTI.
//
// CUPTI serves one subscriber, and only the last one that registered its buffers gets records. A
// tool may stop recording and keep its subscription; then its records can be had, and its callbacks
// cannot.
//
// Threading: Take and Release from any thread; StillOurs and AskDriver from the helper thread; the
// rest anywhere. All but the plain questions need the SwitchToken, and answer false where another
// thread has it: try again. Our share changes under the token's lock.
// Ownership: refers to parts that outlive it.
#ifndef SEQPOINT_INJECTION_CUPTI_OWNERSHIP_H_
#define SEQPOINT_INJECTION_CUPTI_OWNERSHIP_H_

#include <stdint.h>

#include <atomic>

#include "injection/base/features.h"
#include "injection/cupti/activity.h"
#include "injection/cupti/callbacks.h"
#include "injection/cupti/captures.h"
#include "injection/cupti/clock.h"
#include "injection/cupti/contexts.h"
#include "injection/cupti/switch_token.h"
#include "injection/ring/writer.h"

namespace seqpoint::inject {

// The user of CUPTI while it is ours. The thread that has the token calls these functions, in the
// order in which they stand here.
class CuptiUser {
 public:
  // CUPTI is ours for the first time.
  virtual void Begin() = 0;
  // Nobody saw what the program did while CUPTI was another tool's, who may have ended it.
  virtual void Renew() = 0;
  // Our share has changed. `hole`: calls passed unseen. The lock is held.
  virtual void OnChange(bool hole) = 0;
  // Watches and records what our share allows. `may_wait`: the calling thread is one of the
  // application's and may wait for the GPU.
  virtual void Switch(bool may_wait) = 0;
  // Before CUPTI is given back: ends what is under way. False: that cannot be done now.
  virtual bool Leave() = 0;
  // Another tool has ended CUPTI: gives up what was under way. The lock is held. Returns the time
  // of the last boundary.
  virtual uint64_t Abandon() = 0;
  virtual void ReportAbandoned() = 0;
  // The number of the open iteration. Takes the lock.
  virtual uint64_t Iteration() = 0;

 protected:
  ~CuptiUser() = default;
};

class CuptiOwnership {
 public:
  // kRecords: another tool keeps its subscription, and no calls are seen.
  enum class Share : uint8_t { kNothing, kRecords, kAll };
  enum class Library : uint8_t { kMissing, kFound, kNoGpu };  // kNoGpu: attached without CUDA

  struct Parts {  // that outlive it
    Callbacks* callbacks;
    Activity* activity;
    Clock* clock;
    Contexts* contexts;
    Captures* captures;
    SwitchToken* token;
    Features* features;
    CuptiUser* user;
    injection::RingWriter* ring;
  };
  explicit CuptiOwnership(const Parts& parts) : parts_(parts) {}

  void SetLibrary(Library library) { library_.store(library); }
  bool has_library() const { return library_.load() == Library::kFound; }
  // The program uses no GPU.
  bool has_nothing_to_leave() const { return library_.load() == Library::kNoGpu; }

  Share share() const { return share_.load(); }
  bool has_calls() const { return share() == Share::kAll; }
  // The daemon wants CUPTI left alone, or does not any more.
  void SetReleaseWanted(bool wanted) { release_wanted_.store(wanted, std::memory_order_relaxed); }
  bool release_wanted() const { return release_wanted_.load(std::memory_order_relaxed); }
  // CUPTI may be there for us later: nobody tried yet, or another tool had it.
  bool may_be_had() const { return may_be_had_.load(std::memory_order_relaxed); }
  // CUPTI is there, nobody wants it left alone, and not all of it is ours.
  bool wants_more() const;

  // Takes what can be had of CUPTI, unless somebody wants it left alone: share() says what.
  bool Take(bool may_wait);
  // Gives CUPTI back to the process: nothing is recorded, nobody subscribes. False, too, where
  // something of ours is under way that cannot be ended now.
  bool Release(bool may_wait);
  // False: another tool ended CUPTI behind our back, and Take may take it again.
  bool StillOurs();
  // Asks the driver something, unless CUPTI is somebody else's: such calls would be in that tool's
  // trace. False: not now.
  template <typename Ask>
  bool AskDriver(const Ask& ask) {
    const Switching switching(parts_.token);
    if (!switching || share() == Share::kNothing) return false;
    ask();
    return true;
  }
  // For the benchmark, which plays CUPTI itself.
  void Pretend(Share share) { share_.store(share); }

 private:
  void TakeNow(bool may_wait);
  void Change(Share share, bool hole);
  void NoteStandDown();
  void BeginStandDown(uint64_t since_ns);
  void WriteStandDown(uint64_t end_ns);

  const Parts parts_;
  std::atomic<Library> library_{Library::kMissing};
  std::atomic<Share> share_{Share::kNothing};
  std::atomic<bool> may_be_had_{true};
  std::atomic<bool> release_wanted_{false};
  // Used by the thread that has the token.
  bool begun_ = false;    // CUPTI was ours
  bool refused_ = false;  // CUPTI was another tool's when it was asked for
  // A tool that CUPTI was left to, and that has stopped recording, may keep its subscription. We
  // have not had all of CUPTI since.
  bool left_ = false;
  uint64_t left_since_ns_ = 0;  // 0: CUPTI is not left to anybody
  char holder_[64] = {};        // who had CUPTI last
};

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_CUPTI_OWNERSHIP_H_
