// A hub as its network meets it: peers with and without certificates, with the wrong role, with
// tokens, and hostile ones, beside one who may ask and is served all the time.
// docs/using/security.md names these tests.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "injection/abi/ring.h"
#include "seqpoint/v1/ingest.grpc.pb.h"
#include "tests/support/api.h"
#include "tests/support/certificates.h"
#include "tests/support/free_port.h"
#include "tests/support/temp_folder.h"

namespace seqpoint {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kToken = "b3d1c1a2f7904e5d8f6a7b8c9d0e1f2a";
constexpr const char* kWrongToken = "00000000000000000000000000000000";
constexpr size_t kTenMegabytes = 10'000'000;

std::string TextOf(const std::filesystem::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

// In one step, as a renewal does it.
void Replace(const std::string& file, const std::string& by) {
  std::filesystem::copy_file(by, file + ".new", std::filesystem::copy_options::overwrite_existing);
  std::filesystem::rename(file + ".new", file);
}

class SecurityTest : public testing::Test {
 protected:
  SecurityTest() : made_(folder_.path()), port_(FreePort()) {}
  void SetUp() override {
    if (!made_.Authority("ca")) GTEST_SKIP() << "openssl is not installed";
    ASSERT_TRUE(made_.Authority("other-ca"));
    for (const char* name : {"hub", "node", "reader", "admin"}) {
      ASSERT_TRUE(made_.Issue(name, {.authority = "ca"})) << name;
    }
    for (const char* file : {"hub.pem", "hub.key", "ca.pem"}) Replace(Used(file), Made(file));
  }
  ~SecurityTest() override {
    KillAndWait(&hub_, SIGKILL);
    if (HasFailure()) folder_.Keep();
  }

  std::string Made(const std::string& file) const { return (folder_.path() / file).string(); }
  // A file that the hub uses.
  std::string Used(const std::string& file) const { return Made("used-" + file); }
  std::string Log() const { return TextOf(folder_.path() / "daemon.log"); }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

  static std::vector<std::string> RolesByName() {
    return {"--node-names", "node*", "--read-names", "reader", "--control-names", "admin"};
  }
  void Start(std::vector<std::string> options = RolesByName()) {
    options.insert(options.end(),
                   {"--accept-nodes", "--listen", address(), "--tls-certificate", Used("hub.pem"),
                    "--tls-key", Used("hub.key"), "--tls-client-ca", Used("ca.pem")});
    hub_ = SpawnDaemon(folder_.path(), {}, options);
    ASSERT_TRUE(Api(folder_.path() / "run/api.sock").Call(&v1::Profiler::Stub::ListJobs, {}))
        << Log();
  }

  // Of a peer who trusts the hub's authority. An empty name: without a certificate.
  std::shared_ptr<grpc::ChannelCredentials> Tls(const std::string& name,
                                                const std::string& authority = "ca") const {
    grpc::SslCredentialsOptions options;
    options.pem_root_certs = TextOf(made_.Certificate(authority));
    if (!name.empty()) {
      options.pem_private_key = TextOf(made_.Key(name));
      options.pem_cert_chain = TextOf(made_.Certificate(name));
    }
    return grpc::SslCredentials(options);
  }
  std::shared_ptr<grpc::ChannelCredentials> Bearer(const std::string& token,
                                                   const std::string& name = "") const {
    return grpc::CompositeChannelCredentials(Tls(name), grpc::AccessTokenCredentials(token));
  }
  std::shared_ptr<grpc::Channel> Channel(
      const std::shared_ptr<grpc::ChannelCredentials>& credentials) const {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a connection of its own
    return grpc::CreateCustomChannel(address(), credentials, arguments);
  }

  template <typename Request, typename Reply>
  grpc::Status Call(const std::shared_ptr<grpc::ChannelCredentials>& credentials,
                    grpc::Status (v1::Profiler::Stub::*call)(grpc::ClientContext*, const Request&,
                                                             Reply*),
                    const Request& request) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    Reply reply;
    const auto stub = v1::Profiler::NewStub(Channel(credentials));
    return (stub.get()->*call)(&context, request, &reply);
  }
  grpc::Status Ask(const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
    return Call(credentials, &v1::Profiler::Stub::ListJobs, v1::ListJobsRequest());
  }
  grpc::Status Control(const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
    v1::PrepareJobRequest request;
    request.set_name("made-by-control");
    return Call(credentials, &v1::Profiler::Stub::PrepareJob, request);
  }
  void ExpectOthersAreServed() {
    const grpc::Status status = Ask(Tls("admin"));
    EXPECT_TRUE(status.ok()) << status.error_message();
  }

  static v1::NodeMessage Hello(const std::string& host) {
    v1::NodeMessage message;
    v1::NodeHello& hello = *message.mutable_hello();
    hello.set_node_id(std::string(16, 'n'));
    hello.set_host(host);
    hello.set_oldest_format(1);
    hello.set_newest_format(1);
    hello.set_abi_version(abi::kAbiVersion);
    hello.set_first_sequence(1);
    return message;
  }
  // Connects as a node and sends these batches. The status with which the stream ended, or OK once
  // the hub has acknowledged all of them.
  grpc::Status Report(const std::shared_ptr<grpc::ChannelCredentials>& credentials,
                      const std::vector<std::string>& frames = {},
                      const std::string& host = "host") {
    const auto stub = v1::Ingest::NewStub(Channel(credentials));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    const auto stream = stub->Connect(&context);
    v1::HubMessage reply;
    if (!stream->Write(Hello(host)) || !stream->Read(&reply)) return stream->Finish();
    v1::NodeMessage message;
    for (size_t i = 0; i < frames.size(); ++i) {
      message.mutable_batch()->set_sequence(static_cast<int64_t>(i) + 1);
      message.mutable_batch()->set_frame(frames[i]);
      if (!stream->Write(message)) return stream->Finish();
    }
    while (reply.acknowledged() < static_cast<int64_t>(frames.size())) {
      if (!stream->Read(&reply)) return stream->Finish();
    }
    context.TryCancel();
    (void)stream->Finish();
    return grpc::Status::OK;
  }

  TempFolder folder_;
  const Certificates made_;
  const int port_;
  pid_t hub_ = 0;
};

TEST_F(SecurityTest, StrangersReachNothing) {
  ASSERT_TRUE(made_.Issue("stranger", {.authority = "other-ca"}));
  ASSERT_TRUE(made_.Issue("expired", {.authority = "ca", .days = -1}));
  Start();
  const auto plaintext = grpc::InsecureChannelCredentials();
  for (const auto& [who, credentials] :
       {std::pair("of another authority", Tls("stranger")), std::pair("expired", Tls("expired")),
        std::pair("none", Tls("")), std::pair("plaintext", plaintext)}) {
    SCOPED_TRACE(who);
    EXPECT_EQ(Ask(credentials).error_code(), grpc::StatusCode::UNAVAILABLE);
    EXPECT_EQ(Control(credentials).error_code(), grpc::StatusCode::UNAVAILABLE);
    EXPECT_EQ(Report(credentials).error_code(), grpc::StatusCode::UNAVAILABLE);
    ExpectOthersAreServed();
  }
}

TEST_F(SecurityTest, Tls12IsRefused) {
  Start();
  const auto shake = [&](const std::string& version) {
    return system(("openssl s_client -connect " + address() + " -CAfile " +
                   made_.Certificate("ca") + " -cert " + made_.Certificate("admin") + " -key " +
                   made_.Key("admin") + " -alpn h2 " + version + " </dev/null >" +
                   Made("shake.log") + " 2>&1")
                      .c_str());
  };
  EXPECT_EQ(shake("-tls1_3"), 0) << TextOf(Made("shake.log"));
  EXPECT_NE(shake("-tls1_2"), 0) << TextOf(Made("shake.log"));
  EXPECT_THAT(TextOf(Made("shake.log")), HasSubstr("no peer certificate available"));
  ExpectOthersAreServed();
}

TEST_F(SecurityTest, ACertificateMayDoWhatItsRoleSays) {
  Start();
  EXPECT_TRUE(Ask(Tls("reader")).ok());
  const grpc::Status refused = Control(Tls("reader"));
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(refused.error_message(),
              HasSubstr("PrepareJob needs the role control, and the certificate of \"reader, "
                        "127.0.0.1\" has read"));
  EXPECT_TRUE(Control(Tls("admin")).ok());
  EXPECT_TRUE(Report(Tls("node")).ok());
  EXPECT_EQ(Ask(Tls("node")).error_code(), grpc::StatusCode::PERMISSION_DENIED);
  for (const char* client : {"reader", "admin"}) {
    const grpc::Status status = Report(Tls(client));
    EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED);
    EXPECT_THAT(status.error_message(), HasSubstr("needs the role node"));
  }
  EXPECT_EQ(Ask(Tls("hub")).error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(Log(), HasSubstr("refused: PrepareJob needs the role control"));
}

TEST_F(SecurityTest, WithoutRolesEachCertificateMayDoEverythingAndTheLogSaysSo) {
  Start({});
  EXPECT_TRUE(Control(Tls("reader")).ok());
  EXPECT_TRUE(Report(Tls("reader")).ok());
  EXPECT_THAT(Log(), HasSubstr("may control jobs and report as a node"));
}

TEST_F(SecurityTest, ATokenStandsForACertificateAndIsNeverLogged) {
  ASSERT_EQ(system(("printf 'read dashboard %s\\n' $(printf %s " + std::string(kToken) +
                    " | sha256sum | cut -d' ' -f1) >" + Made("tokens"))
                       .c_str()),
            0);
  std::vector<std::string> options = RolesByName();
  options.insert(options.end(), {"--tokens", Made("tokens"), "--log-level", "debug"});
  Start(options);
  EXPECT_TRUE(Ask(Bearer(kToken)).ok());
  EXPECT_EQ(Control(Bearer(kToken)).error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(Report(Bearer(kToken)).error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_TRUE(Control(Bearer(kToken, "admin")).ok());  // both
  EXPECT_EQ(Ask(Bearer(kWrongToken)).error_code(), grpc::StatusCode::UNAUTHENTICATED);
  const grpc::Status nobody = Ask(Tls(""));
  EXPECT_EQ(nobody.error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_THAT(nobody.error_message(), HasSubstr("or a token (--token-file)"));
  EXPECT_EQ(Ask(Tls("stranger", "ca")).error_code(), grpc::StatusCode::UNAUTHENTICATED);
  ExpectOthersAreServed();

  // The command line takes it from a file.
  std::ofstream(Made("token")) << kToken << "\n";
  const auto seqpoint = [&](const std::string& arguments) {
    return system(((BinaryDirectory() / "seqpoint").string() + " --server " + address() + " --ca " +
                   made_.Certificate("ca") + " " + arguments + " >" + Made("client.log") + " 2>&1")
                      .c_str());
  };
  EXPECT_EQ(seqpoint("--token-file " + Made("token") + " jobs"), 0) << TextOf(Made("client.log"));
  EXPECT_NE(seqpoint("jobs"), 0);
  EXPECT_THAT(TextOf(Made("client.log")), HasSubstr("and you show none"));
  setenv("SEQPOINT_TOKEN_FILE", Made("token").c_str(), 1);
  EXPECT_EQ(seqpoint("jobs"), 0) << TextOf(Made("client.log"));
  unsetenv("SEQPOINT_TOKEN_FILE");

  EXPECT_THAT(Log(), Not(HasSubstr(kToken)));
  EXPECT_THAT(Log(), Not(HasSubstr(kWrongToken)));
}

TEST_F(SecurityTest, TenMegabytesAreRefusedOrSkipped) {
  Start();
  v1::GetJobRequest request;
  request.set_job(std::string(kTenMegabytes, 'x'));
  const grpc::Status unknown = Call(Tls("reader"), &v1::Profiler::Stub::GetJob, request);
  EXPECT_EQ(unknown.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_LT(unknown.error_message().size(), 4096u);
  request.set_job(std::string(2 * kTenMegabytes, 'x'));
  EXPECT_EQ(Call(Tls("reader"), &v1::Profiler::Stub::GetJob, request).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  // No batch: it is skipped, since it would come again for ever.
  EXPECT_TRUE(Report(Tls("node"), {std::string(kTenMegabytes, 'x')}).ok());
  EXPECT_THAT(Log(), HasSubstr("skipped"));
  ExpectOthersAreServed();
}

TEST_F(SecurityTest, NoNameForgesALineOfTheLog) {
  Start();
  EXPECT_TRUE(Report(Tls("node"), {}, "n1\n[2026-01-01 00:00:00.000] [error] forged\x1b[2J").ok());
  EXPECT_THAT(
      Log(),
      HasSubstr(
          "node n1\\x0a[2026-01-01 00:00:00.000] [error] forged\\x1b[2J (6e6e6e6e) is connected"));
  EXPECT_THAT(Log(), Not(HasSubstr("\n[2026-01-01")));
}

// Connections to the hub from another address of this machine, each of which says `text`.
std::vector<int> Connect(int port, int count, const std::string& text) {
  sockaddr_in from = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK + 1)}};
  sockaddr_in to = {.sin_family = AF_INET,
                    .sin_port = htons(static_cast<in_port_t>(port)),
                    .sin_addr = {htonl(INADDR_LOOPBACK)}};
  std::vector<int> fds;
  for (int i = 0; i < count; ++i) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_GE(fd, 0);
    EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&from), sizeof from), 0);
    if (connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0) {
      (void)send(fd, text.data(), text.size(), MSG_NOSIGNAL);
    }
    fds.push_back(fd);
  }
  return fds;
}

