// The name of this machine; empty when the system does not tell.
#ifndef PROTO_HOST_NAME_H_
#define PROTO_HOST_NAME_H_

#include <unistd.h>

#include <string>

namespace seqpoint {

inline std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "";
}

}  // namespace seqpoint

#endif  // PROTO_HOST_NAME_H_
