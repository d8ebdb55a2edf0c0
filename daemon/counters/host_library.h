// The real CUPTI host library, which knows every chip's metrics and needs no GPU: how many passes
// a configuration takes, and which metric a chip does not have.
//
// Threading: one thread at a time (libnvperf_host asks for it). Ownership: the libraries stay
// loaded for the life of the process.
#ifndef DAEMON_COUNTERS_HOST_LIBRARY_H_
#define DAEMON_COUNTERS_HOST_LIBRARY_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/counters/metric_sets.h"

namespace seqpoint::counters {

class HostLibrary {
 public:
  // $CUDA_HOME, /usr/local/cuda, then wherever the loader looks. Error: NotFound, with what to do.
  static absl::StatusOr<HostLibrary> Open();

  // Passes that collecting all of `metrics` together takes. Errors: NotFound: a metric that the
  // chip does not offer to the backend, named; FailedPrecondition: metrics of the device and of
  // the context together; others name CUPTI's function and result.
  absl::StatusOr<int> Passes(std::string_view chip, Backend backend,
                             const std::vector<std::string>& metrics) const;

  // Chips that the library knows.
  std::vector<std::string> Chips() const;

 private:
  explicit HostLibrary(void* handle) : handle_(handle) {}
  void* handle_;
};

}  // namespace seqpoint::counters

#endif  // DAEMON_COUNTERS_HOST_LIBRARY_H_
