// Says why a TLS connection to a daemon fails. gRPC has one sentence for all causes; this tries the
// handshake once more with OpenSSL, which tells them apart.
//
// Threading: any thread; it waits, for at most some seconds at each of the server's addresses.
// Ownership: keeps nothing.
#ifndef PROTO_TLS_PROBE_H_
#define PROTO_TLS_PROBE_H_

#include <string>

namespace seqpoint {

struct TlsProbe {
  std::string address;  // "host:port"
  // Texts in PEM. Without authorities, those of the system; without a certificate, none is shown.
  std::string authorities, certificate, key;
  // Where these are from, for the sentence: "--ca ca.pem".
  std::string authorities_from = "--ca", certificate_from = "--cert";
};

// A sentence with the cause and the way out. Empty: the handshake succeeds, so that the cause is
// another one, or is over.
std::string WhyNoTls(const TlsProbe& probe);

// A sentence where `address` is not HOST:PORT with a port from 1 to 65535; empty: it is. gRPC would
// ask port 443 without one.
std::string WhyNoAddress(const std::string& address);

}  // namespace seqpoint

#endif  // PROTO_TLS_PROBE_H_
