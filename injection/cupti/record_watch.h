// Notices that another user of CUPTI in the process takes our activity records away or gives them
// times of another clock: CUPTI tells neither.
// Threading: the helper thread.
#ifndef SEQPOINT_INJECTION_CUPTI_RECORD_WATCH_H_
#define SEQPOINT_INJECTION_CUPTI_RECORD_WATCH_H_

#include <stdint.h>

#include "injection/base/features.h"
#include "injection/cupti/activity_decoder.h"

namespace seqpoint::inject {

class RecordWatch {
 public:
  RecordWatch(const ActivityDecoder* decoder, Features* features)
      : decoder_(decoder), features_(features) {}

  // Called every second; reports what it finds. `clock_changed`: another tool has set CUPTI's
  // clock.
  void CheckTimes(bool clock_changed);
  // After flushes, with the number of events so far whose records are awaited; `recording`: some
  // kind is on. False, and reported: such events keep coming, and records do not, as another tool
  // has registered its own buffers (the last one wins).
  bool CheckSupply(uint64_t awaited, bool recording);

 private:
  const ActivityDecoder* const decoder_;
  Features* const features_;
  ActivityDecoder::Seen timed_ = {};  // at the last CheckTimes
  uint64_t records_ = 0;              // at the last CheckSupply
  uint64_t awaited_ = 0;
  int starved_checks_ = 0;
};

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_CUPTI_RECORD_WATCH_H_
