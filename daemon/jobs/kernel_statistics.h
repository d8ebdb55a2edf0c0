// KernelStatistics: the kernels of a job, numbered in the order of their first launch, and the sums
// of time and launches of each kernel in the traced work of an iteration.
//
// Threading: one thread at a time. Ownership: values only.
#ifndef DAEMON_JOBS_KERNEL_STATISTICS_H_
#define DAEMON_JOBS_KERNEL_STATISTICS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "daemon/jobs/process_names.h"
#include "daemon/jobs/state.pb.h"
#include "daemon/seqpoint/engine.h"
#include "daemon/seqpoint/measurements.h"
#include "daemon/store/part_log.h"
#include "daemon/store/store.h"
#include "injection/abi/control.h"
#include "injection/abi/records.h"

namespace seqpoint::jobs {

// Statistic sets of the engine. The set of a counter configuration is its config id.
inline constexpr uint32_t kKernelTimeSet = abi::kConfigTrace;
inline constexpr uint32_t kKernelLaunchSet = 0x10000 + abi::kConfigTrace;

// The last index of these sets is shared by all kernels that have no index of their own.
inline constexpr int kOtherKernels = static_cast<int>(kMaxValues) - 1;

class KernelStatistics {
 public:
  // Its index in the sets; a new name gets the next one. Names beyond kMaxNamesBytes, which no
  // program has, share one.
  int IndexOf(const std::string& name);
  const std::vector<std::string>& names() const { return names_; }

  struct Sums {
    std::vector<double> time_ns, launches;  // by index
    int64_t unnamed = 0;                    // kernels without a known name, which are in no sum
  };
  Sums SumOf(absl::Span<const abi::DataRecord> records, ProcessNames& names);

  // Appends the rows of what is new since the last call.
  void Store(int64_t job_id, int32_t version, std::vector<StateRow>& rows);
  // False: damaged.
  bool Load(const std::vector<StateRow>& rows);

 private:
  std::vector<std::string> names_;
  absl::flat_hash_map<std::string, int> index_;
  size_t bytes_ = 0;  // of the names
  PartLog log_{"kernels"};
  KernelsState added_;
};

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_KERNEL_STATISTICS_H_
