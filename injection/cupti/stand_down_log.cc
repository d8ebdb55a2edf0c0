#include "injection/cupti/stand_down_log.h"

#include <stdio.h>
#include <string.h>

#include "injection/cupti/stand_down_requests.h"

namespace seqpoint::inject {

void StandDownLog::SetHolder(const char* holder) {
  if (holder == nullptr) {
    CopyHolder(holder_, sizeof(holder_));
  } else {
    snprintf(holder_, sizeof(holder_), "%s", holder);
  }
}

void StandDownLog::Begin(uint64_t now_ns, uint64_t iteration) {
  since_ns_ = now_ns != 0 ? now_ns : 1;
  left_ = true;
  Write(0, iteration);
}

void StandDownLog::End(uint64_t now_ns, uint64_t iteration) {
  Write(now_ns, iteration);
  since_ns_ = 0;
}

void StandDownLog::Write(uint64_t end_ns, uint64_t iteration) {
  abi::StandDownEvent event = {};
  event.iteration = iteration;
  event.begin_ns = since_ns_;
  event.end_ns = end_ns;
  event.length = static_cast<uint32_t>(strlen(holder_));
  ring_->WriteEvent(abi::EventType::kStandDown, &event, sizeof(event), holder_, event.length);
}

}  // namespace seqpoint::inject
