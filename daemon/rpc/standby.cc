#include "daemon/rpc/standby.h"

#include <unistd.h>

#include <chrono>
#include <utility>

#include "daemon/base/retry.h"
#include "daemon/base/status_macros.h"
#include "daemon/rpc/hub_channel.h"
#include "proto/host_name.h"
#include "seqpoint/v1/profiler.grpc.pb.h"
#include "spdlog/spdlog.h"

namespace seqpoint::rpc {
namespace {

constexpr std::chrono::seconds kFindTimeout{5};  // for itself, through one balancer or proxy
// A killed daemon's sockets go with its memory, which takes seconds where that is large.
constexpr absl::Duration kSocketPatience = absl::Seconds(5);

}  // namespace

std::string WhyNotFound(const std::string& address, const TlsPem& files) {
  const auto hub = HubChannel::Open(address, files);
  if (!hub.ok()) return std::string(hub.status().message());
  const std::shared_ptr<grpc::Channel> channel = (*hub)->Get();
  const auto deadline = std::chrono::system_clock::now() + kFindTimeout;
  if (!channel->WaitForConnected(deadline)) {
    const std::string why = (*hub)->WhyNotConnected();
    return why.empty() ? "no gRPC follows on the connection" : why;
  }
  grpc::ClientContext context;
  context.set_deadline(deadline);
  v1::GetDaemonReply reply;
  const grpc::Status status =
      v1::Profiler::NewStub(channel)->GetDaemon(&context, v1::GetDaemonRequest(), &reply);
  if (!status.ok()) return status.error_message();
  if (reply.pid() == getpid() && reply.host() == HostName()) return "";
  return absl::StrCat("another seqpointd answers there (process ", reply.pid(), " on ",
                      reply.host(), ")");
}

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
