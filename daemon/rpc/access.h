// Access: which peers on TCP may call what. A peer has roles by the names in its certificate, and
// by its token (docs/using/security.md).
//
//   node     the service Ingest: to report what its processes do
//   read     the questions of the service Profiler
//   control  all of the service Profiler
//
// Threading: Check from any thread. Ownership: values. A token is never logged.
#ifndef DAEMON_RPC_ACCESS_H_
#define DAEMON_RPC_ACCESS_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "daemon/base/line_limit.h"

namespace seqpoint::rpc {

struct AccessOptions {
  // Names of certificates, "*" being any text in one, separated by commas. All empty: every
  // certificate has all roles. Otherwise one that no list names has none.
  std::string node_names, read_names, control_names;
  std::string token_file;  // empty: there are no tokens
};

struct Roles {
  bool node = false, read = false, control = false;
};

// A peer, as one of its calls shows it.
struct CallingPeer {
  bool has_certificate = false;
  std::vector<std::string> names;  // of the certificate: its common name, and alternative names
  std::string authorization;       // the header of this name; empty: none
};

class Access {
 public:
  // InvalidArgument, which names the file and the line: the tokens cannot be read.
  static absl::StatusOr<std::unique_ptr<Access>> Open(const AccessOptions& options);

  // `method`: "/seqpoint.v1.Profiler/GetJob", for one. Unauthenticated: the peer did not show
  // who it is; PermissionDenied: it may not call that.
  absl::Status Check(absl::string_view method, const CallingPeer& peer);

  // False: every certificate of the authority may do everything.
  bool has_names() const { return has_names_; }

 private:
  struct Token {
    std::string name;
    Roles roles;
  };
  using Tokens = std::map<std::string, Token>;  // by SHA-256

  explicit Access(const AccessOptions& options);
  static absl::StatusOr<Tokens> ReadTokens(const std::string& path);
  Roles OfCertificate(const std::vector<std::string>& names) const;
  absl::StatusOr<Token> OfToken(absl::string_view authorization);
  absl::StatusOr<Roles> RolesOf(const CallingPeer& peer, std::string* who);
  absl::Status Decide(absl::string_view method, const CallingPeer& peer);

  const std::vector<std::string> node_names_, read_names_, control_names_;
  const bool has_names_;
  const std::string token_file_;

  absl::Mutex mutex_;
  Tokens tokens_ ABSL_GUARDED_BY(mutex_);
  std::string stamp_ ABSL_GUARDED_BY(mutex_);  // of the file as it was looked at last
  LineLimit refusals_;
};

}  // namespace seqpoint::rpc

#endif  // DAEMON_RPC_ACCESS_H_
