// Files for other tools, made from what the store holds: Chrome trace events in JSON of the traced
// iterations or the imported traces (Perfetto, HTA and TensorBoard open it, and of one rank it can
// be imported again: docs/formats/traces.md), and a CSV with one row per iteration.
//
// Threading: any thread; reads the store only. Memory: one window or imported trace at a time.
#ifndef DAEMON_EXPORT_H_
#define DAEMON_EXPORT_H_

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "daemon/store/store.h"

namespace seqpoint {

// False: the receiver is gone, stop.
using WriteFunction = absl::FunctionRef<bool(std::string_view)>;

struct ExportContext {
  std::vector<int32_t> ranks;
  // The user's lengths of an iteration, and the names of a configuration and a phase.
  std::function<std::vector<int64_t>(const IterationRow&)> lengths;
  std::function<std::string(uint32_t config_id)> config_name;
};

// FailedPrecondition while no iteration was traced; Cancelled when the receiver went away.
absl::Status ExportChrome(Store& store, const JobRow& job, const ExportContext& context,
                          WriteFunction write);
absl::Status ExportCsv(Store& store, const JobRow& job, const ExportContext& context,
                       WriteFunction write);

}  // namespace seqpoint

#endif  // DAEMON_EXPORT_H_
