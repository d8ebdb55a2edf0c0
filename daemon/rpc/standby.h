// Standby: a hub that shares its store with others, while another one leads. It passes calls to
// that one and waits for the lease of the store.
//
//   auto standby = Standby::Start(options);
//   while ((store = (*standby)->TakeLease()) == nullptr) ...;   // twice a second
//   standby->reset();                                           // its addresses are free
//
// Threading: one thread; leader() from any. Ownership: owns the store until it leads.
#ifndef DAEMON_RPC_STANDBY_H_
#define DAEMON_RPC_STANDBY_H_

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "daemon/rpc/relay.h"
#include "daemon/rpc/server.h"
#include "daemon/store/store.h"

namespace seqpoint::rpc {

struct StandbyOptions {
  ServerOptions server;
  RelayOptions relay;
  std::string store_path;
  StoreOptions store;
};

class Standby {
 public:
  // Errors: as Server::Start. A database that is away is none: it is tried again.
  static absl::StatusOr<std::unique_ptr<Standby>> Start(const StandbyOptions& options);

  // The store, once its lease is this hub's. Null: not yet.
  std::unique_ptr<Store> TakeLease();

  struct Leader {
    std::string address;  // empty: nobody leads
    std::string error;    // why it is not known; empty: it is
  };
  Leader leader() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  explicit Standby(const StandbyOptions& options) : options_(options), relay_(options.relay) {}
  absl::StatusOr<StoreLease> Look();
  void SetLeader(Leader leader) ABSL_LOCKS_EXCLUDED(mutex_);

  const StandbyOptions options_;
  Relay relay_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<Store> store_;  // null: it could not be opened yet

  mutable absl::Mutex mutex_;
  Leader leader_ ABSL_GUARDED_BY(mutex_);
};

// Why other hubs, which look for this process at `address`, do not find it there: nobody answers,
// or another daemon does. Empty: they find it. For a hub that leads and serves; it waits some
// seconds where nobody answers. `files`: its own, which it shows to other hubs, too.
std::string WhyNotFound(const std::string& address, const TlsPem& files);

}  // namespace seqpoint::rpc

#endif  // DAEMON_RPC_STANDBY_H_
