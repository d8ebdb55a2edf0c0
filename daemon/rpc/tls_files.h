// TlsFiles: the certificate, the key and the authorities of a daemon, which are read again when one
// of the files changes. Files that cannot be used change nothing: the ones before stay, and the log
// says why.
//
//   auto files = TlsFiles::Open({.certificate = "hub.pem", .key = "hub.key", .authorities =
//   "ca.pem"}); use((*files)->pem());
//   ... before each new connection:
//   if ((*files)->Reload()) use((*files)->pem());
//
// Threading: one thread at a time. Ownership: values. A key is never logged.
#ifndef DAEMON_RPC_TLS_FILES_H_
#define DAEMON_RPC_TLS_FILES_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace seqpoint::rpc {

// Paths of PEM files, or their texts. No authorities: an empty one.
struct TlsPem {
  std::string certificate;  // the chain
  std::string key;
  std::string authorities;  // whom the peer's certificate must be of
};

class TlsFiles {
 public:
  // InvalidArgument, which names the file: it cannot be read, or holds no such thing; the key is
  // not the certificate's. A certificate that has expired is one that a peer refuses; the log says
  // so.
  static absl::StatusOr<std::unique_ptr<TlsFiles>> Open(const TlsPem& paths);

  // True: the files were changed, and pem() is what they hold now.
  bool Reload();
  const TlsPem& pem() const { return pem_; }

 private:
  TlsFiles(TlsPem paths, TlsPem pem, std::string stamp)
      : paths_(std::move(paths)), pem_(std::move(pem)), stamp_(std::move(stamp)) {}

  const TlsPem paths_;
  TlsPem pem_;
  std::string stamp_;  // of the files as they were looked at last
};

}  // namespace seqpoint::rpc

#endif  // DAEMON_RPC_TLS_FILES_H_
