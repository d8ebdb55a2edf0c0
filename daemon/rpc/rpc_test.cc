// The service as a client meets it: over real sockets, with a FakeBackend behind it.
#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "daemon/rpc/server.h"
#include "gmock/gmock.h"
#include "grpc/reflection/v1/reflection.grpc.pb.h"
#include "gtest/gtest.h"
#include "seqpoint/v1/profiler.grpc.pb.h"
#include "tests/fakes/fake_backend.h"
#include "tests/support/as_user.h"
#include "tests/support/temp_folder.h"

namespace seqpoint::rpc {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class RpcTest : public ::testing::Test {
 protected:
  RpcTest() { options_.socket_path = directory_ / "api.sock"; }
  ~RpcTest() override { server_.reset(); }

  void Start() {
    absl::StatusOr<std::unique_ptr<Server>> server = Server::Start(options_, &backend_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    stub_ = NewStub();
  }

  std::unique_ptr<v1::Profiler::Stub> NewStub() {
    // A channel of its own: channels to one address share a connection otherwise.
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetMaxReceiveMessageSize(-1);
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);  // what is not read stays at the daemon
    return v1::Profiler::NewStub(grpc::CreateCustomChannel(
        "unix:" + options_.socket_path, grpc::InsecureChannelCredentials(), arguments));
  }

  template <typename Request, typename Reply>
  grpc::Status Ask(grpc::Status (v1::Profiler::Stub::*call)(grpc::ClientContext*, const Request&,
                                                            Reply*),
                   const Request& request, Reply* reply) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    return (stub_.get()->*call)(&context, request, reply);
  }

  int Watchers() {
    v1::GetDaemonReply reply;
    EXPECT_TRUE(Ask(&v1::Profiler::Stub::GetDaemon, v1::GetDaemonRequest(), &reply).ok());
    return reply.watchers();
  }
  void WaitForWatchers(int count) {
    for (int i = 0; i < 500 && Watchers() != count; ++i) absl::SleepFor(absl::Milliseconds(10));
    EXPECT_EQ(Watchers(), count);
  }

  const TempFolder folder_;
  const std::filesystem::path& directory_ = folder_.path();
  ServerOptions options_;
  FakeBackend backend_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<v1::Profiler::Stub> stub_;
};

v1::WatchJobRequest WatchRequest(const std::string& job) {
  v1::WatchJobRequest request;
  request.set_job(job);
  request.set_min_interval_ms(1);
  return request;
}

TEST_F(RpcTest, SocketIsForOwnerAndGroupOnly) {
  Start();
  struct stat file;
  ASSERT_EQ(stat(options_.socket_path.c_str(), &file), 0);
  EXPECT_TRUE(S_ISSOCK(file.st_mode));
  EXPECT_EQ(file.st_mode & 0777, 0660u);
}

TEST_F(RpcTest, DaemonTellsItsLimits) {
  options_.max_watchers = 3;
  Start();
  v1::GetDaemonReply reply;
  ASSERT_TRUE(Ask(&v1::Profiler::Stub::GetDaemon, v1::GetDaemonRequest(), &reply).ok());
  EXPECT_EQ(reply.version(), "0.1.0");
  EXPECT_EQ(reply.api_socket(), options_.socket_path);
  EXPECT_EQ(reply.limits().max_watchers(), 3);
  EXPECT_EQ(reply.limits().max_page_size(), 10'000);
}

TEST_F(RpcTest, ErrorsOfTheBackendArriveWithTheirMessage) {
  Start();
  v1::GetJobRequest request;
  v1::GetJobReply reply;
  grpc::Status status = Ask(&v1::Profiler::Stub::GetJob, request, &reply);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("job is empty"));
  request.set_job("nope");
  status = Ask(&v1::Profiler::Stub::GetJob, request, &reply);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(status.error_message(), "no job \"nope\"; `seqpoint jobs` lists them");
}

TEST_F(RpcTest, StrangeBytesInNamesDoNotBreakAReply) {
  v1::Job job = FakeBackend::SampleJob();
  job.set_command("train \xE9");
  backend_.PutJob(job);
  Start();
  v1::GetJobRequest request;
  request.set_job("1");
  v1::GetJobReply reply;
  grpc::Status status = Ask(&v1::Profiler::Stub::GetJob, request, &reply);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(reply.job().command(), "train \xEF\xBF\xBD");
}

TEST_F(RpcTest, JobListsLeaveTheBulkOut) {
  v1::Job job = FakeBackend::SampleJob();
  job.mutable_horizon()->set_kind(v1::Horizon::KIND_HISTOGRAM);
  job.mutable_horizon()->add_histogram()->set_count(5);
  backend_.PutJob(job);
  Start();
  v1::ListJobsReply list;
  ASSERT_TRUE(Ask(&v1::Profiler::Stub::ListJobs, v1::ListJobsRequest(), &list).ok());
  ASSERT_EQ(list.jobs_size(), 1);
  EXPECT_EQ(list.jobs(0).processes_size(), 0);
  EXPECT_EQ(list.jobs(0).process_count(), 1);
  EXPECT_EQ(list.jobs(0).horizon().kind(), v1::Horizon::KIND_HISTOGRAM);
  EXPECT_EQ(list.jobs(0).horizon().histogram_size(), 0);
  v1::GetJobRequest request;
  request.set_job("gnmt@r1");
  v1::GetJobReply one;
  ASSERT_TRUE(Ask(&v1::Profiler::Stub::GetJob, request, &one).ok());
  EXPECT_EQ(one.job().processes_size(), 1);
  EXPECT_EQ(one.job().horizon().histogram_size(), 1);
}

