#include "daemon/operate/http_server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace seqpoint::operate {
namespace {

class HttpServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto server = HttpServer::Start("127.0.0.1:0", [](std::string_view path) {
      if (path != "/page") return HttpReply{.status = 404, .body = "no such page\n"};
      return HttpReply{.body = std::string(1 << 20, 'x')};
    });
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  int Connect() const {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = {.sin_family = AF_INET,
                           .sin_port = htons(static_cast<uint16_t>(server_->port()))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    return fd;
  }
  static std::string ReadAll(int fd) {
    std::string all;
    char bytes[4096];
    ssize_t count;
    while ((count = recv(fd, bytes, sizeof bytes, 0)) > 0) all.append(bytes, count);
    close(fd);
    return all;
  }
  std::string Ask(const std::string& request) const {
    const int fd = Connect();
    EXPECT_GT(send(fd, request.data(), request.size(), MSG_NOSIGNAL), 0);
    return ReadAll(fd);
  }

  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, AnswersPagesAndSaysWhatItDoesNotKnow) {
  const std::string page = Ask("GET /page?name=1 HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_TRUE(absl::StartsWith(page, "HTTP/1.1 200 OK\r\n"));
  EXPECT_TRUE(absl::EndsWith(page, std::string(1 << 20, 'x')));
  EXPECT_TRUE(absl::EndsWith(Ask("HEAD /page HTTP/1.1\r\n\r\n"), "close\r\n\r\n"));
  EXPECT_TRUE(absl::StartsWith(Ask("GET / HTTP/1.0\r\n\r\n"), "HTTP/1.1 404 "));
  EXPECT_TRUE(absl::StartsWith(Ask("POST /page HTTP/1.1\r\n\r\n"), "HTTP/1.1 405 "));
  EXPECT_TRUE(absl::StartsWith(Ask("nonsense\r\n\r\n"), "HTTP/1.1 400 "));
  EXPECT_TRUE(
      absl::StartsWith(Ask(std::string(2 * HttpServer::kMostHeadBytes, 'a')), "HTTP/1.1 431 "));
}

TEST_F(HttpServerTest, ThoseWhoSayNothingKeepNobodyFromAnAnswer) {
  std::vector<int> silent;
  for (size_t i = 0; i < 3 * HttpServer::kMostConnections; ++i) silent.push_back(Connect());
  EXPECT_TRUE(absl::StartsWith(Ask("GET /page HTTP/1.1\r\n\r\n"), "HTTP/1.1 200 OK\r\n"));
  EXPECT_EQ(ReadAll(silent.front()), "");  // the oldest were ended
  for (size_t i = 1; i < silent.size(); ++i) close(silent[i]);
}

TEST_F(HttpServerTest, AddressesThatCannotBe) {
  const auto handler = [](std::string_view) { return HttpReply(); };
  EXPECT_EQ(HttpServer::Start("here", handler).status().message(),
            "--metrics-listen here is not host:port, as in localhost:9464");
  const std::string taken = absl::StrCat("127.0.0.1:", server_->port());
  EXPECT_TRUE(absl::StrContains(HttpServer::Start(taken, handler).status().message(),
                                "Address already in use"));
}

}  // namespace
}  // namespace seqpoint::operate
