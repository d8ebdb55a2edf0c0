// TLS 1.3 alone, for all of gRPC in this process.
//
// gRPC 1.51 has no setting for the version. It has one for the cipher suites of TLS 1.2, which
// those of TLS 1.3 do not depend on: with a suite that needs a shared secret, which nobody has, no
// peer agrees on 1.2.
//
// Threading: before there are threads, and before gRPC is used.
#ifndef PROTO_TLS_VERSIONS_H_
#define PROTO_TLS_VERSIONS_H_

#include <stdlib.h>

namespace seqpoint {

inline void RequireTls13() {
  setenv("GRPC_SSL_CIPHER_SUITES", "ECDHE-PSK-CHACHA20-POLY1305", /*overwrite=*/1);
}

}  // namespace seqpoint

#endif  // PROTO_TLS_VERSIONS_H_
