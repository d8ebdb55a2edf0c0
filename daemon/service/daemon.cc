#include "daemon/service/daemon.h"

#include <unistd.h>

#include <utility>

#include "absl/time/clock.h"
#include "daemon/base/retry.h"
#include "daemon/base/status_macros.h"
#include "injection/abi/control.h"
#include "proto/host_name.h"

namespace seqpoint::service {

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Start(DaemonOptions options,
                                                      std::unique_ptr<Store> store) {
  if (store == nullptr) {
    SEQPOINT_ASSIGN_OR_RETURN(store, RetryWhileTaken(options.ingest.lock_patience, [&] {
                                return Store::Open(options.store_path, options.store);
                              }));
  }
  std::unique_ptr<Outbox> outbox;
  if (options.has_hub) {
    SEQPOINT_ASSIGN_OR_RETURN(outbox, Outbox::Open(store.get()));
    options.job.reports = true;
  }
  std::unique_ptr<Daemon> daemon(
      new Daemon(std::move(options), std::move(store), std::move(outbox)));
  SEQPOINT_RETURN_IF_ERROR(daemon->registry_.Recover());
  {
    absl::MutexLock lock(&daemon->registry_.mutex());
    daemon->retention_.EndRefused();
    if (daemon->nodes_ != nullptr) daemon->nodes_->Recover();
  }
  SEQPOINT_RETURN_IF_ERROR(daemon->loop_.Start());
  return daemon;
}

Daemon::Daemon(DaemonOptions options, std::unique_ptr<Store> store, std::unique_ptr<Outbox> outbox)
    : options_(std::move(options)),
      start_ns_(options_.clock->WallNs()),
      store_(std::move(store)),
      outbox_(std::move(outbox)),
      registry_(store_.get(), options_.job, options_.clock),
      nodes_(options_.takes_nodes
                 ? std::make_unique<NodeReports>(store_.get(), &registry_, options_.clock)
                 : nullptr),
      committer_(store_.get(), &registry_, outbox_.get(), options_.clock),
      node_traces_(nodes_ != nullptr ? std::make_unique<NodeTraces>(store_.get(), &registry_,
                                                                    &committer_, nodes_.get())
                                     : nullptr),
      retention_(options_.retention, store_.get(), &registry_, &committer_, options_.clock),
      connections_(store_.get(), &registry_, options_.clock),
      parts_{*store_,         registry_,    committer_,        retention_,
             *options_.clock, nodes_.get(), node_traces_.get()},
      trace_answers_(parts_),
      loop_(options_.ingest, parts_, &connections_,
            outbox_ != nullptr ? &outbox_->plans() : nullptr),
      backend_(MakeProfilerBackend(parts_, [this] { return Describe(); })) {}

std::optional<HubParts> Daemon::hub() const {
  if (nodes_ == nullptr) return std::nullopt;
  return HubParts{nodes_.get(), node_traces_.get()};
}

Daemon::StoreState Daemon::store_state() const {
  absl::MutexLock lock(&registry_.mutex());
  return {.since_last_commit = committer_.since_last_commit(), .error = committer_.error()};
}

bool Daemon::AwaitJobs(absl::Duration patience) const ABSL_NO_THREAD_SAFETY_ANALYSIS {
  const absl::Time end = absl::Now() + patience;
  while (!registry_.mutex().ReaderTryLock()) {
    if (absl::Now() >= end) return false;
    absl::SleepFor(absl::Milliseconds(10));
  }
  registry_.mutex().ReaderUnlock();
  return true;
}

v1::GetDaemonReply Daemon::Describe() const {
  v1::GetDaemonReply reply;
  reply.set_version(SEQPOINT_VERSION);
  reply.set_start_ns(start_ns_);
  reply.set_pid(getpid());
  reply.set_host(HostName());
  reply.set_inject_socket(options_.ingest.directory + "/inject.sock");
  reply.set_store_path(options_.store_path);
  reply.set_private_daemon(options_.ingest.end_when_idle > absl::ZeroDuration());
  reply.set_abi_version(abi::kAbiVersion);
  reply.set_peer_address(options_.peer_address);
  reply.set_live_processes(static_cast<int32_t>(connections_.count()));
  if (outbox_ != nullptr) *reply.mutable_hub() = outbox_->DescribeHub();
  v1::Limits& limits = *reply.mutable_limits();
  const RetentionOptions retention = retention_.options();
  limits.set_max_store_bytes(retention.max_store_bytes);
  limits.set_max_job_age_s(retention.max_job_age_s);
  limits.set_max_ring_bytes(static_cast<int32_t>(abi::kMaxRingBytes));
  return reply;
}

}  // namespace seqpoint::service
