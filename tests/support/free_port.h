// FreePort: a port of 127.0.0.1 that nobody listened on just now. Threading: any thread.
#ifndef SEQPOINT_TESTS_SUPPORT_FREE_PORT_H_
#define SEQPOINT_TESTS_SUPPORT_FREE_PORT_H_

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace seqpoint {

inline int FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t size = sizeof address;
  bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  close(fd);
  return ntohs(address.sin_port);
}

}  // namespace seqpoint

#endif  // SEQPOINT_TESTS_SUPPORT_FREE_PORT_H_
