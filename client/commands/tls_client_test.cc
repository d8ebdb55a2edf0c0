// A client that cannot reach a daemon over TLS says why: each cause has its sentence.
#include <grpcpp/grpcpp.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/certificates.h"
#include "tests/support/client_fixture.h"

namespace seqpoint::client {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class TlsClientTest : public ClientTest {
 protected:
  void SetUp() override {
    if (!made_.Authority("ca")) GTEST_SKIP() << "openssl is not installed";
    ASSERT_TRUE(made_.Authority("other"));
    ASSERT_TRUE(made_.Issue("hub", {.authority = "ca"}));
    ASSERT_TRUE(made_.Issue("old-hub", {.authority = "ca", .days = -1}));
    ASSERT_TRUE(made_.Issue("alice", {.authority = "ca"}));
    ASSERT_TRUE(made_.Issue("old-alice", {.authority = "ca", .days = -1}));
    ASSERT_TRUE(made_.Issue("mallory", {.authority = "other"}));
  }
  void Listen(const std::string& name) {
    server_.reset();
    auto server = rpc::Server::Start({.socket_path = directory_ / "api.sock",
                                      .tcp_address = "127.0.0.1:0",
                                      .tls_certificate_file = made_.Certificate(name),
                                      .tls_key_file = made_.Key(name),
                                      .tls_client_ca_file = made_.Certificate("ca")},
                                     &backend_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    port_ = server_->tcp_port();
  }
  // With the certificate `name`; empty: none.
  Result Ask(const std::string& host, const std::string& authority, const std::string& name) {
    std::vector<std::string> words = {"jobs", "--server", host + ":" + std::to_string(port_),
                                      "--ca", made_.Certificate(authority)};
    if (!name.empty()) {
      words.insert(words.end(), {"--cert", made_.Certificate(name), "--key", made_.Key(name)});
    }
    const Result result = Client(words);
    // gRPC's own words are for those who develop with it.
    EXPECT_THAT(result.err, AllOf(Not(HasSubstr("UNKNOWN")), Not(HasSubstr("addresses"))));
    return result;
  }

  const Certificates made_{directory_ / "made"};
  int port_ = 0;
};

TEST_F(TlsClientTest, EachCauseHasItsSentence) {
  Listen("hub");
  EXPECT_EQ(Ask("127.0.0.1", "ca", "alice").code, 0);
  for (const auto& [host, authority, name, expected] :
       std::vector<std::tuple<std::string, std::string, std::string, std::string>>{
           {"127.0.0.1", "other", "alice",
            "is not of the authority in --ca " + made_.Certificate("other")},
           {"localhost", "ca", "alice", "does not have the name localhost (it has 127.0.0.1)"},
           {"127.0.0.1", "ca", "", "wants a client's certificate: give one with --cert"},
           {"127.0.0.1", "ca", "old-alice", "this certificate expired (20"},
           {"127.0.0.1", "ca", "mallory",
            "does not take --cert " + made_.Certificate("mallory") +
                "; one of: it is of another authority"},
           {"nosuch.invalid", "ca", "alice", "no address of nosuch.invalid is known"}}) {
    const Result result = Ask(host, authority, name);
    EXPECT_EQ(result.code, 3) << expected;
    EXPECT_THAT(result.err, HasSubstr(expected));
  }
  Listen("old-hub");
  EXPECT_THAT(Ask("127.0.0.1", "ca", "alice").err,
              AllOf(HasSubstr("the certificate of 127.0.0.1:"), HasSubstr(" expired (20")));
}

TEST_F(TlsClientTest, AServerWithoutTlsIsSaidToBeOne) {
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
  const std::unique_ptr<grpc::Server> plain = builder.BuildAndStart();
  EXPECT_THAT(Ask("127.0.0.1", "ca", "alice").err, HasSubstr("answers without TLS"));
  plain->Shutdown();
}

}  // namespace
}  // namespace seqpoint::client
