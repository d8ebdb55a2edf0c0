// A server that takes connections and says nothing, as one behind a broken network does.
#include "daemon/store/postgres.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace seqpoint {
namespace {

class SilentServer {
 public:
  SilentServer() : listening_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    address_.sin_family = AF_INET;
    address_.sin_addr = {htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address_;
    bind(listening_, reinterpret_cast<sockaddr*>(&address_), size);
    getsockname(listening_, reinterpret_cast<sockaddr*>(&address_), &size);
    listen(listening_, 100);
  }
  ~SilentServer() {
    for (const int fd : connections_) close(fd);
    close(listening_);
  }
  int port() const { return ntohs(address_.sin_port); }
  // Those that came until now.
  size_t CountConnections() {
    for (pollfd waiting = {listening_, POLLIN, 0}; poll(&waiting, 1, 0) > 0;) {
      connections_.push_back(accept(listening_, nullptr, nullptr));
    }
    return connections_.size();
  }

 private:
  const int listening_;
  sockaddr_in address_ = {};
  std::vector<int> connections_;
};

TEST(PostgresTest, AServerThatDoesNotAnswerHoldsUpOneCall) {
  SilentServer server;
  // Two seconds are the shortest that libpq knows.
  const auto parameters = PostgresParameters(absl::StrCat("postgresql://127.0.0.1:", server.port(),
                                                          "/x?connect_timeout=2&sslmode=disable"));
  ASSERT_TRUE(parameters.ok()) << parameters.status();
  Postgres postgres("postgresql:x", *parameters,
                    [](pqxx::connection&) { return absl::OkStatus(); });
  const auto ask = [&] {
    return postgres.Run([](pqxx::connection&) -> absl::Status { return absl::OkStatus(); });
  };
  const absl::Status first = ask();
  EXPECT_TRUE(absl::IsUnavailable(first)) << first;
  EXPECT_THAT(std::string(first.message()), testing::HasSubstr("store postgresql:x: "));
  EXPECT_EQ(server.CountConnections(), 1u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(ask(), first);
  EXPECT_EQ(server.CountConnections(), 1u);
}

}  // namespace
}  // namespace seqpoint
