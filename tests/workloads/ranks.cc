#include "tests/workloads/ranks.h"

#include <netdb.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <thread>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace seqpoint::workload {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kPatience = std::chrono::seconds(60);
constexpr auto kRetry = std::chrono::milliseconds(10);
// The other side is a rank of the same kind of program, and not whoever has the port.
constexpr char kGreeting[] = "seqpoint_workload";

int NumberOf(std::initializer_list<const char*> names, int otherwise) {
  for (const char* name : names) {
    int value = 0;
    if (const char* text = getenv(name); text != nullptr && absl::SimpleAtoi(text, &value)) {
      return value;
    }
  }
  return otherwise;
}

absl::Status Failed(const std::string& what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", strerror(errno)));
}

// Where the ranks meet.
struct Address {
  sockaddr_storage storage{};
  socklen_t bytes = 0;
  std::string text;
};

absl::StatusOr<Address> MeetingPlace() {
  Address address;
  const char* host = getenv("MASTER_ADDR");
  const char* port = getenv("MASTER_PORT");
  if (host == nullptr || port == nullptr) {
    const char* job = getenv("PMIX_NAMESPACE");
    if (job == nullptr) {
      return absl::InvalidArgumentError(
          "the ranks cannot find each other: set MASTER_ADDR and MASTER_PORT, as torchrun does");
    }
    auto* local = reinterpret_cast<sockaddr_un*>(&address.storage);
    local->sun_family = AF_UNIX;
    // An abstract name: it begins with a zero byte, and ends with its last socket.
    address.text = absl::StrCat("seqpoint_workload-", getuid(), "-", job);
    const size_t length = std::min(address.text.size(), sizeof(local->sun_path) - 1);
    memcpy(local->sun_path + 1, address.text.data(), length);
    address.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
    return address;
  }
  int number = 0;
  if (!absl::SimpleAtoi(port, &number) || number < 1 || number > 65534) {
    return absl::InvalidArgumentError(absl::StrCat("MASTER_PORT: \"", port, "\" is no port"));
  }
  // The agent itself listens at the port then.
  const char* agent = getenv("TORCHELASTIC_USE_AGENT_STORE");
  if (agent != nullptr && strcmp(agent, "True") == 0) ++number;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host, std::to_string(number).c_str(), &hints, &found);
  if (error != 0) {
    return absl::UnavailableError(absl::StrCat("MASTER_ADDR: ", host, ": ", gai_strerror(error)));
  }
  memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  address.bytes = found->ai_addrlen;
  address.text = absl::StrCat(host, ":", number);
  freeaddrinfo(found);
  return address;
}

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int fd() const { return fd_; }

  bool Send(const std::string& bytes) const {
    return send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(bytes.size());
  }
  bool Receive(size_t count, std::string* bytes) const {
    bytes->resize(count);
    return recv(fd_, bytes->data(), count, MSG_WAITALL) == static_cast<ssize_t>(count);
  }

 private:
  const int fd_;
};

int OpenSocket(const Address& address) {
  return socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

const sockaddr* Raw(const Address& address) {
  return reinterpret_cast<const sockaddr*>(&address.storage);
}

absl::Status Give(const Address& address, int others, const std::string& bytes) {
  const Socket listening(OpenSocket(address));
  const int yes = 1;
  setsockopt(listening.fd(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  const timeval patience{kPatience.count(), 0};
  setsockopt(listening.fd(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  if (bind(listening.fd(), Raw(address), address.bytes) != 0 || listen(listening.fd(), 64) != 0) {
    return Failed(absl::StrCat("rank 0 cannot listen at ", address.text));
  }
  for (int given = 0; given < others;) {
    const Socket other(accept(listening.fd(), nullptr, nullptr));
    if (other.fd() < 0) {
      return Failed(
          absl::StrCat(others - given, " of ", others, " ranks did not come to ", address.text));
    }
    std::string greeting;
    if (!other.Receive(sizeof(kGreeting), &greeting) ||
        memcmp(greeting.data(), kGreeting, sizeof(kGreeting)) != 0) {
      continue;
    }
    if (other.Send(bytes)) ++given;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> Take(const Address& address, size_t count) {
  const auto deadline = Clock::now() + kPatience;
  for (;; std::this_thread::sleep_for(kRetry)) {
    const Socket socket(OpenSocket(address));
    std::string bytes;
    if (connect(socket.fd(), Raw(address), address.bytes) == 0 &&
        socket.Send({kGreeting, sizeof(kGreeting)}) && socket.Receive(count, &bytes)) {
      return bytes;
    }
    if (Clock::now() > deadline) {
      return Failed(absl::StrCat("rank 0 did not answer at ", address.text));
    }
  }
}

}  // namespace

absl::StatusOr<Ranks> RanksFromEnvironment() {
  // Not SLURM_NTASKS, which a batch script has, too, when it starts one process only.
  const Ranks ranks{
      .rank = NumberOf({"RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"}, 0),
      .count = NumberOf({"WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE"}, 1),
      .local_rank = NumberOf({"LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK"}, 0)};
  if (ranks.rank < 0 || ranks.local_rank < 0 || ranks.rank >= ranks.count) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", ranks.rank, " of ", ranks.count,
                     " ranks: the variables RANK and WORLD_SIZE contradict each other"));
  }
  return ranks;
}

absl::StatusOr<std::string> ShareBytes(const Ranks& ranks, const std::string& bytes) {
  if (ranks.count == 1) return bytes;
  const absl::StatusOr<Address> address = MeetingPlace();
  if (!address.ok()) return address.status();
  if (ranks.rank > 0) return Take(*address, bytes.size());
  if (absl::Status given = Give(*address, ranks.count - 1, bytes); !given.ok()) return given;
  return bytes;
}

}  // namespace seqpoint::workload
