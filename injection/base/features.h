// Tells the daemon what became of each optional feature, in one message that a person can act on.
// The same message for the same feature is sent once.
// Threading: any thread.
#ifndef SEQPOINT_INJECTION_BASE_FEATURES_H_
#define SEQPOINT_INJECTION_BASE_FEATURES_H_

#include <stdint.h>

#include "injection/abi/records.h"
#include "injection/base/system.h"
#include "injection/ring/writer.h"

namespace seqpoint::inject {

class Features {
 public:
  explicit Features(injection::RingWriter* ring) : ring_(ring) {}
  __attribute__((format(printf, 5, 6))) void Report(abi::Feature feature, abi::FeatureState state,
                                                    uint32_t code, const char* format, ...);

 private:
  injection::RingWriter* const ring_;
  SpinLock lock_;
  uint64_t last_hash_[static_cast<int>(abi::Feature::kCount)] = {};
};

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_BASE_FEATURES_H_
