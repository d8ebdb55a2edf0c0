// A hub on standby as a client meets it: over real sockets, with a FakeBackend behind the leader.
#include "daemon/rpc/relay.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "daemon/rpc/server.h"
#include "daemon/rpc/standby.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "seqpoint/v1/ingest.grpc.pb.h"
#include "seqpoint/v1/profiler.grpc.pb.h"
#include "tests/fakes/fake_backend.h"
#include "tests/support/certificates.h"
#include "tests/support/free_port.h"
#include "tests/support/temp_folder.h"

namespace seqpoint::rpc {
namespace {

using ::testing::HasSubstr;

class RelayTest : public ::testing::Test {
 protected:
  RelayTest() : relay_({.own_address = AddressOf("standby")}), made_(folder_.path() / "tls") {}
  ~RelayTest() override { standby_.reset(); }

  std::string AddressOf(const std::string& hub) const {
    return "unix:" + (folder_.path() / hub).string();
  }
  void Start() {
    auto leader = Server::Start({.socket_path = folder_.path() / "leader"}, &backend_);
    ASSERT_TRUE(leader.ok()) << leader.status();
    leader_ = *std::move(leader);
    auto standby = Server::StartRelay({.socket_path = folder_.path() / "standby"}, &relay_);
    ASSERT_TRUE(standby.ok()) << standby.status();
    standby_ = *std::move(standby);
    ASSERT_TRUE(relay_.SetLeader(AddressOf("leader")).ok());
  }
  static std::unique_ptr<v1::Profiler::Stub> StubOf(
      const std::string& address, const std::shared_ptr<grpc::ChannelCredentials>& credentials =
                                      grpc::InsecureChannelCredentials()) {
    return v1::Profiler::NewStub(grpc::CreateChannel(address, credentials));
  }
  template <typename Request, typename Reply>
  grpc::Status Ask(v1::Profiler::Stub& stub,
                   grpc::Status (v1::Profiler::Stub::*call)(grpc::ClientContext*, const Request&,
                                                            Reply*),
                   const Request& request, Reply* reply) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    return (stub.*call)(&context, request, reply);
  }
  int Watchers() {
    v1::GetDaemonReply reply;
    Ask(*StubOf(AddressOf("leader")), &v1::Profiler::Stub::GetDaemon, v1::GetDaemonRequest(),
        &reply);
    return reply.watchers();
  }

