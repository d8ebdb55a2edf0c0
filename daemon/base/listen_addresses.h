// The addresses behind "host:port", to listen on. A name may have several (localhost: ::1 and
// 127.0.0.1). An empty host is every address of the machine; "[::1]:80" is an address of IPv6.
//
// Threading: thread-safe. Ownership: a value that owns the list.
#ifndef DAEMON_BASE_LISTEN_ADDRESSES_H_
#define DAEMON_BASE_LISTEN_ADDRESSES_H_

#include <netdb.h>
#include <sys/socket.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace seqpoint {

struct ListenAddresses {
  std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list{nullptr, &freeaddrinfo};
  uint32_t port = 0;  // 0: any free one
  std::string why;    // why the list is empty; else empty

  // Nothing: `address` is not host:port. It may ask a name server.
  static std::optional<ListenAddresses> Find(const std::string& address) {
    ListenAddresses found;
    const size_t colon = address.rfind(':');
    if (colon == std::string::npos || !absl::SimpleAtoi(address.substr(colon + 1), &found.port) ||
        found.port > 65535) {
      return std::nullopt;
    }
    std::string host = address.substr(0, colon);
    if (host.size() > 1 && host.front() == '[' && host.back() == ']') {
      host = host.substr(1, host.size() - 2);
    }
    const addrinfo hints = {.ai_flags = AI_PASSIVE | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
    addrinfo* list = nullptr;
    const int unknown = getaddrinfo(host.empty() ? nullptr : host.c_str(),
                                    absl::StrCat(found.port).c_str(), &hints, &list);
    if (unknown != 0) found.why = gai_strerror(unknown);
    found.list.reset(list);
    return found;
  }
};

}  // namespace seqpoint

#endif  // DAEMON_BASE_LISTEN_ADDRESSES_H_
