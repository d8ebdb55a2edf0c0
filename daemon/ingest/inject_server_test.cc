#include "daemon/ingest/inject_server.h"

#include <errno.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <set>
#include <thread>

#include "injection/ring/connection.h"
#include "tests/support/as_user.h"
#include "tests/support/served_ring.h"
#include "tests/support/temp_folder.h"

namespace seqpoint::ingest {
namespace {

using ::testing::HasSubstr;

class InjectServerTest : public ::testing::Test, protected InjectServer::Handler {
 protected:
  InjectServerTest() { directory_ = parent_ + "/run"; }
  ~InjectServerTest() override {
    server_.reset();
    ring_.Destroy();
  }

  void Listen(const InjectServer::Options& options = {}) {
    auto server = InjectServer::Listen(directory_, options, this);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  std::string Path() const { return directory_ + "/inject.sock"; }

  // Connects from another thread, as the library's helper thread would, while the server runs here.
  injection::Status Connect(injection::Connection& connection, const std::string& text = "") {
    injection::Status status;
    bool done = false;
    std::thread helper([&] {
      status = connection.Connect(Path().c_str(), ring_, text.data(), text.size(), 5000);
      __atomic_store_n(&done, true, __ATOMIC_RELEASE);
    });
    while (!__atomic_load_n(&done, __ATOMIC_ACQUIRE)) server_->RunOnce(1);
    helper.join();
    server_->RunOnce(0);
    return status;
  }
  // Sends bytes that no library of ours would send, and returns the daemon's answer.
  std::pair<uint32_t, std::string> Send(const void* bytes, size_t n, int fd_to_send) {
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    memcpy(address.sun_path, Path().c_str(), Path().size());
    EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    iovec part = {const_cast<void*>(bytes), n};
    alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (fd_to_send >= 0) {
      message.msg_control = control;
      message.msg_controllen = sizeof control;
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(2 * sizeof(int));
      const int both[2] = {fd_to_send, fd_to_send};  // one too many
      memcpy(CMSG_DATA(header), both, sizeof both);
    }
    EXPECT_EQ(sendmsg(fd, &message, 0), static_cast<ssize_t>(n));
    for (int i = 0; i < 3; ++i) server_->RunOnce(10);
    struct {
      abi::Welcome welcome;
      char text[512];
    } answer = {};
    const ssize_t got = recv(fd, &answer, sizeof answer - 1, MSG_DONTWAIT);
    close(fd);
    if (got < static_cast<ssize_t>(sizeof answer.welcome)) return {0, "no answer"};
    EXPECT_EQ(answer.welcome.text_bytes, strlen(answer.text));
    return {answer.welcome.status, answer.text};
  }

  absl::Status OnProcess(AcceptedProcess process) override {
    if (!refusal_.ok()) return refusal_;
    const uint64_t id = process.id;
    processes_.emplace(id, std::move(process));
    return absl::OkStatus();
  }
  void OnGone(uint64_t id) override { gone_.insert(id); }

  const TempFolder folder_;
  const std::string parent_ = folder_.path();
  std::string directory_;
  injection::RingWriter ring_;
  absl::Status refusal_;
  std::map<uint64_t, AcceptedProcess> processes_;
  std::set<uint64_t> gone_;
  std::unique_ptr<InjectServer> server_;
};

int CountOpenDescriptors() {
  int count = 0;
  for (int fd = 0; fd < 256; ++fd) count += fcntl(fd, F_GETFD) >= 0;
  return count;
}

TEST_F(InjectServerTest, TakesARingAndItsFields) {
  Listen();
  ASSERT_TRUE(ring_.Create(injection::kSmallRing).ok());
  injection::Connection connection;
  const injection::Status status =
      Connect(connection, "job=gnmt\nrank=3\ncommand=python3 train.py --x=1\n=no key\nnothing\n");
  ASSERT_TRUE(status.ok()) << status.message;
  ASSERT_EQ(processes_.size(), 1u);
  const AcceptedProcess& process = processes_.begin()->second;
  EXPECT_EQ(process.pid, getpid());
  EXPECT_EQ(process.uid, getuid());
  EXPECT_EQ(process.text, "job=gnmt\nrank=3\ncommand=python3 train.py --x=1\n=no key\nnothing\n");
  EXPECT_TRUE(connection.Alive());
  ring_.WriteData(MakeKernel(8));
  CollectingSink sink;
  process.reader->Poll(sink, 0);
  EXPECT_EQ(sink.kernels, std::vector<uint64_t>{8});
}

TEST_F(InjectServerTest, TextOfAnyBytesBecomesUtf8) {
  Listen();
  ASSERT_TRUE(ring_.Create(injection::kSmallRing).ok());
  injection::Connection connection;
  const std::string text =
      "host=m\xC3\xBCnchen \xE2\x9C\x93 \xF0\x9F\x98\x80\na=\xFF\xC3(\xED\xA0\x80\x01\nb=\xC0\xAF";
  ASSERT_TRUE(Connect(connection, text).ok());
  EXPECT_EQ(processes_.begin()->second.text,
            "host=m\xC3\xBCnchen \xE2\x9C\x93 \xF0\x9F\x98\x80\na=?\?(????\nb=??");
}

TEST_F(InjectServerTest, UsersWhoAreListedAreTakenAndOthersHearWhyNot) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  chmod(parent_.c_str(), 0711);
  Listen({.allowed_users = {1234}});
  const auto answer_to = [&](uid_t user) {
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    AsUser(user, [&] {
      sockaddr_un address = {.sun_family = AF_UNIX};
      memcpy(address.sun_path, Path().c_str(), Path().size());
      EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
      EXPECT_EQ(send(fd, "x", 1, 0), 1);
    });
    for (int i = 0; i < 3; ++i) server_->RunOnce(10);
    char answer[sizeof(abi::Welcome) + 512] = {};
    EXPECT_GT(recv(fd, answer, sizeof answer - 1, MSG_DONTWAIT), 0);
    close(fd);
    return std::string(answer + sizeof(abi::Welcome));
  };
  EXPECT_EQ(answer_to(1234), "1 bytes are not a hello");
  EXPECT_EQ(answer_to(0), "1 bytes are not a hello");
  EXPECT_EQ(answer_to(1235),
            "it serves user 0 and those of --allow-users, this process runs as 1235");
}

TEST_F(InjectServerTest, ModesKeepOthersOut) {
  Listen();
  struct stat file = {};
  ASSERT_EQ(stat(directory_.c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 0777, 0700u);
  ASSERT_EQ(stat(Path().c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 0777, 0600u);
}

TEST_F(InjectServerTest, ASecondDaemonIsRefusedAndTheFirstGoesOn) {
  Listen();
  const auto second = InjectServer::Listen(directory_, {}, this);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(Path()));
  ASSERT_TRUE(ring_.Create(injection::kSmallRing).ok());
  injection::Connection connection;
  EXPECT_TRUE(Connect(connection).ok());
}

TEST_F(InjectServerTest, TheSocketOfADeadDaemonIsReplaced) {
  const pid_t child = fork();
  if (child == 0) {
    const auto server = InjectServer::Listen(directory_, {}, this);
    _exit(server.ok() ? 0 : 1);  // without cleaning up
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_EQ(WEXITSTATUS(status), 0);
  ASSERT_EQ(access(Path().c_str(), F_OK), 0);
  Listen();
}

TEST_F(InjectServerTest, AFileOfAnotherKindIsNotRemoved) {
  ASSERT_EQ(mkdir(directory_.c_str(), 0700), 0);
  const int fd = open(Path().c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  close(fd);
  const auto server = InjectServer::Listen(directory_, {}, this);
  EXPECT_THAT(std::string(server.status().message()), HasSubstr("is not a socket"));
  EXPECT_EQ(access(Path().c_str(), F_OK), 0);
}

TEST_F(InjectServerTest, ThePathMustFitIntoASocketAddress) {
  directory_ += "/" + std::string(100, 'x');
  const auto server = InjectServer::Listen(directory_, {}, this);
  EXPECT_THAT(std::string(server.status().message()), HasSubstr("choose a shorter SEQPOINT_DIR"));
}

TEST_F(InjectServerTest, WithoutADaemonConnectingFailsAtOnce) {
  ASSERT_TRUE(ring_.Create(injection::kSmallRing).ok());
  injection::Connection connection;
  const auto status = connection.Connect(Path().c_str(), ring_, "", 0, 5000);
  EXPECT_EQ(status.error, ENOENT);
  EXPECT_FALSE(connection.Alive());
}

TEST_F(InjectServerTest, ADaemonThatDoesNotAnswerCostsTheTimeoutOnly) {
  Listen();
  ASSERT_TRUE(ring_.Create(injection::kSmallRing).ok());
  injection::Connection connection;
  const auto status = connection.Connect(Path().c_str(), ring_, "", 0, 20);
  EXPECT_EQ(status.error, ETIMEDOUT);
  // Its hello is still read when the daemon wakes up; the ring is not lost.
  server_->RunOnce(0);
  server_->RunOnce(0);
  EXPECT_EQ(processes_.size(), 1u);
}

TEST_F(InjectServerTest, ARefusalReachesTheProcessAsAMessage) {
  Listen();
  ASSERT_TRUE(ring_.Create(injection::kSmallRing).ok());
  refusal_ = absl::ResourceExhaustedError("the disk is full: free 1 GiB in /var/lib/seqpoint");
  injection::Connection connection;
  const auto status = Connect(connection);
  EXPECT_EQ(status.error, EAGAIN);
  EXPECT_THAT(status.message, HasSubstr("the disk is full: free 1 GiB"));
  EXPECT_FALSE(connection.Alive());
  EXPECT_TRUE(gone_.empty());
  refusal_ = absl::OkStatus();
  EXPECT_TRUE(Connect(connection).ok());
}

TEST_F(InjectServerTest, TooManyProcessesAreRefusedWithTheLimit) {
  Listen({.max_processes = 1});
  ASSERT_TRUE(ring_.Create(injection::kSmallRing).ok());
  injection::Connection first, second;
  EXPECT_TRUE(Connect(first).ok());
  ring_.Destroy();
  ASSERT_TRUE(ring_.Create(injection::kSmallRing).ok());
  EXPECT_THAT(Connect(second).message, HasSubstr("already watches 1 processes"));
}

TEST_F(InjectServerTest, AHubThatSharesItsStoreReadsNoProgramsAndSaysSo) {
  Listen({.max_processes = 0});
  ASSERT_TRUE(ring_.Create(injection::kSmallRing).ok());
  injection::Connection connection;
  EXPECT_THAT(Connect(connection).message, HasSubstr("a hub that shares its store with others"));
}

TEST_F(InjectServerTest, BadHellosAreAnsweredAndLeakNothing) {
  Listen();
  ASSERT_TRUE(ring_.Create(injection::kSmallRing).ok());
  const int before = CountOpenDescriptors();
  const abi::Hello good = ring_.MakeHello();
  EXPECT_THAT(Send("x", 1, -1).second, HasSubstr("1 bytes are not a hello"));
  abi::Hello hello = good;
  hello.magic = 1;
  EXPECT_THAT(Send(&hello, sizeof hello, ring_.fd()).second, HasSubstr("begin like a hello"));
  hello = good;
  hello.abi_version = 9;
  const auto [error, message] = Send(&hello, 16, ring_.fd());
  EXPECT_EQ(error, static_cast<uint32_t>(EPROTO));
  EXPECT_THAT(message, HasSubstr(absl::StrCat("ring version 9, this daemon ", abi::kAbiVersion,
                                              "; install equal versions")));
  hello = good;
  hello.text_bytes = 5;
  EXPECT_THAT(Send(&hello, sizeof hello, ring_.fd()).second, HasSubstr("5 bytes of text"));
  EXPECT_THAT(Send(&good, sizeof good, -1).second, HasSubstr("no memfd"));
  EXPECT_THAT(Send(&good, sizeof good, 0).second, HasSubstr("not a memfd"));
  hello = good;
  hello.ring_id[3] ^= 1;
  EXPECT_THAT(Send(&hello, sizeof hello, ring_.fd()).second, HasSubstr("another ring"));
  const std::string large(sizeof(abi::Hello) + abi::kMaxHelloText + 1, 'x');
  EXPECT_THAT(Send(large.data(), large.size(), -1).second, HasSubstr("8233 bytes"));
  EXPECT_TRUE(processes_.empty());
  EXPECT_EQ(CountOpenDescriptors(), before);
}

TEST_F(InjectServerTest, APeerThatSaysNothingIsForgotten) {
  Listen({.hello_timeout_ms = 1});
  const int before = CountOpenDescriptors();
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  memcpy(address.sun_path, Path().c_str(), Path().size());
  ASSERT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  char byte;
  while (recv(fd, &byte, 1, MSG_DONTWAIT) != 0) server_->RunOnce(10);
  close(fd);
  EXPECT_EQ(CountOpenDescriptors(), before);
}

TEST_F(InjectServerTest, AConnectionThatEndsIsNotAProcessThatEnds) {
  Listen();
  ASSERT_TRUE(ring_.Create(injection::kSmallRing).ok());
  injection::Connection connection;
  ASSERT_TRUE(Connect(connection).ok());
  connection.Close();
  for (int i = 0; i < 3; ++i) server_->RunOnce(1);
  EXPECT_TRUE(gone_.empty());
  // The same ring comes back: the same reader goes on.
  ASSERT_TRUE(Connect(connection).ok());
  EXPECT_EQ(processes_.size(), 1u);
  EXPECT_TRUE(gone_.empty());
  // Also when the daemon has not yet seen the end of the old connection.
  injection::Connection second;
  ASSERT_TRUE(Connect(second).ok());
  EXPECT_EQ(processes_.size(), 1u);
  EXPECT_FALSE(connection.Alive());
  EXPECT_TRUE(second.Alive());
}

TEST_F(InjectServerTest, ANewDaemonGetsTheRingAgain) {
  Listen();
  ASSERT_TRUE(ring_.Create(injection::kSmallRing).ok());
  injection::Connection connection;
  ASSERT_TRUE(Connect(connection).ok());
  EXPECT_EQ(processes_.begin()->second.reconnect, 0u);
  server_.reset();
  EXPECT_FALSE(connection.Alive());
  processes_.clear();
  Listen();
  ASSERT_TRUE(Connect(connection).ok());
  EXPECT_EQ(processes_.begin()->second.reconnect, 1u);
}

// As a program does that becomes a daemon: closes all descriptors, and opens files of its own.
TEST_F(InjectServerTest, DescriptorsThatTheProgramClosedAreItsOwn) {
  Listen();
  ASSERT_TRUE(ring_.Create(injection::kSmallRing).ok());
  injection::Connection connection;
  ASSERT_TRUE(Connect(connection).ok());
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  for (const int fd : {connection.fd(), ring_.fd()}) ASSERT_EQ(dup2(pair[0], fd), fd);
  EXPECT_FALSE(connection.Alive());
  const injection::Status status = connection.Connect(Path().c_str(), ring_, "", 0, 5000);
  EXPECT_EQ(status.error, EBADF);
  EXPECT_THAT(status.message, HasSubstr("closed our file descriptors"));
  const int taken[] = {pair[0], ring_.fd()};
  ring_.Destroy();
  for (const int fd : taken) EXPECT_EQ(write(fd, "x", 1), 1);
  char bytes[2];
  EXPECT_EQ(read(pair[1], bytes, 2), 2);
}

TEST_F(InjectServerTest, AnotherProcessCannotTakeARingOver) {
  Listen();
  ASSERT_TRUE(ring_.Create(injection::kSmallRing).ok());
  injection::Connection connection;
  ASSERT_TRUE(Connect(connection).ok());
  injection::RingWriter thief;
  ASSERT_TRUE(thief.Create(injection::kSmallRing).ok());
  memcpy(thief.header()->ring_id, ring_.header()->ring_id, sizeof thief.header()->ring_id);
  const abi::Hello hello = thief.MakeHello();
  EXPECT_THAT(Send(&hello, sizeof hello, thief.fd()).second, HasSubstr("already"));
  thief.Destroy();
  EXPECT_TRUE(connection.Alive());
}

TEST_F(InjectServerTest, EightProcessesAtOnceLoseNothing) {
  Listen();
  constexpr int kProcesses = 8;
  constexpr uint64_t kRecords = 5000;
  for (int i = 0; i < kProcesses; ++i) {
    if (fork() != 0) continue;
    injection::RingWriter ring;
    injection::Connection connection;
    if (!ring.Create(injection::RingOptions{}).ok()) _exit(1);
    const std::string text = "rank=" + std::to_string(i);
    if (!connection.Connect(Path().c_str(), ring, text.data(), text.size(), 10'000).ok()) _exit(2);
    for (uint64_t k = 0; k < kRecords; ++k) ring.WriteData(MakeKernel(k));
    ring.Close();
    _exit(0);
  }
  while (gone_.size() < kProcesses) server_->RunOnce(100);
  std::set<std::string> ranks;
  for (auto& [id, process] : processes_) {
    ranks.insert(process.text);
    CollectingSink sink;
    process.reader->SetProcessGone();
    process.reader->Poll(sink, 0);
    EXPECT_EQ(sink.kernels.size(), kRecords);
    EXPECT_TRUE(process.reader->stats().closed);
  }
  EXPECT_EQ(ranks.size(), size_t{kProcesses});
  for (int i = 0; i < kProcesses; ++i) {
    int status = 0;
    wait(&status);
    EXPECT_EQ(status, 0);
  }
}

TEST_F(InjectServerTest, AProcessThatDiedBeforeItWasAcceptedIsStillRead) {
  Listen();
  const pid_t child = fork();
  if (child == 0) {
    injection::RingWriter ring;
    injection::Connection connection;
    if (!ring.Create(injection::kSmallRing).ok()) _exit(1);
    ring.WriteData(MakeKernel(5));
    connection.Connect(Path().c_str(), ring, "", 0, 0);  // does not wait for the answer
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_EQ(status, 0);
  while (gone_.empty()) server_->RunOnce(100);
  ASSERT_EQ(processes_.size(), 1u);
  CollectingSink sink;
  processes_.begin()->second.reader->Poll(sink, 0);
  EXPECT_EQ(sink.kernels, std::vector<uint64_t>{5});
}

TEST(InjectSocketPathTest, FollowsTheEnvironment) {
  char path[200];
  setenv("SEQPOINT_DIR", "/a", 1);
  setenv("XDG_RUNTIME_DIR", "/b", 1);
  ASSERT_TRUE(injection::InjectSocketPath(path, sizeof path).ok());
  EXPECT_STREQ(path, "/a/inject.sock");
  setenv("SEQPOINT_DIR", "", 1);
  ASSERT_TRUE(injection::InjectSocketPath(path, sizeof path).ok());
  EXPECT_STREQ(path, "/b/seqpoint/inject.sock");
  unsetenv("XDG_RUNTIME_DIR");
  ASSERT_TRUE(injection::InjectSocketPath(path, sizeof path).ok());
  EXPECT_STREQ(path, "/run/seqpoint/inject.sock");
  setenv("SEQPOINT_DIR", std::string(150, 'x').c_str(), 1);
  EXPECT_EQ(injection::InjectSocketPath(path, sizeof path).error, ENAMETOOLONG);
}

}  // namespace
}  // namespace seqpoint::ingest
