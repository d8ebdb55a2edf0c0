#include "injection/base/features.h"

#include <stdarg.h>

#include "injection/abi/names.h"

namespace seqpoint::inject {

void Features::Report(abi::Feature feature, abi::FeatureState state, uint32_t code,
                      const char* format, ...) {
  char message[512];
  va_list arguments;
  va_start(arguments, format);
  const size_t length = FormatAt(message, 0, sizeof(message), format, arguments);
  va_end(arguments);
  const uint64_t hash = abi::NameHash(message, length) + static_cast<uint64_t>(state);
  {
    LockGuard guard(&lock_);
    uint64_t* last = &last_hash_[static_cast<int>(feature)];
    if (*last == hash) return;
    *last = hash;
  }
  Log("%s", message);
  const abi::FeatureEvent event = {static_cast<uint16_t>(feature), static_cast<uint16_t>(state),
                                   code, static_cast<uint32_t>(length), 0};
  if (ring_->WriteEvent(abi::EventType::kFeature, &event, sizeof(event), message, length)) return;
  LockGuard guard(&lock_);  // the next report of the same message is not a repetition
  last_hash_[static_cast<int>(feature)] = 0;
}

}  // namespace seqpoint::inject