TEST_F(RpcTest, PagesGoThroughAllIterationsAndAreBounded) {
  options_.max_page_size = 400;
  Start();
  v1::ListIterationsRequest request;
  request.set_job("1");
  request.set_page_size(1'000'000);
  int64_t next = 0;
  do {
    v1::ListIterationsReply reply;
    ASSERT_TRUE(Ask(&v1::Profiler::Stub::ListIterations, request, &reply).ok());
    EXPECT_LE(reply.iterations_size(), 400);
    for (const v1::Iteration& iteration : reply.iterations()) {
      EXPECT_EQ(iteration.number(), next++);
    }
    request.set_page_token(reply.next_page_token());
  } while (!request.page_token().empty());
  EXPECT_EQ(next, 2'500);
  request.set_page_size(-1);
  v1::ListIterationsReply reply;
  EXPECT_EQ(Ask(&v1::Profiler::Stub::ListIterations, request, &reply).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(RpcTest, ConfidenceHasADefault) {
  Start();
  v1::ProjectRequest request;
  request.set_job("1");
  v1::ProjectReply reply;
  ASSERT_TRUE(Ask(&v1::Profiler::Stub::Project, request, &reply).ok());
  EXPECT_EQ(reply.projection().confidence(), 0.95);
  EXPECT_FALSE(reply.projection().has_total());
  request.set_confidence(1.5);
  grpc::Status status = Ask(&v1::Profiler::Stub::Project, request, &reply);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("1.5"));
}

TEST_F(RpcTest, WatcherSeesTheJobAtOnceEachChangeAndTheEnd) {
  Start();
  grpc::ClientContext context;
  auto reader = stub_->WatchJob(&context, WatchRequest("gnmt"));
  v1::WatchJobReply reply;
  ASSERT_TRUE(reader->Read(&reply));
  EXPECT_EQ(reply.job().iterations(), 1'000);
  // A daemon that ends when nobody needs it must not leave a watcher, whose program may be about to
  // connect.
  EXPECT_EQ(server_->since_last_question(), absl::ZeroDuration());
  v1::Job job = FakeBackend::SampleJob();
  job.set_iterations(1'001);
  backend_.PutJob(job);
  ASSERT_TRUE(reader->Read(&reply));
  EXPECT_EQ(reply.job().iterations(), 1'001);
  // A later job of the same name is not what this watcher asked about.
  v1::Job other = FakeBackend::SampleJob();
  other.set_id("2");
  backend_.PutJob(other);
  job.set_state(v1::JOB_STATE_ENDED);
  backend_.PutJob(job);
  ASSERT_TRUE(reader->Read(&reply));
  EXPECT_EQ(reply.job().id(), "1");
  EXPECT_EQ(reply.job().state(), v1::JOB_STATE_ENDED);
  EXPECT_FALSE(reader->Read(&reply));
  EXPECT_TRUE(reader->Finish().ok());
}

TEST_F(RpcTest, AQuickJobDoesNotFloodAWatcher) {
  Start();
  grpc::ClientContext context;
  v1::WatchJobRequest request = WatchRequest("1");
  request.set_min_interval_ms(300);
  auto reader = stub_->WatchJob(&context, request);
  std::thread changer([&] {
    for (int i = 0; i < 100; ++i) {
      v1::Job job = FakeBackend::SampleJob();
      job.set_iterations(i);
      if (i == 99) job.set_state(v1::JOB_STATE_ENDED);
      backend_.PutJob(job);
      absl::SleepFor(absl::Milliseconds(2));
    }
  });
  int messages = 0;
  v1::WatchJobReply reply;
  while (reader->Read(&reply)) ++messages;
  changer.join();
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(reply.job().iterations(), 99);  // the last state is never left out
  EXPECT_LT(messages, 50);
}

TEST_F(RpcTest, TooManyWatchersAreRefusedAndPlacesComeFreeAgain) {
  options_.max_watchers = 2;
  Start();
  auto first_context = std::make_unique<grpc::ClientContext>();
  grpc::ClientContext second_context, third_context, fourth_context;
  auto first = stub_->WatchJob(first_context.get(), WatchRequest("1"));
  auto second = stub_->WatchJob(&second_context, WatchRequest("1"));
  v1::WatchJobReply reply;
  ASSERT_TRUE(first->Read(&reply));
  ASSERT_TRUE(second->Read(&reply));
  auto third = stub_->WatchJob(&third_context, WatchRequest("1"));
  EXPECT_FALSE(third->Read(&reply));
  grpc::Status status = third->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("2 watchers"));
  first_context->TryCancel();
  first->Finish();
  WaitForWatchers(1);
  auto fourth = stub_->WatchJob(&fourth_context, WatchRequest("1"));
  EXPECT_TRUE(fourth->Read(&reply));
  second_context.TryCancel();
  fourth_context.TryCancel();
}

TEST_F(RpcTest, AWatchersDeadlineEndsItAndFreesItsPlace) {
  Start();
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(300));
  auto reader = stub_->WatchJob(&context, WatchRequest("1"));
  v1::WatchJobReply reply;
  ASSERT_TRUE(reader->Read(&reply));
  EXPECT_FALSE(reader->Read(&reply));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  WaitForWatchers(0);
}

TEST_F(RpcTest, StopTellsWatchersWhy) {
  Start();
  grpc::ClientContext context;
  auto reader = stub_->WatchJob(&context, WatchRequest("1"));
  v1::WatchJobReply reply;
  ASSERT_TRUE(reader->Read(&reply));
  std::thread stopper([&] { server_->Stop(absl::Seconds(5)); });
  EXPECT_FALSE(reader->Read(&reply));
  grpc::Status status = reader->Finish();
  stopper.join();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(status.error_message(), "the daemon is ending");
}

TEST_F(RpcTest, ExportArrivesWholeInPieces) {
  backend_.SetIterations(50'000);
  Start();
  v1::ExportRequest request;
  request.set_job("1");
  request.set_format(v1::ExportRequest::FORMAT_CSV);
  grpc::ClientContext context;
  auto reader = stub_->Export(&context, request);
  v1::ExportReply reply;
  std::string text;
  int pieces = 0;
  while (reader->Read(&reply)) {
    text += reply.data();
    ++pieces;
  }
  ASSERT_TRUE(reader->Finish().ok());
  EXPECT_GT(pieces, 2);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 50'001);
  request.set_format(v1::ExportRequest::FORMAT_REPLAY);
  grpc::ClientContext replay_context;
  reader = stub_->Export(&replay_context, request);
  while (reader->Read(&reply)) text = reply.data();
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_THAT(text, ::testing::EndsWith("]}\n"));
  request.clear_format();
  grpc::ClientContext second_context;
  reader = stub_->Export(&second_context, request);
  EXPECT_FALSE(reader->Read(&reply));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(RpcTest, ALongReplayEndsWithItsClientOrTheDaemon) {
  Start();
  v1::ReplayRequest request;
  request.set_job("endless");
  // As many as the daemon takes; each ends when its client goes away.
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::thread> askers;
  for (int i = 0; i < 4; ++i) {
    grpc::ClientContext* context =
        contexts.emplace_back(std::make_unique<grpc::ClientContext>()).get();
    askers.emplace_back([this, context, request, last = i == 3] {
      v1::ReplayReply reply;
      const grpc::Status status = stub_->Replay(context, request, &reply);
      EXPECT_EQ(status.error_code(),
                last ? grpc::StatusCode::UNAVAILABLE : grpc::StatusCode::CANCELLED);
    });
  }
  backend_.AwaitReplays(4);
  v1::ReplayReply reply;
  grpc::ClientContext context;
  const grpc::Status refused = stub_->Replay(&context, request, &reply);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.error_message(),
              ::testing::HasSubstr("4 replays and what-ifs are under way"));
  for (int i = 0; i < 3; ++i) contexts[static_cast<size_t>(i)]->TryCancel();
  backend_.AwaitReplays(1);
  server_->Stop(absl::Seconds(60));  // waits for the last one, which ends
  for (std::thread& asker : askers) asker.join();
}

TEST_F(RpcTest, ALongErrorArrives) {
  Start();
  v1::GetJobRequest request;
  request.set_job(std::string(100'000, 'x'));
  v1::GetJobReply reply;
  grpc::ClientContext context;
  const grpc::Status status = stub_->GetJob(&context, request, &reply);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(status.error_message(), ::testing::EndsWith("xxx ..."));
}

// Sends the pieces of a log and returns what the service says.
template <typename Request, typename Reply>
grpc::Status Send(std::unique_ptr<grpc::ClientWriter<Request>> writer,
                  const std::vector<Request>& pieces) {
  for (const Request& piece : pieces) {
    if (!writer->Write(piece)) break;  // refused already; Finish() says why
  }
  writer->WritesDone();
  return writer->Finish();
}

class LogTest : public RpcTest {
 protected:
  grpc::Status Analyze(const std::vector<v1::AnalyzeRequest>& pieces) {
    grpc::ClientContext context;
    return Send<v1::AnalyzeRequest, v1::AnalyzeReply>(stub_->Analyze(&context, &analyzed_), pieces);
  }
  grpc::Status Import(const std::vector<v1::ImportJobRequest>& pieces) {
    grpc::ClientContext context;
    return Send<v1::ImportJobRequest, v1::ImportJobReply>(stub_->ImportJob(&context, &imported_),
                                                          pieces);
  }
  // Both calls refuse the log for the same reason.
  void ExpectRefused(const v1::IterationLog& log, const std::string& reason) {
    v1::AnalyzeRequest analyze;
    *analyze.mutable_log() = log;
    v1::ImportJobRequest import;
    import.set_name("log");
    *import.mutable_log() = log;
    for (const grpc::Status& status : {Analyze({analyze}), Import({import})}) {
      EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << reason;
      EXPECT_THAT(status.error_message(), AllOf(StartsWith("log: "), HasSubstr(reason)));
    }
    // The other machine's log is looked at as closely.
    *analyze.mutable_log() = Rows(0, 5);
    *analyze.mutable_against() = log;
    const grpc::Status status = Analyze({analyze});
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << reason;
    EXPECT_THAT(status.error_message(), AllOf(StartsWith("against: "), HasSubstr(reason)));
  }
  static v1::IterationLog Rows(int begin, int end) {
    v1::IterationLog log;
    for (int i = begin; i < end; ++i) {
      log.add_lengths(10 + i % 3);
      log.add_second_lengths(i);
      log.add_durations(1e6 + i);
      log.add_groups(i / 100);
    }
    return log;
  }

  v1::AnalyzeReply analyzed_;
  v1::ImportJobReply imported_;
};

TEST_F(LogTest, ThePiecesOfALogAreOne) {
  Start();
  std::vector<v1::AnalyzeRequest> pieces(3);
  pieces[0].set_points(7);
  pieces[0].set_target_error(0.25);
  pieces[0].mutable_horizon()->set_kind(v1::Horizon::KIND_ITERATIONS);
  pieces[0].mutable_horizon()->set_iterations(2'000);
  *pieces[0].mutable_log() = Rows(0, 400);
  *pieces[0].mutable_against() = Rows(0, 100);
  *pieces[1].mutable_against() = Rows(100, 150);  // the other log goes on alone
  *pieces[2].mutable_log() = Rows(400, 1'000);
  grpc::Status status = Analyze(pieces);
  ASSERT_TRUE(status.ok()) << status.error_message();
  const v1::AnalyzeRequest request = backend_.last_analysis();
  EXPECT_EQ(request.log().SerializeAsString(), Rows(0, 1'000).SerializeAsString());
  EXPECT_EQ(request.against().SerializeAsString(), Rows(0, 150).SerializeAsString());
  EXPECT_EQ(request.points(), 7);
  EXPECT_EQ(request.target_error(), 0.25);
  EXPECT_EQ(request.horizon().iterations(), 2'000);
  EXPECT_EQ(request.confidence(), 0.95);
  EXPECT_EQ(analyzed_.iterations(), 1'000);
  EXPECT_EQ(analyzed_.against_iterations(), 150);

  std::vector<v1::ImportJobRequest> import(2);
  import[0].set_name("steps");
  import[0].set_source("steps.csv");
  *import[0].mutable_log() = Rows(0, 400);
  *import[1].mutable_log() = Rows(400, 1'000);
  status = Import(import);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(backend_.last_import().log().SerializeAsString(), Rows(0, 1'000).SerializeAsString());
  EXPECT_EQ(imported_.job().name(), "steps");
  EXPECT_EQ(imported_.job().iterations(), 1'000);
}

TEST_F(LogTest, SendersWhoNeverEndKeepNobodyElseWaiting) {
  Start();
  v1::AnalyzeRequest piece;
  *piece.mutable_log() = Rows(0, 10);
  {
    constexpr int kSenders = 200;  // more than there are threads
    std::vector<grpc::ClientContext> contexts(kSenders);
    std::vector<std::unique_ptr<grpc::ClientWriter<v1::AnalyzeRequest>>> writers;
    for (grpc::ClientContext& context : contexts) {
      writers.push_back(stub_->Analyze(&context, &analyzed_));
      writers.back()->Write(piece);
    }
    const auto exhausted = [&] { return Analyze({piece}).error_code(); };
    for (int i = 0; i < 500 && exhausted() != grpc::StatusCode::RESOURCE_EXHAUSTED; ++i) {
      absl::SleepFor(absl::Milliseconds(10));
    }
    EXPECT_EQ(exhausted(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    v1::ListJobsReply reply;
    grpc::Status status;
    for (int i = 0; i < 500; ++i) {  // until those that are refused have left
      status = Ask(&v1::Profiler::Stub::ListJobs, v1::ListJobsRequest(), &reply);
      if (status.ok()) break;
      absl::SleepFor(absl::Milliseconds(10));
    }
    EXPECT_TRUE(status.ok()) << status.error_message();
    for (grpc::ClientContext& context : contexts) context.TryCancel();
    for (auto& writer : writers) writer->Finish();
  }
  // Their places come free again.
  grpc::Status status;
  for (int i = 0; i < 500 && !(status = Analyze({piece})).ok(); ++i) {
    absl::SleepFor(absl::Milliseconds(10));
  }
  EXPECT_TRUE(status.ok()) << status.error_message();
}

// A daemon that ends when nobody needs it must know.
TEST_F(LogTest, AQuestionLastsUntilItsAnswer) {
  Start();
  EXPECT_EQ(server_->since_last_question(), absl::InfiniteDuration());
  grpc::ClientContext context;
  auto writer = stub_->Analyze(&context, &analyzed_);
  v1::AnalyzeRequest piece;
  *piece.mutable_log() = Rows(0, 10);
  ASSERT_TRUE(writer->Write(piece));
  for (int i = 0; i < 500 && server_->since_last_question() > absl::ZeroDuration(); ++i) {
    absl::SleepFor(absl::Milliseconds(10));
  }
  EXPECT_EQ(server_->since_last_question(), absl::ZeroDuration());
  writer->WritesDone();
  EXPECT_TRUE(writer->Finish().ok());
  for (int i = 0; i < 500 && server_->since_last_question() == absl::ZeroDuration(); ++i) {
    absl::SleepFor(absl::Milliseconds(10));
  }
  EXPECT_GT(server_->since_last_question(), absl::ZeroDuration());
  EXPECT_LT(server_->since_last_question(), absl::InfiniteDuration());
}

TEST_F(LogTest, HalfALogIsNone) {
  Start();
  const auto send_half = [&](v1::Profiler::Stub& stub, grpc::ClientContext* context) {
    std::unique_ptr<grpc::ClientWriter<v1::ImportJobRequest>> writer =
        stub.ImportJob(context, &imported_);
    v1::ImportJobRequest piece;
    piece.set_name("half");
    *piece.mutable_log() = Rows(0, 1'000);
    EXPECT_TRUE(writer->Write(piece));
    EXPECT_TRUE(writer->Write(piece));
    return writer;
  };
  // The sender goes away.
  for (int i = 0; i < 20; ++i) {
    grpc::ClientContext context;
    auto writer = send_half(*NewStub(), &context);
    absl::SleepFor(absl::Milliseconds(5));  // until the pieces are there
    context.TryCancel();
    EXPECT_EQ(writer->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  // The daemon ends meanwhile.
  grpc::ClientContext context;
  auto writer = send_half(*stub_, &context);
  server_.reset();
  EXPECT_FALSE(writer->Finish().ok());
  EXPECT_EQ(backend_.last_import().log().lengths_size(), 0);
}

TEST_F(LogTest, ALogThatCannotBeIsRefusedWithFieldRowAndValue) {
  Start();
  ExpectRefused({}, "it has no iteration");
  v1::IterationLog log = Rows(0, 10);
  log.add_lengths(3);
  ExpectRefused(log, "have 11, 10, 10 and 10 entries");
  log = Rows(0, 10);
  log.mutable_durations()->RemoveLast();
  ExpectRefused(log, "lengths, second_lengths, durations and groups have 10, 10, 9 and 10 entries");
  log = Rows(0, 10);
  log.add_groups(0);
  ExpectRefused(log, "have 10, 10, 10 and 11 entries");
  log = Rows(0, 10);
  log.mutable_second_lengths()->RemoveLast();
  ExpectRefused(log, "have 10, 9, 10 and 10 entries");
  log = Rows(0, 10);
  log.set_lengths(4, -5);
  ExpectRefused(log, "lengths[4] = -5");
  log.set_lengths(4, (int64_t{1} << 53) + 1);
  ExpectRefused(log, "lengths[4] = 9007199254740993");
  log = Rows(0, 10);
  log.set_second_lengths(9, -1);
  ExpectRefused(log, "second_lengths[9] = -1");
  for (const auto& [value, text] : {std::pair(-3.5, "-3.5"),
                                    {NAN, "nan"},
                                    {INFINITY, "inf"},
                                    {1e19, "1e+19"},
                                    {1e-200, "1e-200"}}) {
    log = Rows(0, 10);
    log.set_durations(7, value);
    ExpectRefused(log, absl::StrCat("durations[7] = ", text, " is not a positive number"));
  }
  log = Rows(0, 10);
  log.set_groups(2, -1);
  ExpectRefused(log, "groups[2] = -1 is not in 0 ... 9");
  log.set_groups(2, 10);
  ExpectRefused(log, "groups[2] = 10 is not in 0 ... 9");
  EXPECT_EQ(backend_.last_analysis().log().lengths_size(), 0);
  EXPECT_EQ(backend_.last_import().log().lengths_size(), 0);
}

TEST_F(LogTest, ATimeMayBeUnknownInAnImportAlone) {
  Start();
  v1::AnalyzeRequest analyze;
  v1::ImportJobRequest import;
  import.set_name("log");
  for (v1::IterationLog* log : {analyze.mutable_log(), import.mutable_log()}) {
    *log = Rows(0, 10);
    log->set_durations(7, 0);
  }
  EXPECT_THAT(Analyze({analyze}).error_message(), HasSubstr("durations[7] = 0 is not a positive"));
  EXPECT_TRUE(Import({import}).ok());
  for (int i = 0; i < 10; ++i) import.mutable_log()->set_durations(i, 0);
  EXPECT_EQ(Import({import}).error_message(), "log: none of its iterations has a time");
}

TEST_F(LogTest, WithoutAPieceThereIsNothingToAnswer) {
  Start();
  for (const grpc::Status& status : {Analyze({}), Import({})}) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_EQ(status.error_message(), "log: it has no iteration");
  }
}

TEST_F(LogTest, WhatIsAskedOfALogIsCheckedToo) {
  Start();
  v1::AnalyzeRequest good;
  *good.mutable_log() = Rows(0, 10);
  const auto refused = [&](const std::string& field, auto change) {
    v1::AnalyzeRequest bad = good;
    change(bad);
    const grpc::Status status = Analyze({bad});
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << field;
    EXPECT_THAT(status.error_message(), HasSubstr(field));
  };
  refused("points = -1", [](auto& r) { r.set_points(-1); });
  refused("points = 1000001", [](auto& r) { r.set_points(1'000'001); });
  refused("target_error = 1.5", [](auto& r) { r.set_target_error(1.5); });
  refused("target_error = nan", [](auto& r) { r.set_target_error(NAN); });
  refused("confidence = 1", [](auto& r) { r.set_confidence(1); });
  refused("confidence = nan", [](auto& r) { r.set_confidence(NAN); });
  for (const auto& [field, change] :
       std::vector<std::pair<std::string, std::function<void(v1::GetPlaylistRequest&)>>>{
           {"points = -1", [](auto& r) { r.set_points(-1); }},
           {"target_error = 1.5", [](auto& r) { r.set_target_error(1.5); }},
           {"confidence = 1", [](auto& r) { r.set_confidence(1); }}}) {
    v1::GetPlaylistRequest bad;
    bad.set_job("1");
    change(bad);
    v1::GetPlaylistReply reply;
    const grpc::Status status = Ask(&v1::Profiler::Stub::GetPlaylist, bad, &reply);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << field;
    EXPECT_THAT(status.error_message(), HasSubstr(field));
  }
  refused("horizon: iterations is 0",
          [](auto& r) { r.mutable_horizon()->set_kind(v1::Horizon::KIND_ITERATIONS); });
  EXPECT_TRUE(Analyze({good}).ok());
  v1::ImportJobRequest import;
  *import.mutable_log() = Rows(0, 10);
  EXPECT_THAT(Import({import}).error_message(), HasSubstr("name is empty"));
  import.set_name("a@b");
  EXPECT_THAT(Import({import}).error_message(), HasSubstr("contains \"@\""));
}

// No column may be sent without end, whether it is ever used or not.
TEST_F(LogTest, EndlessColumnsAreRefused) {
  Start();
  v1::IterationLog groups, lengths;
  groups.mutable_groups()->Resize(1 << 20, 0);
  lengths.mutable_second_lengths()->Resize(1 << 20, 0);
  v1::AnalyzeRequest first, second;
  *first.mutable_log() = groups;
  *second.mutable_against() = lengths;
  for (const v1::AnalyzeRequest& piece : {first, second}) {
    const grpc::Status status = Analyze(std::vector<v1::AnalyzeRequest>(5, piece));
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_THAT(status.error_message(), HasSubstr("has more than 4194304 "));
  }
}

class TraceTest : public RpcTest {
 protected:
  grpc::Status Import(const std::vector<v1::ImportTraceRequest>& pieces) {
    grpc::ClientContext context;
    return Send<v1::ImportTraceRequest, v1::ImportTraceReply>(
        stub_->ImportTrace(&context, &imported_), pieces);
  }
  static v1::ImportTraceRequest Piece(const std::string& file, const std::string& data) {
    v1::ImportTraceRequest piece;
    piece.set_name("resnet");
    piece.set_file(file);
    piece.set_data(data);
    return piece;
  }

  v1::ImportTraceReply imported_;
};

TEST_F(TraceTest, FilesArriveInTheirPieces) {
  Start();
  v1::ImportTraceRequest first = Piece("", "");  // the first one may begin no file yet
  first.set_run_id("r9");
  first.set_marker("step (\\d+)");
  const std::string large(1 << 20, 'x');
  const grpc::Status status = Import({first, Piece("rank0.json", "{"), Piece("", large),
                                      Piece("rank1.json", ""), Piece("", "["), Piece("", "]")});
  ASSERT_TRUE(status.ok()) << status.error_message();
  const FakeBackend::TraceImport import = backend_.last_trace_import();
  EXPECT_EQ(import.name, "resnet");
  EXPECT_EQ(import.run_id, "r9");
  EXPECT_EQ(import.marker, "step (\\d+)");
  ASSERT_EQ(import.files.size(), 2u);
  EXPECT_EQ(import.files[0], std::pair(std::string("rank0.json"), "{" + large));
  EXPECT_EQ(import.files[1], std::pair(std::string("rank1.json"), std::string("[]")));
  EXPECT_EQ(imported_.traces_size(), 2);
  EXPECT_EQ(imported_.job().name(), "resnet");
}

TEST_F(TraceTest, WhatCannotBeIsRefused) {
  options_.max_request_bytes = 100'000;
  Start();
  const auto refused = [&](const std::vector<v1::ImportTraceRequest>& pieces,
                           const std::string& message,
                           grpc::StatusCode code = grpc::StatusCode::INVALID_ARGUMENT) {
    const grpc::Status status = Import(pieces);
    EXPECT_EQ(status.error_code(), code) << message;
    EXPECT_THAT(status.error_message(), HasSubstr(message));
  };
  refused({}, "no file has begun");
  refused({Piece("", "")}, "no file has begun");
  refused({Piece("", "{}")}, "data comes before a file");
  v1::ImportTraceRequest bad = Piece("t.json", "{}");
  bad.clear_name();
  refused({bad}, "name is empty");
  bad.set_name("a@b");
  refused({bad}, "contains \"@\"");
  bad = Piece("t.json", "{}");
  bad.set_marker(std::string(5'000, 'x'));
  refused({bad}, "marker has 5000 bytes; it may have 4096");
  refused({Piece("a", "{"), Piece(std::string(5'000, 'x'), "{")}, "file has 5000 bytes");
  refused({Piece("a", "{"), Piece("", std::string(200'000, 'x'))}, "larger than max",
          grpc::StatusCode::RESOURCE_EXHAUSTED);
  // The backend's own sentence, while pieces still come.
  refused(std::vector<v1::ImportTraceRequest>(100, Piece("a.txt", "not a trace")),
          "a.txt is not a trace");
  EXPECT_EQ(backend_.last_trace_import().name, "");
}

TEST_F(TraceTest, HalfATraceIsNone) {
  Start();
  const auto send_half = [&](v1::Profiler::Stub& stub, grpc::ClientContext* context) {
    auto writer = stub.ImportTrace(context, &imported_);
    EXPECT_TRUE(writer->Write(Piece("t.json", "{")));
    EXPECT_TRUE(writer->Write(Piece("", "\"traceEvents\"")));
    return writer;
  };
  for (int i = 0; i < 20; ++i) {
    grpc::ClientContext context;
    auto writer = send_half(*NewStub(), &context);
    absl::SleepFor(absl::Milliseconds(5));  // until the pieces are there
    context.TryCancel();
    EXPECT_EQ(writer->Finish().error_code(), grpc::StatusCode::CANCELLED);
    // Until its place is free.
    for (int w = 0; w < 500 && server_->since_last_question() == absl::ZeroDuration(); ++w) {
      absl::SleepFor(absl::Milliseconds(10));
    }
  }
  grpc::ClientContext context;
  auto writer = send_half(*stub_, &context);
  server_.reset();
  EXPECT_FALSE(writer->Finish().ok());
  EXPECT_EQ(backend_.last_trace_import().name, "");
}

TEST_F(TraceTest, SendersWhoNeverEndKeepNobodyElseWaiting) {
  Start();
  std::vector<grpc::ClientContext> contexts(4);
  std::vector<std::unique_ptr<grpc::ClientWriter<v1::ImportTraceRequest>>> writers;
  for (grpc::ClientContext& context : contexts) {
    writers.push_back(stub_->ImportTrace(&context, &imported_));
    writers.back()->Write(Piece("t.json", "{"));
  }
  backend_.AwaitTraces(4);
  EXPECT_EQ(Import({Piece("t.json", "{")}).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  v1::ReplayRequest replay;
  replay.set_job("1");
  v1::ReplayReply reply;
  EXPECT_TRUE(Ask(&v1::Profiler::Stub::Replay, replay, &reply).ok());
  EXPECT_EQ(reply.iterations_size(), 60);
  for (grpc::ClientContext& context : contexts) context.TryCancel();
  for (auto& writer : writers) writer->Finish();
  backend_.AwaitTraces(0);
  // The service counts a little longer.
  while (Import({Piece("t.json", "{")}).error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED) {
  }
}

TEST_F(RpcTest, AWhatIfIsAChangeOrAList) {
  Start();
  v1::WhatIfRequest good;
  good.set_job("1");
  good.add_changes()->set_preset("amp,compute=4");
  good.add_changes()->set_text("capture launches");
  v1::WhatIfReply reply;
  ASSERT_TRUE(Ask(&v1::Profiler::Stub::WhatIf, good, &reply).ok());
  EXPECT_EQ(reply.confidence(), 0.95);
  EXPECT_EQ(reply.answers_size(), 1);
  const auto refused = [&](const std::string& message, auto change) {
    v1::WhatIfRequest bad = good;
    change(bad);
    const grpc::Status status = Ask(&v1::Profiler::Stub::WhatIf, bad, &reply);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << message;
    EXPECT_THAT(status.error_message(), HasSubstr(message));
  };
  const std::string large(65'537, 'x');
  refused("job is empty", [](auto& r) { r.clear_job(); });
  refused("changes is empty", [](auto& r) { r.clear_changes(); });
  refused("list goes without changes", [](auto& r) { r.set_list(true); });
  refused("changes[1]: neither", [](auto& r) { r.mutable_changes(1)->clear_text(); });
  refused("changes[0]: give", [](auto& r) { r.mutable_changes(0)->set_text("capture launches"); });
  refused("changes[1].text has 65537 bytes; it may have 65536",
          [&](auto& r) { r.mutable_changes(1)->set_text(large); });
  refused("changes[0].preset has", [&](auto& r) { r.mutable_changes(0)->set_preset(large); });
  refused("changes[0].parameters has",
          [&](auto& r) { r.mutable_changes(0)->set_parameters(large); });
  refused("changes[0].name has", [&](auto& r) { r.mutable_changes(0)->set_name(large); });
  refused("there are 65 changes", [](auto& r) {
    while (r.changes_size() < 65) r.add_changes()->set_preset("amp");
  });
  refused("confidence = 2", [](auto& r) { r.set_confidence(2); });
  refused("horizon: iterations is 0",
          [](auto& r) { r.mutable_horizon()->set_kind(v1::Horizon::KIND_ITERATIONS); });
  good.clear_changes();
  good.set_list(true);
  ASSERT_TRUE(Ask(&v1::Profiler::Stub::WhatIf, good, &reply).ok());
  EXPECT_EQ(reply.answers_size(), 3);
  good.set_job("nope");
  EXPECT_EQ(Ask(&v1::Profiler::Stub::WhatIf, good, &reply).error_code(),
            grpc::StatusCode::NOT_FOUND);
}

TEST_F(RpcTest, AReplayNeedsAJob) {
  Start();
  v1::ReplayRequest request;
  v1::ReplayReply reply;
  EXPECT_EQ(Ask(&v1::Profiler::Stub::Replay, request, &reply).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  request.set_job("nope");
  EXPECT_EQ(Ask(&v1::Profiler::Stub::Replay, request, &reply).error_code(),
            grpc::StatusCode::NOT_FOUND);
}

TEST_F(RpcTest, TooLargeARequestIsRefused) {
  options_.max_request_bytes = 10'000;
  Start();
  v1::GetJobRequest request;
  request.set_job(std::string(20'000, 'x'));
  v1::GetJobReply reply;
  EXPECT_EQ(Ask(&v1::Profiler::Stub::GetJob, request, &reply).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  request.set_job("1");
  EXPECT_TRUE(Ask(&v1::Profiler::Stub::GetJob, request, &reply).ok());
}

TEST_F(RpcTest, HealthAndReflectionAnswer) {
  Start();
  // Raw calls: the client side of both protocols is not part of this program.
  grpc::GenericStub stub(
      grpc::CreateChannel("unix:" + options_.socket_path, grpc::InsecureChannelCredentials()));
  auto call = [&](const std::string& method, const std::string& bytes) -> std::string {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
    grpc::CompletionQueue queue;
    auto stream = stub.PrepareCall(&context, method, &queue);
    void* tag = nullptr;
    bool done = false;
    grpc::Slice slice(bytes);
    grpc::ByteBuffer reply;
    stream->StartCall(nullptr);
    queue.Next(&tag, &done);
    stream->WriteLast(grpc::ByteBuffer(&slice, 1), grpc::WriteOptions(), nullptr);
    queue.Next(&tag, &done);
    stream->Read(&reply, nullptr);
    queue.Next(&tag, &done);
    grpc::Slice out;
    return done && reply.DumpToSingleSlice(&out).ok() ? std::string(out.begin(), out.end())
                                                      : "no reply";
  };
  // HealthCheckRequest{service} -> HealthCheckResponse{status: SERVING}
  std::string name = "seqpoint.v1.Profiler";
  std::string request = std::string("\x0a") + static_cast<char>(name.size()) + name;
  EXPECT_EQ(call("/grpc.health.v1.Health/Check", request), std::string("\x08\x01"));
  // ServerReflectionRequest{list_services: ""}: one message of the stream is enough.
  EXPECT_THAT(call("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
                   std::string("\x3a\x00", 2)),
              HasSubstr("seqpoint.v1.Profiler"));
}

TEST_F(RpcTest, ALivingDaemonsSocketIsNotTaken) {
  Start();
  FakeBackend other;
  absl::StatusOr<std::unique_ptr<Server>> second = Server::Start(options_, &other);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists) << second.status();
  EXPECT_EQ(Watchers(), 0);  // the first one still answers
}

TEST_F(RpcTest, AStaleSocketIsReplacedAnotherFileIsNot) {
  int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address = {.sun_family = AF_UNIX};
  strcpy(address.sun_path, options_.socket_path.c_str());
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  close(fd);  // nobody listens: what kill -9 leaves behind
  Start();
  EXPECT_EQ(Watchers(), 0);
  server_.reset();
  std::filesystem::remove(options_.socket_path);
  std::ofstream(options_.socket_path) << "precious";
  absl::Status status = Server::Start(options_, &backend_).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("not a socket"));
}

TEST_F(RpcTest, AddressesThatCannotBeAreNamed) {
  options_.socket_path = directory_ / std::string(200, 'x');
  EXPECT_THAT(std::string(Server::Start(options_, &backend_).status().message()),
              HasSubstr("the system allows 107"));
  options_.socket_path = directory_ / "missing" / "api.sock";
  EXPECT_THAT(std::string(Server::Start(options_, &backend_).status().message()),
              HasSubstr("missing/api.sock"));
  options_.socket_path.clear();
  EXPECT_TRUE(absl::IsInvalidArgument(Server::Start(options_, &backend_).status()));
}

TEST_F(RpcTest, TcpIsOpenedForThoseWhoShowACertificate) {
  options_.tcp_address = "localhost:0";
  absl::Status status = Server::Start(options_, &backend_).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("needs TLS"));
  options_.tls_certificate_file = directory_ / "cert.pem";
  options_.tls_key_file = directory_ / "key.pem";
  status = Server::Start(options_, &backend_).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("would serve everybody"));
  options_.tls_client_ca_file = options_.tls_certificate_file;
  status = Server::Start(options_, &backend_).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("cert.pem"));

  std::string make_key = absl::StrCat(
      "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj ",
      "/CN=localhost -addext subjectAltName=DNS:localhost -keyout ", options_.tls_key_file,
      " -out ", options_.tls_certificate_file, " 2>/dev/null");
  if (system(make_key.c_str()) != 0) GTEST_SKIP() << "openssl is not installed";
  Start();
  ASSERT_GT(server_->tcp_port(), 0);
  const auto read = [](const std::string& path) {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  };
  grpc::SslCredentialsOptions nobody, somebody;
  nobody.pem_root_certs = somebody.pem_root_certs = read(options_.tls_certificate_file);
  somebody.pem_cert_chain = somebody.pem_root_certs;
  somebody.pem_private_key = read(options_.tls_key_file);
  std::string address = absl::StrCat("localhost:", server_->tcp_port());
  for (auto [credentials, works] : {std::pair(grpc::SslCredentials(somebody), true),
                                    std::pair(grpc::SslCredentials(nobody), false),
                                    std::pair(grpc::InsecureChannelCredentials(), false)}) {
    stub_ = v1::Profiler::NewStub(grpc::CreateChannel(address, credentials));
    v1::GetDaemonReply reply;
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(5));
    EXPECT_EQ(stub_->GetDaemon(&context, v1::GetDaemonRequest(), &reply).ok(), works);
  }
}

// Connections that nothing is said on.
std::vector<int> ConnectIdly(const std::string& path, int count) {
  sockaddr_un address = {.sun_family = AF_UNIX};
  strcpy(address.sun_path, path.c_str());
  std::vector<int> fds;
  for (int i = 0; i < count; ++i) {
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (fd < 0) break;
    connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address));
    fds.push_back(fd);
  }
  return fds;
}

TEST_F(RpcTest, ThoseWhoConnectAndSayNothingKeepNobodyOut) {
  Start();
  const std::vector<int> idle = ConnectIdly(options_.socket_path, 300);
  EXPECT_EQ(Watchers(), 0);
  for (const int fd : idle) close(fd);
  EXPECT_EQ(Watchers(), 0);
}

TEST_F(RpcTest, WhenDescriptorsWereUsedUpItAnswersAgain) {
  Start();
  rlimit before = {};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit low = {.rlim_cur = 100, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &low);
  const std::vector<int> idle = ConnectIdly(options_.socket_path, 1000);
  EXPECT_LT(idle.size(), 100u);
  absl::SleepFor(absl::Milliseconds(300));  // so that it tries to take them
  for (const int fd : idle) close(fd);
  EXPECT_EQ(Watchers(), 0);
  setrlimit(RLIMIT_NOFILE, &before);
}

// One process has a quarter of the places.
TEST_F(RpcTest, MoreClientsThanThereArePlacesForWaitForOne) {
  options_.max_connections = 8;
  Start();
  const auto ask = [](v1::Profiler::Stub& stub) {
    grpc::ClientContext context;
    context.set_wait_for_ready(true);
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    v1::GetDaemonReply reply;
    return stub.GetDaemon(&context, v1::GetDaemonRequest(), &reply);
  };
  auto first = NewStub(), second = NewStub(), third = NewStub();
  EXPECT_TRUE(ask(*first).ok());
  EXPECT_TRUE(ask(*second).ok());
  grpc::Status status;
  std::thread waiting([&] { status = ask(*third); });
  absl::SleepFor(absl::Milliseconds(300));
  first.reset();
  waiting.join();
  EXPECT_TRUE(status.ok()) << status.error_message();
}

// The first bytes of an HTTP/2 client: its preface, and its settings, which are empty.
std::string BeginOfHttp2() {
  return absl::StrCat("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", std::string("\0\0\0\4\0\0\0\0\0", 9));
}

TEST_F(RpcTest, AProcessThatTakesEachPlaceItGetsKeepsNoOtherOut) {
  options_.max_connections = 8;
  options_.ping_interval = absl::Hours(1);  // they stay for as long as the test
  Start();
  int ready[2], end[2];
  ASSERT_EQ(pipe(ready), 0);
  ASSERT_EQ(pipe(end), 0);
  const std::string begin = BeginOfHttp2(), path = options_.socket_path;
  const pid_t child = fork();
  if (child == 0) {
    char byte = 0;
    close(end[1]);
    for (const int fd : ConnectIdly(path, 20)) (void)!write(fd, begin.data(), begin.size());
    (void)!write(ready[1], &byte, 1);
    (void)!read(end[0], &byte, 1);
    _exit(0);
  }
  char byte;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  EXPECT_EQ(Watchers(), 0);
  for (const int fd : {ready[0], ready[1], end[0], end[1]}) close(fd);
  waitpid(child, nullptr, 0);
}

TEST_F(RpcTest, ClientsWhoTakeNothingAreCutOffAndOthersAreServed) {
  options_.write_patience = absl::Milliseconds(200);
  backend_.SetIterations(50'000);
  Start();
  v1::ExportRequest request;
  request.set_job("1");
  request.set_format(v1::ExportRequest::FORMAT_CSV);
  // More than there are threads that answer.
  constexpr int kReaders = 120;
  std::vector<std::unique_ptr<v1::Profiler::Stub>> stubs;
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::ExportReply>>> readers;
  for (int i = 0; i < kReaders; ++i) {
    stubs.push_back(NewStub());
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    readers.push_back(stubs.back()->Export(contexts.back().get(), request));
  }
  bool served = false;
  for (int i = 0; i < 200 && !served; ++i) {
    v1::GetDaemonReply reply;
    served = Ask(&v1::Profiler::Stub::GetDaemon, v1::GetDaemonRequest(), &reply).ok();
  }
  EXPECT_TRUE(served);
  int cut_off = 0;
  v1::ExportReply reply;
  for (const auto& reader : readers) {
    while (reader->Read(&reply)) continue;
    cut_off += reader->Finish().ok() ? 0 : 1;
  }
  EXPECT_GT(cut_off, 0);
}

TEST_F(RpcTest, APeerWhoGivesNoSignOfLifeIsClosed) {
  options_.ping_interval = absl::Milliseconds(200);
  options_.pong_patience = absl::Milliseconds(200);
  Start();
  // It begins as HTTP/2 does, and is silent then: it has gone, or its machine has.
  const std::vector<int> gone = ConnectIdly(options_.socket_path, 1);
  const std::string begin = BeginOfHttp2();
  ASSERT_EQ(write(gone[0], begin.data(), begin.size()), static_cast<ssize_t>(begin.size()));
  pollfd wait = {.fd = gone[0], .events = POLLIN, .revents = 0};
  char bytes[4096];
  ssize_t got = 1;
  while (got > 0 && poll(&wait, 1, 20'000) == 1) got = read(gone[0], bytes, sizeof bytes);
  EXPECT_EQ(got, 0);
  close(gone[0]);
  EXPECT_EQ(Watchers(), 0);  // one who answers stays
}

TEST_F(RpcTest, UsersWhoAreListedMayConnect) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  chmod(directory_.c_str(), 0711);
  options_.allowed_users = {1234};
  Start();
  const auto is_served = [&](uid_t user) {
    std::vector<int> fds;
    AsUser(user, [&] { fds = ConnectIdly(options_.socket_path, 1); });
    const std::string begin = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    (void)send(fds[0], begin.data(), begin.size(), MSG_NOSIGNAL);
    pollfd wait = {.fd = fds[0], .events = POLLIN, .revents = 0};
    char byte;
    EXPECT_EQ(poll(&wait, 1, 20'000), 1);
    const bool served = recv(fds[0], &byte, 1, 0) == 1;
    close(fds[0]);
    return served;
  };
  EXPECT_TRUE(is_served(1234));
  EXPECT_TRUE(is_served(0));
  EXPECT_FALSE(is_served(1235));
  EXPECT_EQ(Watchers(), 0);
}

TEST_F(RpcTest, TextsOfRequestsAreBounded) {
  Start();
  const std::string huge(1 << 20, 'x');
  v1::PrepareJobReply reply;
  const auto refused = [&](const v1::PrepareJobRequest& request) {
    const grpc::Status status = Ask(&v1::Profiler::Stub::PrepareJob, request, &reply);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    return status.error_message();
  };
  v1::PrepareJobRequest name, run_id, sets, source;
  name.set_name(huge);
  EXPECT_THAT(refused(name), HasSubstr("name: 1048576 bytes"));
  run_id.set_name("j");
  run_id.set_run_id(huge);
  EXPECT_THAT(refused(run_id), HasSubstr("run_id: 1048576 bytes"));
  sets.set_name("j");
  sets.add_metric_sets(huge);
  EXPECT_THAT(refused(sets), HasSubstr("metric_sets"));
  source.set_name("j");
  source.mutable_horizon()->set_source(huge);
  EXPECT_THAT(refused(source), HasSubstr("horizon.source has 1048576 bytes"));
}

TEST_F(RpcTest, ReflectionAnswersInVersion1) {
  namespace reflection = grpc::reflection::v1;
  Start();
  auto stub = reflection::ServerReflection::NewStub(
      grpc::CreateChannel("unix:" + options_.socket_path, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
  auto stream = stub->ServerReflectionInfo(&context);
  const auto ask = [&](const reflection::ServerReflectionRequest& request) {
    reflection::ServerReflectionResponse response;
    EXPECT_TRUE(stream->Write(request) && stream->Read(&response));
    return response;
  };
  reflection::ServerReflectionRequest request;
  request.set_list_services("");
  std::set<std::string> services;
  const auto listed = ask(request);
  for (const auto& service : listed.list_services_response().service()) {
    services.insert(service.name());
  }
  EXPECT_TRUE(services.contains("seqpoint.v1.Profiler"));
  EXPECT_TRUE(services.contains("grpc.reflection.v1.ServerReflection"));
  // What a client needs to make a call: the files of the service, those they import first.
  request.set_file_containing_symbol("seqpoint.v1.Profiler");
  google::protobuf::DescriptorPool pool;
  const auto defined = ask(request);
  for (const std::string& bytes : defined.file_descriptor_response().file_descriptor_proto()) {
    google::protobuf::FileDescriptorProto file;
    ASSERT_TRUE(file.ParseFromString(bytes));
    ASSERT_NE(pool.BuildFile(file), nullptr);
  }
  const google::protobuf::ServiceDescriptor* service =
      pool.FindServiceByName("seqpoint.v1.Profiler");
  ASSERT_NE(service, nullptr);
  EXPECT_NE(service->FindMethodByName("GetDaemon"), nullptr);
  request.set_file_by_filename("seqpoint/v1/profiler.proto");
  EXPECT_GT(ask(request).file_descriptor_response().file_descriptor_proto_size(), 0);
  request.set_file_containing_symbol("no.such.Thing");
  const auto missing = ask(request);
  EXPECT_EQ(missing.error_response().error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(missing.error_response().error_message(), HasSubstr("no.such.Thing"));
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
}

}  // namespace
}  // namespace seqpoint::rpc
