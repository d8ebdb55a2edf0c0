// The state of an OnlineEngine as bytes, and the calls that changed it since.
//
//   std::string base = SerializeEngine(engine);
//   engine.KeepCalls();
//   ...
//   std::string log = SerializeCalls(engine.TakeCalls());   // as often as you like
//   ...
//   absl::StatusOr<OnlineEngine> same = ParseEngine(base);
//   ReplayCalls(log, *same);                                // logs in order, together or one by
//   one
//
// Format: engine_state.proto. There is no migration.
// Threading: free functions. Errors: no byte is trusted; DataLoss for damaged ones, and never more
// memory than the input justifies.
#ifndef DAEMON_SEQPOINT_ENGINE_CODEC_H_
#define DAEMON_SEQPOINT_ENGINE_CODEC_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "daemon/seqpoint/engine.h"
#include "daemon/seqpoint/engine_calls.h"

namespace seqpoint {

// The same state gives the same bytes.
std::string SerializeEngine(const OnlineEngine& engine);
absl::StatusOr<OnlineEngine> ParseEngine(std::string_view bytes);

std::string SerializeCalls(absl::Span<const EngineCall> calls);
// After an error the engine is of no use.
absl::Status ReplayCalls(std::string_view log, OnlineEngine& engine);

}  // namespace seqpoint

#endif  // DAEMON_SEQPOINT_ENGINE_CODEC_H_
