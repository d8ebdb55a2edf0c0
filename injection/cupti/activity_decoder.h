// Turns CUPTI's activity records into records of the ring.
//
//   * A record is read up to the fields that every supported generation has (CUPTI 12.0 to 13.x):
//     what was appended later is never touched.
//   * A record whose times are zero, reversed, absurd, or of another clock than CUPTI's is left out
//     and counted.
//
// Threading: Decode on the thread that hands a buffer over, one for each buffer; the rest anywhere.
#ifndef SEQPOINT_INJECTION_CUPTI_ACTIVITY_DECODER_H_
#define SEQPOINT_INJECTION_CUPTI_ACTIVITY_DECODER_H_

#include <cupti.h>
#include <stdint.h>

#include <atomic>

#include "injection/abi/records.h"
#include "injection/base/launch_names.h"
#include "injection/base/names.h"
#include "injection/cupti/clock.h"
#include "injection/ring/writer.h"

namespace seqpoint::inject {

// Wants to know when calls that may be an iteration's clock began on the GPU.
class CallRecordListener {
 public:
  virtual void OnCallRecord(uint32_t correlation_id, uint64_t start_ns) {}

 protected:
  ~CallRecordListener() = default;
};

class ActivityDecoder {
 public:
  ActivityDecoder(Names* names, const LaunchNames* launch_names, const Clock* clock,
                  injection::RingWriter* ring, CallRecordListener* listener)
      : names_(names),
        launch_names_(launch_names),
        clock_(clock),
        ring_(ring),
        listener_(listener) {}

  // Records are of times from now on.
  void Begin() { earliest_ns_.store(clock_->NowNs(), std::memory_order_relaxed); }
  void Decode(const CUpti_Activity* record);
  // Records that came, decoded or not.
  void Count(uint64_t records) { records_.fetch_add(records, std::memory_order_relaxed); }
  // Before records are read: their times are within what CUPTI's clock has shown.
  void ReadClock();
  // Correlation ids of graph launches and their kernels are wrong from now on.
  void DistrustGraphIds() { graph_ids_wrong_.store(true, std::memory_order_relaxed); }

  // Records that came so far.
  struct Seen {
    uint64_t records, kernels, untimed_kernels;
  };
  Seen seen() const;
  // Records with times that CUPTI's clock never showed.
  uint64_t foreign() const { return foreign_.load(std::memory_order_relaxed); }

 private:
  template <typename Record, typename Out>
  bool Fill(const Record& in, abi::DataType type, Out* out);
  template <typename Record, typename Out>
  bool FillWork(const Record& in, abi::DataType type, Out* out);
  template <typename Record>
  bool FillCopy(const Record& in, abi::DataType type, abi::CopyRecord* out);
  bool Valid(uint64_t start_ns, uint64_t end_ns);
  uint32_t KernelName(const char* recorded, uint32_t correlation_id);

  Names* const names_;
  const LaunchNames* const launch_names_;
  const Clock* const clock_;
  injection::RingWriter* const ring_;
  CallRecordListener* const listener_;
  std::atomic<bool> graph_ids_wrong_{false};
  std::atomic<uint64_t> records_{0};
  std::atomic<uint64_t> kernels_{0};
  std::atomic<uint64_t> untimed_kernels_{0};
  std::atomic<uint64_t> foreign_{0};
  // The range that CUPTI's clock has shown. The system's clock may be set back.
  std::atomic<uint64_t> earliest_ns_{UINT64_MAX};
  std::atomic<uint64_t> latest_ns_{0};
};

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_CUPTI_ACTIVITY_DECODER_H_
