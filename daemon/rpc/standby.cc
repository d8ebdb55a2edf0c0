#include "daemon/rpc/standby.h"

#include <utility>

#include "daemon/base/retry.h"
#include "daemon/base/status_macros.h"
#include "spdlog/spdlog.h"

namespace seqpoint::rpc {
namespace {

// A killed daemon's sockets go with its memory, which takes seconds where that is large.
constexpr absl::Duration kSocketPatience = absl::Seconds(5);

}  // namespace

absl::StatusOr<std::unique_ptr<Standby>> Standby::Start(const StandbyOptions& options) {
  std::unique_ptr<Standby> standby(new Standby(options));
  SEQPOINT_ASSIGN_OR_RETURN(standby->server_, RetryWhileTaken(kSocketPatience, [&] {
                              return Server::StartRelay(options.server, &standby->relay_);
                            }));
  return standby;
}

absl::StatusOr<StoreLease> Standby::Look() {
  if (store_ == nullptr) {
    SEQPOINT_ASSIGN_OR_RETURN(store_, Store::Open(options_.store_path, options_.store));
  }
  SEQPOINT_ASSIGN_OR_RETURN(StoreLease lease, store_->TakeLease());
  if (!lease.ours) SEQPOINT_RETURN_IF_ERROR(relay_.SetLeader(lease.holder));
  return lease;
}

std::unique_ptr<Store> Standby::TakeLease() {
  const auto lease = Look();
  if (!lease.ok()) {
    // Calls are passed to the hub that led last: it may reach the database.
    SetLeader({.address = leader().address, .error = std::string(lease.status().message())});
    return nullptr;
  }
  if (lease->ours) return std::move(store_);
  SetLeader({.address = lease->holder});
  return nullptr;
}

Standby::Leader Standby::leader() const {
  absl::MutexLock lock(&mutex_);
  return leader_;
}

void Standby::SetLeader(Leader leader) {
  absl::MutexLock lock(&mutex_);
  if (!leader.error.empty() && leader.error != leader_.error) {
    spdlog::error("this hub cannot lead: {}; it is tried again", leader.error);
  }
  leader_ = std::move(leader);
}

}  // namespace seqpoint::rpc
