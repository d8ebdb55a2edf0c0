// Nodes that reach their hub over TCP: under TLS, with certificates on both sides, or not at all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "tests/support/api.h"
#include "tests/support/certificates.h"
#include "tests/support/free_port.h"
#include "tests/support/temp_folder.h"

namespace seqpoint {
namespace {

using ::testing::HasSubstr;

std::string TextOf(const std::filesystem::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

class HubTlsTest : public testing::Test {
 protected:
  HubTlsTest()
      : made_(folder_.path() / "tls"), address_("127.0.0.1:" + std::to_string(FreePort())) {}
  void SetUp() override {
    if (!made_.Authority("ca")) GTEST_SKIP() << "openssl is not installed";
    ASSERT_TRUE(made_.Authority("other-ca"));
    ASSERT_TRUE(made_.Issue("hub", {.authority = "ca"}));
    ASSERT_TRUE(made_.Issue("node", {.authority = "ca"}));
    ASSERT_TRUE(made_.Issue("stranger", {.authority = "other-ca"}));
    ASSERT_TRUE(made_.Issue("expired", {.authority = "ca", .days = -1}));
    ASSERT_TRUE(made_.Issue("elsewhere", {.authority = "ca", .address = "DNS:elsewhere.example"}));
  }
  ~HubTlsTest() override {
    KillAndWait(&node_, SIGKILL);
    KillAndWait(&hub_, SIGKILL);
    if (HasFailure()) folder_.Keep();
  }

  std::filesystem::path Folder(const std::string& name) const {
    std::filesystem::create_directories(folder_.path() / name);
    return folder_.path() / name;
  }
  void StartHub(const std::string& certificate, std::vector<std::string> options = {}) {
    options.insert(options.end(),
                   {"--accept-nodes", "--listen", address_, "--tls-certificate",
                    made_.Certificate(certificate), "--tls-key", made_.Key(certificate),
                    "--tls-client-ca", made_.Certificate("ca")});
    hub_ = SpawnDaemon(Folder("hub"), {}, options);
    ASSERT_TRUE(Api(Folder("hub") / "run/api.sock").Call(&v1::Profiler::Stub::ListJobs, {}));
  }
  void StartNode(const std::string& certificate, const std::string& authority) {
    node_ = SpawnDaemon(
        Folder("node"), {},
        {"--hub", address_, "--tls-certificate", made_.Certificate(certificate), "--tls-key",
         made_.Key(certificate), "--hub-ca", made_.Certificate(authority)});
  }
  // Until the node is connected, or was refused.
  v1::HubConnection AwaitHub() {
    v1::HubConnection hub;
    for (int tenth = 0; tenth < 100; ++tenth) {
      const auto reply =
          Api(Folder("node") / "run/api.sock").Call(&v1::Profiler::Stub::GetDaemon, {});
      if (reply) hub = reply->hub();
      if (hub.connected() || !hub.error().empty()) return hub;
      absl::SleepFor(absl::Milliseconds(100));
    }
    return hub;
  }
  // The node is refused, says so with these words, and the hub takes others all the same.
  void ExpectRefused(const std::string& words) {
    const v1::HubConnection hub = AwaitHub();
    EXPECT_FALSE(hub.connected());
    EXPECT_THAT(hub.error(), HasSubstr(words));
    EXPECT_THAT(hub.error(), HasSubstr("this node goes on by itself"));
    const auto nodes = Api(Folder("hub") / "run/api.sock").Call(&v1::Profiler::Stub::ListNodes, {});
    ASSERT_TRUE(nodes);
    EXPECT_EQ(nodes->nodes_size(), 0);
  }
  TempFolder folder_;
  const Certificates made_;
  const std::string address_;
  pid_t hub_ = 0, node_ = 0;
};

TEST_F(HubTlsTest, ANodeWithACertificateIsTaken) {
  StartHub("hub");
  StartNode("node", "ca");
  const v1::HubConnection hub = AwaitHub();
  EXPECT_TRUE(hub.connected()) << hub.error();
  Api api(Folder("hub") / "run/api.sock");
  const auto nodes = api.Call(&v1::Profiler::Stub::ListNodes, {});
  ASSERT_TRUE(nodes);
  ASSERT_EQ(nodes->nodes_size(), 1);
  EXPECT_TRUE(nodes->nodes(0).connected());
}

TEST_F(HubTlsTest, ACertificateOfAnotherAuthorityIsRefused) {
  StartHub("hub");
  StartNode("stranger", "ca");
  ExpectRefused("does not take --tls-certificate; one of: it is of another authority");
}

TEST_F(HubTlsTest, AnExpiredCertificateIsRefused) {
  StartHub("hub");
  StartNode("expired", "ca");
  ExpectRefused("--tls-certificate: this certificate expired");
}

TEST_F(HubTlsTest, ANodeTrustsNoHubOfAnotherAuthority) {
  StartHub("hub");
  StartNode("node", "other-ca");
  ExpectRefused("is not of the authority in --hub-ca");
}

TEST_F(HubTlsTest, ANodeTrustsNoHubWhoseCertificateHasExpiredOrIsOfAnotherName) {
  for (const auto& [certificate, words] :
       {std::pair("expired", " expired ("), std::pair("elsewhere", "does not have the name")}) {
    SCOPED_TRACE(certificate);
    StartHub(certificate);
    StartNode("node", "ca");
    ExpectRefused(words);
    KillAndWait(&node_, SIGKILL);
    KillAndWait(&hub_, SIGKILL);
  }
}

TEST_F(HubTlsTest, ANodeWithoutTheRoleSaysSo) {
  StartHub("hub", {"--node-names", "node-*"});
  StartNode("node", "ca");
  ExpectRefused("needs the role node, and the certificate of \"node, 127.0.0.1\" has no role");
}

TEST_F(HubTlsTest, ANodeTakesItsNewCertificateWithTheNextConnection) {
  StartHub("hub");
  StartNode("stranger", "ca");
  ExpectRefused("does not take --tls-certificate; one of: it is of another authority");
  for (const char* end : {".pem", ".key"}) {
    std::filesystem::copy_file(folder_.path() / "tls" / (std::string("node") + end),
                               folder_.path() / "tls" / (std::string("stranger") + end),
                               std::filesystem::copy_options::overwrite_existing);
  }
  v1::HubConnection hub;
  for (int tenth = 0; tenth < 100 && !hub.connected(); ++tenth) {
    absl::SleepFor(absl::Milliseconds(100));
    hub = AwaitHub();
  }
  EXPECT_TRUE(hub.connected()) << hub.error();
}

TEST_F(HubTlsTest, WithoutACertificateANodeDoesNotEvenTry) {
  const pid_t node = SpawnDaemon(Folder("node"), {}, {"--hub", address_});
  EXPECT_NE(WaitFor(node), 0);
  EXPECT_THAT(TextOf(Folder("node") / "daemon.log"),
              HasSubstr("needs --tls-certificate, --tls-key and --hub-ca"));
}

}  // namespace
}  // namespace seqpoint
