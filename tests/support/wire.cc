#include "tests/support/wire.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/time/clock.h"

namespace seqpoint {
namespace {

constexpr int kSliceMs = 50;  // how soon an order is noticed

sockaddr_un AddressOf(const std::filesystem::path& path) {
  sockaddr_un address = {.sun_family = AF_UNIX};
  std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
  return address;
}

bool WriteAll(int fd, const char* data, size_t size) {
  while (size > 0) {
    const ssize_t written = send(fd, data, size, MSG_NOSIGNAL);
    if (written <= 0) return false;
    data += written;
    size -= static_cast<size_t>(written);
  }
  return true;
}

}  // namespace

Wire::Wire(std::filesystem::path path, std::filesystem::path target)
    : path_(std::move(path)), target_(std::move(target)) {
  listening_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_un address = AddressOf(path_);
  bind(listening_, reinterpret_cast<const sockaddr*>(&address), sizeof address);
  listen(listening_, 64);
  thread_ = std::thread([this] { Accept(); });
}

Wire::~Wire() {
  stop_ = true;
  thread_.join();
  close(listening_);
  absl::MutexLock lock(&mutex_);
  for (Connection& connection : connections_) {
    connection.up.join();
    connection.down.join();
    close(connection.client);
    close(connection.server);
  }
}

void Wire::Accept() {
  while (!stop_) {
    pollfd wait = {.fd = listening_, .events = POLLIN};
    if (poll(&wait, 1, kSliceMs) <= 0) continue;
    const int client = accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC);
    const int server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_un address = AddressOf(target_);
    if (cut_ || connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
      close(client);
      close(server);
      continue;
    }
    absl::MutexLock lock(&mutex_);
    Connection& connection = connections_.emplace_back();
    connection.client = client;
    connection.server = server;
    connection.up = std::thread([this, &connection] { Pump(connection, true); });
    connection.down = std::thread([this, &connection] { Pump(connection, false); });
  }
}

void Wire::End(Connection& connection) {
  shutdown(connection.client, SHUT_RDWR);
  shutdown(connection.server, SHUT_RDWR);
}

void Wire::Pump(Connection& connection, bool up) {
  const int from = up ? connection.client : connection.server;
  const int to = up ? connection.server : connection.client;
  std::vector<char> buffer(64 << 10);
  while (!stop_) {
    if (connection.held) {
      absl::SleepFor(absl::Milliseconds(kSliceMs));
      continue;
    }
    pollfd wait = {.fd = from, .events = POLLIN};
    if (poll(&wait, 1, kSliceMs) <= 0 || connection.held) continue;
    const int64_t per_s = up ? 0 : down_per_s_.load();
    const size_t most =
        per_s == 0 ? buffer.size() : static_cast<size_t>(std::max<int64_t>(per_s / 20, 1));
    const ssize_t count = recv(from, buffer.data(), std::min(most, buffer.size()), 0);
    if (count <= 0) break;
    (up ? up_bytes_ : down_bytes_) += count;
    if (!WriteAll(to, buffer.data(), static_cast<size_t>(count))) break;
    if (per_s > 0) absl::SleepFor(absl::Milliseconds(kSliceMs));
  }
  End(connection);
}

void Wire::Cut() {
  cut_ = true;
  absl::MutexLock lock(&mutex_);
  for (Connection& connection : connections_) End(connection);
}

void Wire::Mend() { cut_ = false; }

void Wire::Hold() {
  absl::MutexLock lock(&mutex_);
  for (Connection& connection : connections_) connection.held = true;
}

void Wire::Release() {
  absl::MutexLock lock(&mutex_);
  for (Connection& connection : connections_) connection.held = false;
}

}  // namespace seqpoint
