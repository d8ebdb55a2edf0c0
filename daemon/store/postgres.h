// Postgres: one connection to a PostgreSQL server that is made again after it broke.
//
//   SEQPOINT_ASSIGN_OR_RETURN(std::string parameters, PostgresParameters(address));
//   Postgres postgres(address, parameters, [](pqxx::connection& c) { return Lock(c); });
//   absl::Status status = postgres.Run([](pqxx::connection& connection) {
//     pqxx::work transaction(connection);  // may throw what pqxx throws
//     ...
//   });
//
// A server that does not answer holds up who waits for it, and others with them. After an attempt
// to connect that failed all calls fail at once, for as long as it took.
//
// Errors: Unavailable (no connection, or it broke: try again later), ResourceExhausted (its disk is
// full), InvalidArgument (a row that breaks a constraint), PermissionDenied, DataLoss, Internal.
// Every message names the address, which has no password.
//
// A server whose processes are stopped, or whose disk hangs, keeps its connections and gives no
// answer. TCP notices none of it. Another thread ends such a call with Break().
//
// Threading: one thread at a time; waiting() and Break() from any. Ownership: owns the connection.
#ifndef DAEMON_STORE_POSTGRES_H_
#define DAEMON_STORE_POSTGRES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <pqxx/pqxx>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace seqpoint {

// The connection's parameters for an address. InvalidArgument: it is no address of PostgreSQL, or
// has a password in it, which every user of the machine could read.
absl::StatusOr<std::string> PostgresParameters(const std::string& address);

class Postgres {
 public:
  using OnConnect = std::function<absl::Status(pqxx::connection&)>;

  // `on_connect` is called with each new connection; it is closed again when that fails.
  Postgres(std::string address, std::string parameters, OnConnect on_connect)
      : address_(std::move(address)),
        parameters_(std::move(parameters)),
        on_connect_(std::move(on_connect)) {}

  // Calls `body` with the connection. What it throws becomes the status.
  absl::Status Run(absl::FunctionRef<absl::Status(pqxx::connection&)> body);
  // The same for what may be done twice: a connection that broke while it was idle is made again.
  absl::Status RunTwice(absl::FunctionRef<absl::Status(pqxx::connection&)> body);

  // The next call makes a new connection.
  void Disconnect() { connection_.reset(); }

  // How long the call that runs now has been with the server. Zero: none is.
  absl::Duration waiting() const ABSL_LOCKS_EXCLUDED(answer_mutex_);
  // The call that runs now fails with Unavailable.
  void Break() ABSL_LOCKS_EXCLUDED(answer_mutex_);

  const std::string& address() const { return address_; }

 private:
  // While it lives, a connection is with the server.
  class Answer;
  absl::Status Connect();
  absl::Status Failed(absl::StatusCode code, std::string_view message);

  const std::string address_;
  const std::string parameters_;
  const OnConnect on_connect_;
  std::unique_ptr<pqxx::connection> connection_;
  absl::Time next_attempt_ = absl::InfinitePast();
  absl::Status failure_;  // the latest

  mutable absl::Mutex answer_mutex_;
  int socket_ ABSL_GUARDED_BY(answer_mutex_) = -1;        // of the call that runs now
  int64_t asked_ns_ ABSL_GUARDED_BY(answer_mutex_) = 0;   // of the monotonic clock
  int64_t broken_ns_ ABSL_GUARDED_BY(answer_mutex_) = 0;  // it had waited so long; 0: not broken
};

// Bytes as a literal of SQL.
std::string SqlBytes(std::string_view bytes);
std::string BytesOf(const pqxx::field& field);

}  // namespace seqpoint

#endif  // DAEMON_STORE_POSTGRES_H_