  const TempFolder folder_;
  FakeBackend backend_;
  Relay relay_;
  const Certificates made_;
  std::unique_ptr<Server> leader_, standby_;
};

TEST_F(RelayTest, AnswersAndErrorsAreTheLeaders) {
  Start();
  const auto stub = StubOf(AddressOf("standby"));
  v1::ListIterationsRequest request;
  request.set_job("1");
  request.set_page_size(2'000);
  v1::ListIterationsReply asked, direct;
  const grpc::Status status = Ask(*stub, &v1::Profiler::Stub::ListIterations, request, &asked);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_TRUE(
      Ask(*StubOf(AddressOf("leader")), &v1::Profiler::Stub::ListIterations, request, &direct)
          .ok());
  EXPECT_EQ(asked.iterations_size(), 2'000);
  EXPECT_EQ(asked.SerializeAsString(), direct.SerializeAsString());

  v1::GetJobRequest nobody;
  nobody.set_job("nope");
  v1::GetJobReply reply;
  const grpc::Status error = Ask(*stub, &v1::Profiler::Stub::GetJob, nobody, &reply);
  EXPECT_EQ(error.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(error.error_message(), "no job \"nope\"; `seqpoint jobs` lists them");
}

TEST_F(RelayTest, StreamsPassBothWaysAndEndWithTheirCaller) {
  Start();
  const auto stub = StubOf(AddressOf("standby"));
  v1::WatchJobRequest request;
  request.set_job("1");
  request.set_min_interval_ms(1);
  grpc::ClientContext context;
  const auto watch = stub->WatchJob(&context, request);
  v1::WatchJobReply seen;
  ASSERT_TRUE(watch->Read(&seen));
  v1::Job job = backend_.JobNow("1");
  job.set_iterations(job.iterations() + 1);
  job.set_generation(job.generation() + 1);
  backend_.PutJob(job);
  while (seen.job().iterations() != job.iterations()) ASSERT_TRUE(watch->Read(&seen));
  EXPECT_EQ(Watchers(), 1);
  context.TryCancel();
  EXPECT_FALSE(watch->Read(&seen));
  watch->Finish();
  for (int i = 0; i < 500 && Watchers() != 0; ++i) absl::SleepFor(absl::Milliseconds(10));
  EXPECT_EQ(Watchers(), 0);

  // Many messages from a caller, one answer.
  grpc::ClientContext of_log;
  v1::AnalyzeReply analysis;
  const auto log = stub->Analyze(&of_log, &analysis);
  for (int piece = 0; piece < 3; ++piece) {
    v1::AnalyzeRequest rows;
    rows.mutable_log()->add_lengths(10 + piece);
    rows.mutable_log()->add_durations(1e6);
    ASSERT_TRUE(log->Write(rows));
  }
  ASSERT_TRUE(log->WritesDone());
  const grpc::Status status = log->Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(backend_.last_analysis().log().lengths_size(), 3);
}

// A connection has a limit of calls, which those who ask this hub share no more than elsewhere.
TEST_F(RelayTest, MoreCallsThanOneConnectionHasArePassedAtTheSameTime) {
  constexpr int kCalls = Relay::Line::kMostCalls + 20;
  ServerOptions options{.socket_path = folder_.path() / "leader"};
  options.max_watchers = 2 * kCalls;
  auto leader = Server::Start(options, &backend_);
  ASSERT_TRUE(leader.ok()) << leader.status();
  auto standby = Server::StartRelay({.socket_path = folder_.path() / "standby"}, &relay_);
  ASSERT_TRUE(standby.ok()) << standby.status();
  ASSERT_TRUE(relay_.SetLeader(AddressOf("leader")).ok());
  grpc::ChannelArguments own;
  own.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  v1::WatchJobRequest request;
  request.set_job("1");
  std::vector<std::unique_ptr<v1::Profiler::Stub>> stubs;
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::WatchJobReply>>> watches;
  for (int call = 0; call < kCalls; ++call) {
    if (call % 50 == 0) {
      stubs.push_back(v1::Profiler::NewStub(grpc::CreateCustomChannel(
          AddressOf("standby"), grpc::InsecureChannelCredentials(), own)));
    }
    auto& context = *contexts.emplace_back(std::make_unique<grpc::ClientContext>());
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    watches.push_back(stubs.back()->WatchJob(&context, request));
    v1::WatchJobReply seen;
    ASSERT_TRUE(watches.back()->Read(&seen)) << call;
  }
  for (auto& context : contexts) context->TryCancel();
  for (auto& watch : watches) watch->Finish();
}

TEST_F(RelayTest, ALeaderThatIsGoneEndsItsCallsAndNobodyLeadingIsSaid) {
  Start();
  const auto stub = StubOf(AddressOf("standby"));
  v1::WatchJobRequest request;
  request.set_job("1");
  grpc::ClientContext context;
  const auto watch = stub->WatchJob(&context, request);
  v1::WatchJobReply seen;
  ASSERT_TRUE(watch->Read(&seen));
  leader_.reset();
  while (watch->Read(&seen)) continue;
  EXPECT_EQ(watch->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  const std::string sentence =
      "hub " + AddressOf("leader") +
      ", which leads, cannot be reached; another takes over within seconds when it is gone: ask "
      "again";

  v1::GetDaemonReply reply;
  grpc::Status status = Ask(*stub, &v1::Profiler::Stub::GetDaemon, v1::GetDaemonRequest(), &reply);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(status.error_message(), sentence);
  for (const std::string& nobody : {std::string(), AddressOf("standby")}) {
    ASSERT_TRUE(relay_.SetLeader(nobody).ok());
    status = Ask(*stub, &v1::Profiler::Stub::GetDaemon, v1::GetDaemonRequest(), &reply);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
    EXPECT_THAT(status.error_message(), HasSubstr("no hub leads now"));
  }
}

TEST_F(RelayTest, HubsThatTakeEachOtherForTheLeaderDoNotPassACallForEver) {
  Start();
  Relay other({.own_address = AddressOf("other")});
  ASSERT_TRUE(other.SetLeader(AddressOf("standby")).ok());
  ASSERT_TRUE(relay_.SetLeader(AddressOf("other")).ok());
  const auto server = Server::StartRelay({.socket_path = folder_.path() / "other"}, &other);
  ASSERT_TRUE(server.ok()) << server.status();
  v1::GetDaemonReply reply;
  const grpc::Status status = Ask(*StubOf(AddressOf("standby")), &v1::Profiler::Stub::GetDaemon,
                                  v1::GetDaemonRequest(), &reply);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(status.error_message(),
            "no hub leads now; one takes over within seconds, ask again then")
      << "what a hub says itself passes as it is";
}

// A leader and a standby with certificates of their own. On the leader, "hub" may do everything.
class RelayTlsTest : public RelayTest {
 protected:
  void SetUp() override {
    if (!made_.Authority("ca")) GTEST_SKIP() << "openssl is not installed";
    for (const char* name : {"hub", "other", "reader", "admin", "node"}) {
      ASSERT_TRUE(made_.Issue(name, {.authority = "ca"}));
    }
  }
  TlsPem FilesOf(const std::string& name) const {
    return {.certificate = made_.Certificate(name),
            .key = made_.Key(name),
            .authorities = made_.Certificate("ca")};
  }
  ServerOptions OptionsOf(const std::string& name) const {
    ServerOptions server;
    server.tcp_address = absl::StrCat("127.0.0.1:", FreePort());
    server.tls_certificate_file = FilesOf(name).certificate;
    server.tls_key_file = FilesOf(name).key;
    server.tls_client_ca_file = FilesOf(name).authorities;
    return server;
  }
  // `name`: of the standby's certificate.
  void Start(const std::string& name) {
    ServerOptions of_leader = OptionsOf("hub"), of_standby = OptionsOf(name);
    of_leader.access = {.node_names = "hub", .read_names = "reader", .control_names = "hub"};
    of_standby.access = {.node_names = "node", .read_names = "reader", .control_names = "admin"};
    auto leader = Server::Start(of_leader, &backend_);
    ASSERT_TRUE(leader.ok()) << leader.status();
    leader_ = *std::move(leader);
    tls_relay_ = std::make_unique<Relay>(
        RelayOptions{.own_address = of_standby.tcp_address, .files = FilesOf(name)});
    auto standby = Server::StartRelay(of_standby, tls_relay_.get());
    ASSERT_TRUE(standby.ok()) << standby.status();
    standby_ = *std::move(standby);
    ASSERT_TRUE(tls_relay_->SetLeader(of_leader.tcp_address).ok());
    address_ = of_standby.tcp_address;
  }
  ~RelayTlsTest() override { standby_.reset(); }

  std::shared_ptr<grpc::Channel> ChannelOf(const std::string& name) {
    const auto read = TlsFiles::Open(FilesOf(name));
    EXPECT_TRUE(read.ok()) << read.status();
    return grpc::CreateChannel(
        address_, grpc::SslCredentials({.pem_root_certs = (*read)->pem().authorities,
                                        .pem_private_key = (*read)->pem().key,
                                        .pem_cert_chain = (*read)->pem().certificate}));
  }
  grpc::Status AskAs(const std::string& name) {
    v1::GetJobRequest question;
    question.set_job("1");
    v1::GetJobReply answer;
    return Ask(*v1::Profiler::NewStub(ChannelOf(name)), &v1::Profiler::Stub::GetJob, question,
               &answer);
  }
  grpc::Status ControlAs(const std::string& name) {
    v1::ControlRequest order;
    order.set_job("1");
    order.set_action(v1::ControlRequest::ACTION_PAUSE);
    v1::ControlReply done;
    return Ask(*v1::Profiler::NewStub(ChannelOf(name)), &v1::Profiler::Stub::Control, order, &done);
  }
  grpc::Status ReportAs(const std::string& name) {
    const auto stub = v1::Ingest::NewStub(ChannelOf(name));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    const auto stream = stub->Connect(&context);
    v1::NodeMessage hello;
    hello.mutable_hello()->set_node_id(std::string(16, 'n'));
    v1::HubMessage reply;
    stream->Write(hello);
    while (stream->Read(&reply)) continue;
    return stream->Finish();
  }

  std::unique_ptr<Relay> tls_relay_;
  std::string address_;
};

TEST_F(RelayTlsTest, ACallerHasNoMoreRolesThanItsOwnCertificate) {
  Start("hub");
  grpc::Status status = AskAs("reader");
  EXPECT_TRUE(status.ok()) << status.error_message();
  status = ControlAs("reader");
  EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED) << status.error_message();
  EXPECT_THAT(status.error_message(), HasSubstr("certificate of \"reader"));
  EXPECT_FALSE(backend_.last_control().has_value());
  EXPECT_EQ(ReportAs("admin").error_code(), grpc::StatusCode::PERMISSION_DENIED);
  status = ControlAs("admin");
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_TRUE(backend_.last_control().has_value());
}

// The leader sees the certificate of the standby, which its lists must name.
TEST_F(RelayTlsTest, AStandbyThatTheLeaderGivesNoRolesPassesNothing) {
  Start("other");
  for (const auto& [who, status] :
       {std::pair("reader", AskAs("reader")), std::pair("admin", ControlAs("admin")),
        std::pair("node", ReportAs("node"))}) {
    SCOPED_TRACE(who);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED) << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr("certificate of \"other"));
  }
  EXPECT_FALSE(backend_.last_control().has_value());
}

TEST(WhyNotFoundTest, NobodyAndAnotherDaemonAreSaid) {
  const TempFolder folder;
  const std::string path = (folder.path() / "api.sock").string();
  EXPECT_THAT(WhyNotFound("unix:" + path, {}), HasSubstr("nobody answers on " + path));
  FakeBackend backend;  // whose process is not this one
  const auto server = Server::Start({.socket_path = path}, &backend);
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_THAT(WhyNotFound("unix:" + path, {}), HasSubstr("another seqpointd answers there"));
}

}  // namespace
}  // namespace seqpoint::rpc
