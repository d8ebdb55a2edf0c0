// MetricCollection: the counters that a job collects (MetricChoice), and the configurations that
// the GPUs refused.
//
// Threading: one thread at a time. Ownership: values only.
#ifndef DAEMON_JOBS_METRIC_COLLECTION_H_
#define DAEMON_JOBS_METRIC_COLLECTION_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "daemon/jobs/metric_choice.h"
#include "daemon/store/store.h"

namespace seqpoint::jobs {

class MetricCollection {
 public:
  const MetricChoice& choice() const { return choice_; }
  void Set(MetricChoice choice) { choice_ = std::move(choice); }

  // A process of this rank runs on `chip`. True: the configurations are known from now on.
  bool OnChip(const std::string& chip, int32_t rank);
  // A configuration cannot be collected, for the reason `why`.
  void Refuse(uint32_t config_id, const std::string& why);
  // It can be collected; true when it was refused before.
  bool Accept(uint32_t config_id) { return refused_.erase(config_id) > 0; }
  bool full() const;  // no other can be refused

  // Why something is not collected, for the user; empty: everything is.
  const std::string& error() const { return error_; }
  const std::map<uint32_t, std::string>& refused() const { return refused_; }

  // The configurations of whole iterations and of single kernels that can be collected.
  std::vector<uint32_t> Configs() const { return Collected(choice_.set().configs); }
  std::vector<uint32_t> KernelConfigs() const { return Collected(choice_.roofline().configs); }

  // "a configuration of the metric set "cache" (lts__t_bytes.sum and 2 more)"
  std::string Describe(uint32_t config_id) const;
  std::vector<ConfigRow> Rows(int64_t job_id) const;

 private:
  std::vector<uint32_t> Collected(const std::vector<counters::OnePassConfig>& configs) const;

  MetricChoice choice_;
  std::map<uint32_t, std::string> refused_;  // and why
  std::string error_;
};

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_METRIC_COLLECTION_H_