TEST_F(SecurityTest, AThousandIdleConnectionsKeepNobodyOut) {
  Start();
  // They say nothing, or begin a handshake and do not go on with it.
  for (const std::string& text : {std::string(), std::string("\x16\x03\x01", 3)}) {
    const std::vector<int> idle = Connect(port_, 1000, text);
    for (int i = 0; i < 5; ++i) ExpectOthersAreServed();
    EXPECT_TRUE(Report(Tls("node")).ok());
    for (const int fd : idle) close(fd);
  }
}

TEST_F(SecurityTest, CertificatesAreReloadedAndBrokenOnesAreNot) {
  ASSERT_TRUE(made_.Issue("new-hub", {.authority = "other-ca"}));
  ASSERT_TRUE(made_.Issue("new-admin", {.authority = "other-ca"}));
  std::vector<std::string> options = {"--control-names", "admin, new-admin"};
  Start(options);
  const auto old_channel = Channel(Tls("admin"));
  const auto ask_on = [](const std::shared_ptr<grpc::Channel>& channel) {
    grpc::ClientContext context;
    v1::ListJobsReply reply;
    return v1::Profiler::NewStub(channel)->ListJobs(&context, v1::ListJobsRequest(), &reply);
  };
  ASSERT_TRUE(ask_on(old_channel).ok());

  std::ofstream(Used("hub.pem")) << "-----BEGIN CERTIFICATE-----\nhalf a file";
  ExpectOthersAreServed();
  EXPECT_THAT(Log(), HasSubstr("the certificate and key from before stay in use"));

  Replace(Used("hub.pem"), Made("new-hub.pem"));
  ExpectOthersAreServed();  // the key does not fit yet
  Replace(Used("hub.key"), Made("new-hub.key"));
  Replace(Used("ca.pem"), Made("other-ca.pem"));
  EXPECT_TRUE(Ask(Tls("new-admin", "other-ca")).ok());
  EXPECT_FALSE(Ask(Tls("admin", "other-ca")).ok());  // the old authority is none any more
  EXPECT_THAT(Log(), HasSubstr("and its key are read again"));
  EXPECT_TRUE(ask_on(old_channel).ok());  // connections stay
}

}  // namespace
}  // namespace seqpoint
