// The same questions put to the fake daemon of the tests (tests/fakes/fake_backend.h) and to a real
// one, which saw a training program on the software GPU. A field of a reply that one of them fills
// and the other never does fails the test: what a test of the client sees is what a user sees.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/rpc/server.h"
#include "seqpoint/v1/profiler.grpc.pb.h"
#include "tests/fakes/fake_backend.h"
#include "tests/integration/contract/set_fields.h"
#include "tests/support/api.h"
#include "tests/support/temp_folder.h"

namespace seqpoint {
namespace {

using Stub = v1::Profiler::Stub;

constexpr char kLaunch[] = "contract";

// Fields that may differ, each with the reason.
using Exceptions = std::map<std::string, std::string>;

// Filled by the fake alone.
const Exceptions& OnlyFake() {
  static const auto* const fields = new Exceptions{
      {"Counter.derived", "the metric set of the run has no sums"},
      {"Counter.message", "every configuration was measured"},
      {"ComparedCounter.proven", "both runs do the same work"},
      {"ExpectedEnd.high_ns", "the clock of the software GPU is not the wall's"},
      {"ExpectedEnd.last_iteration_ns", "likewise"},
      {"ExpectedEnd.low_ns", "likewise"},
      {"ExpectedEnd.time_ns", "likewise"},
      {"Job.expected_end", "likewise"},
      {"ReplayedIteration.rank", "the run has one rank"},
      {"WhatIfAnswer.guessed_bounds", "the roofline of the run measured all kernels"},
  };
  return *fields;
}
// Filled by the real daemon alone.
const Exceptions& OnlyReal() {
  static const auto* const fields = new Exceptions{
      {"ImportedTrace.length", "the annotations in the traces of the fake have none"},
      {"Iteration.phase", "the fake has no imported iterations"},
      {"Job.error", "nothing is wrong with the jobs of the fake"},
      {"Job.unused", "every job of the fake has a process"},
      {"Process.end_ns", "the process of the fake runs"},
  };
  return *fields;
}
// Filled by neither: the real daemon fills them in other runs than this one. "Message.*" are all
// fields of a message.
const Exceptions& Neither() {
  static const auto* const fields = new Exceptions{
      {"CompareReply.not_known", "both runs have times"},
      {"CompareReply.messages", "both runs are over, on one rank and one clock"},
      {"ComparedRun.batch", "the runs have no histogram, which names it"},
      {"ComparedRun.live", "both runs are over"},
      {"GetDaemonReply.private_daemon", "seqpoint run did not start it"},
      {"GetDaemonReply.tcp_address", "it is not open: no TLS"},
      {"GetDaemonReply.error", "the store is whole"},
      {"GetDaemonReply.hub", "it has none"},
      {"GetDaemonReply.peer_address", "it is no hub"},
      {"GetRanksReply.first_end", "the run has one rank"},
      {"GetRanksReply.first_iteration", "likewise"},
      {"GetRanksReply.imbalance", "likewise"},
      {"GetRanksReply.incomplete", "likewise"},
      {"GetRanksReply.iterations", "likewise"},
      {"GetRanksReply.last_iteration", "likewise"},
      {"GetRanksReply.links", "likewise"},
      {"GetRanksReply.rotating", "likewise"},
      {"GetRanksReply.standstill", "likewise"},
      {"GetRanksReply.summary", "likewise"},
      {"GetRooflineReply.missing_launches", "there is room for all"},
      {"GetKernelsReply.message", "no rank became slow"},
      {"GetRooflineReply.message", "it is complete"},
      {"GetSeqPointsReply.message", "the job is live, on one rank"},
      {"ImportedTrace.rank", "there is one file"},
      {"ImportedTrace.message", "the file is whole"},
      {"FleetJob.gpu_ns", "the software GPU's time is virtual"},
      {"FleetTimes.*", "likewise"},
      {"FleetTotal.*", "likewise"},
      {"GetFleetReply.total", "likewise"},
      {"HubConnection.*", "it has none"},
      {"ListNodesReply.leader", "it is no hub"},
      {"ListNodesReply.nodes", "it is no hub"},
      {"Node.*", "likewise"},
      {"Iteration.concurrent", "the rank has one process at a time"},
      {"Iteration.incarnation", "all processes are the first one of rank 0"},
      {"Iteration.rank", "all processes are the first one of rank 0"},
      {"Iteration.redone", "no checkpoint is loaded"},
      {"Iteration.rest_ns", "every iteration has an end"},
      {"Job.ranks", "the run has one rank"},
      {"Job.rank_losses", "likewise"},
      {"RankLosses.*", "likewise"},
      {"Job.time_only", "there is CUPTI"},
      {"LengthImbalance.*", "the run has one rank"},
      {"ListIterationsReply.message", "the store takes all"},
      {"Losses.clock_steps", "nobody sets the clock"},
      {"Losses.invalid_timestamps", "all are valid"},
      {"Losses.redone_iterations", "no checkpoint is loaded"},
      {"Losses.rejected", "all bytes make sense"},
      {"Losses.uncounted_processes", "all are read to their end"},
      {"Losses.unstored_records", "no disk is full"},
      {"MeasuredIteration.rank", "all processes are the first one of rank 0"},
      {"OfferedConfiguration.problem", "the chips offer the sets"},
      {"Process.incarnation", "all processes are the first one of rank 0"},
      {"Process.local_rank", "all processes are the first one of rank 0"},
      {"Process.lost", "all say goodbye"},
      {"Process.rank", "all processes are the first one of rank 0"},
      {"Process.stands_down_for", "there is no other profiler"},
      {"Process.stood_down_duration_ns", "likewise"},
      {"RankSummary.collectives", "the run has one rank"},
      {"RankSummary.course", "likewise"},
      {"RankSummary.episode_count", "likewise"},
      {"RankSummary.episodes", "likewise"},
      {"RankSummary.iterations", "likewise"},
      {"RankSummary.last", "likewise"},
      {"RankSummary.live", "the run is over"},
      {"RankSummary.mean_duration_ns", "the run has one rank"},
      {"RankSummary.mean_wait_ns", "likewise"},
      {"RankSummary.mean_work_ns", "likewise"},
      {"RankSummary.message", "likewise"},
      {"RankSummary.operations", "likewise"},
      {"RankSummary.own_baseline", "likewise"},
      {"RankSummary.rank", "all processes are the first one of rank 0"},
      {"RooflineKernel.message", "all kernels have a position"},
      {"Rule.message", "the rule stays"},
      {"SlowEpisode.*", "the run has one rank"},
      {"SlowLink.*", "likewise"},
      {"Standstill.*", "likewise"},
  };
  return *fields;
}
// Filled by the real daemon in some runs of this test: with what causes it.
const Exceptions& ByChance() {
  static const auto* const fields = new Exceptions{
      {"CompareReply.no_kernels", "two short runs may have too few iterations of a length"},
      {"CompareReply.not_comparable", "likewise"},
      {"Losses.cupti_dropped", "CUPTI's buffers are full"},
      {"Losses.refused_measurements", "a measurement hits a first occurrence"},
      {"Losses.ring_dropped", "the ring is full"},
      {"Losses.ring_lost", "likewise"},
      {"Losses.untimed_iterations", "the last iteration has no end"},
      {"Overhead.message", "measurements wait"},
      {"Process.given_up_windows", "evaluation begins while a measurement waits for its length"},
  };
  return *fields;
}

// Asks a daemon every question, and notes which fields its replies have.
class Questions {
 public:
  Questions(const std::filesystem::path& socket, std::string job, std::string other)
      : stub_(v1::Profiler::NewStub(
            grpc::CreateChannel("unix:" + socket.string(), grpc::InsecureChannelCredentials()))),
        job_(std::move(job)),
        other_(std::move(other)) {}

  SetFields fields;

  void AskAboutTheJob() {
    Ask<v1::GetDaemonReply>(&Stub::GetDaemon, v1::GetDaemonRequest());
    v1::ListJobsRequest list;
    list.set_page_size(1);
    Ask<v1::ListJobsReply>(&Stub::ListJobs, list);
    Ask<v1::GetFleetReply>(&Stub::GetFleet, v1::GetFleetRequest());
    Ask<v1::GetJobReply>(&Stub::GetJob, About<v1::GetJobRequest>());
    Ask<v1::GetSeqPointsReply>(&Stub::GetSeqPoints, About<v1::GetSeqPointsRequest>());
    for (const bool measured : {false, true}) {
      auto request = About<v1::ListIterationsRequest>();
      request.set_page_size(20);
      request.set_measured_only(measured);
      Ask<v1::ListIterationsReply>(&Stub::ListIterations, request);
    }
    AskForFigures<v1::ProjectReply>(&Stub::Project, About<v1::ProjectRequest>());
    const auto counters =
        AskForFigures<v1::GetCountersReply>(&Stub::GetCounters, About<v1::GetCountersRequest>());
    ASSERT_GT(counters.counters_size(), 0);
    auto metric = About<v1::ProjectRequest>();
    metric.set_metric(counters.counters(0).metric());
    Ask<v1::ProjectReply>(&Stub::Project, metric);
    AskForFigures<v1::GetKernelsReply>(&Stub::GetKernels, About<v1::GetKernelsRequest>());
    Ask<v1::GetRooflineReply>(&Stub::GetRoofline, About<v1::GetRooflineRequest>());
    Ask<v1::GetRanksReply>(&Stub::GetRanks, About<v1::GetRanksRequest>());
    v1::CompareRequest compare;
    compare.set_base(job_);
    compare.set_other(other_);
    Ask<v1::CompareReply>(&Stub::Compare, compare);
    compare.mutable_part()->set_to(99);
    Ask<v1::CompareReply>(&Stub::Compare, compare);
    Ask<v1::ReplayReply>(&Stub::Replay, About<v1::ReplayRequest>());
    auto what_if = About<v1::WhatIfRequest>();
    what_if.set_list(true);
    what_if.mutable_horizon()->set_kind(v1::Horizon::KIND_ITERATIONS);
    what_if.mutable_horizon()->set_iterations(5000);
    Ask<v1::WhatIfReply>(&Stub::WhatIf, what_if);
    what_if.set_list(false);
    what_if.clear_horizon();
    what_if.add_changes()->set_preset("amp");
    Ask<v1::WhatIfReply>(&Stub::WhatIf, what_if);
    Ask<v1::ListPresetsReply>(&Stub::ListPresets, v1::ListPresetsRequest());
    v1::ListMetricSetsRequest sets;
    sets.set_chip("GH100");
    Ask<v1::ListMetricSetsReply>(&Stub::ListMetricSets, sets);
    sets.set_chip("GA100");
    Ask<v1::ListMetricSetsReply>(&Stub::ListMetricSets, sets);
    AskWithPlaylists();
  }

  void AskToChange() {
    auto horizon = About<v1::SetHorizonRequest>();
    horizon.mutable_horizon()->set_kind(v1::Horizon::KIND_ITERATIONS);
    horizon.mutable_horizon()->set_iterations(900);
    Ask<v1::SetHorizonReply>(&Stub::SetHorizon, horizon);
    auto update = About<v1::UpdateJobRequest>();
    update.add_add_tags("fast");
    Ask<v1::UpdateJobReply>(&Stub::UpdateJob, update);
    v1::PrepareJobRequest prepare;
    prepare.set_name("next");
    prepare.set_command("python3 train.py");
    prepare.mutable_horizon()->set_kind(v1::Horizon::KIND_HISTOGRAM);
    prepare.mutable_horizon()->set_epochs(3);
    prepare.mutable_horizon()->set_source("train.csv, 3 epochs");
    prepare.mutable_horizon()->set_batch(32);
    prepare.mutable_horizon()->set_uniform_steps(true);
    prepare.mutable_horizon()->set_data_parallel(2);
    v1::LengthCount& entry = *prepare.mutable_horizon()->add_histogram();
    entry.add_lengths(37);
    entry.set_count(1000);
    prepare.set_operators_folder("/tmp/operators");
    Ask<v1::PrepareJobReply>(&Stub::PrepareJob, prepare);
    v1::GetJobRequest next;
    next.set_job("next");
    Ask<v1::GetJobReply>(&Stub::GetJob, next);
    v1::ControlRequest end;
    end.set_job("next");
    end.set_action(v1::ControlRequest::ACTION_END_WAITING);
    Ask<v1::ControlReply>(&Stub::Control, end);
    EndProgram(job_, 1, 0);
    EndProgram(other_, 0, SIGKILL);
  }

  // Iterations of two runs with two lengths each.
  void AskWithLogs() {
    v1::AnalyzeRequest analyze;
    for (v1::IterationLog* log : {analyze.mutable_log(), analyze.mutable_against()}) {
      const bool against = log == analyze.mutable_against();
      for (int i = 0; i < 600; ++i) {
        const int length = (i * 7) % 30 + 10 + (against ? 0 : i % 5);
        log->add_lengths(length);
        log->add_durations(length * 1e6 * (against ? 0.5 : 1) * (1 + i * 1e-4) + (i % 11) * 1e4 +
                           (i % 300 == 0 ? 9e7 : 0) + (i == 450 ? 5e8 : 0));
        log->add_groups(i / 300);
      }
    }
    analyze.mutable_horizon()->set_kind(v1::Horizon::KIND_ITERATIONS);
    analyze.mutable_horizon()->set_iterations(6000);
    analyze.set_playlist(true);
    grpc::ClientContext context;
    SetDeadline(&context);
    v1::AnalyzeReply analyzed;
    auto writer = stub_->Analyze(&context, &analyzed);
    writer->Write(analyze);
    Note(writer, analyzed);

    v1::ImportJobRequest import;
    import.set_name("log");
    import.set_source("log.csv");
    *import.mutable_log() = analyze.log();
    grpc::ClientContext another;
    SetDeadline(&another);
    v1::ImportJobReply imported;
    auto importer = stub_->ImportJob(&another, &imported);
    importer->Write(import);
    Note(importer, imported);
    v1::ListIterationsRequest list;
    list.set_job("log");
    list.set_page_size(20);
    Ask<v1::ListIterationsReply>(&Stub::ListIterations, list);
    v1::DeleteJobRequest removal;
    removal.set_job("log");
    Ask<v1::DeleteJobReply>(&Stub::DeleteJob, removal);
  }

  // A trace of the job as a job of its own.
  void AskWithTraces() {
    grpc::ClientContext context;
    SetDeadline(&context);
    auto request = About<v1::ExportRequest>();
    request.set_format(v1::ExportRequest::FORMAT_CHROME);
    auto reader = stub_->Export(&context, request);
    v1::ImportTraceRequest piece;
    piece.set_name("traced");
    piece.set_file("trace.json");
    for (v1::ExportReply reply; reader->Read(&reply);) {
      fields.Add(reply, "Export");
      piece.mutable_data()->append(reply.data());
    }
    EXPECT_TRUE(reader->Finish().ok());
    grpc::ClientContext another;
    SetDeadline(&another);
    v1::ImportTraceReply imported;
    auto importer = stub_->ImportTrace(&another, &imported);
    importer->Write(piece);
    Note(importer, imported);
  }

  // Reads a watcher's messages until the job ends, at most `most` of them.
  void Watch(int most) {
    grpc::ClientContext context;
    SetDeadline(&context);
    auto request = About<v1::WatchJobRequest>();
    request.set_min_interval_ms(20);
    auto reader = stub_->WatchJob(&context, request);
    v1::WatchJobReply reply;
    for (int i = 0; i < most && reader->Read(&reply); ++i) {
      fields.Add(reply, "WatchJob");
      Ask<v1::GetDaemonReply>(&Stub::GetDaemon, v1::GetDaemonRequest());
      Ask<v1::GetJobReply>(&Stub::GetJob, About<v1::GetJobRequest>());
    }
    context.TryCancel();
  }

  void Prepare(const v1::PrepareJobRequest& request) {
    Ask<v1::PrepareJobReply>(&Stub::PrepareJob, request);
  }

 private:
  static void SetDeadline(grpc::ClientContext* context) {
    context->set_wait_for_ready(true);
    context->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
  }

  template <typename Request>
  Request About() const {
    Request request;
    request.set_job(job_);
    return request;
  }

  template <typename Reply, typename Request>
  Reply Ask(grpc::Status (Stub::*call)(grpc::ClientContext*, const Request&, Reply*),
            const Request& request) {
    grpc::ClientContext context;
    SetDeadline(&context);
    Reply reply;
    const grpc::Status status = (stub_.get()->*call)(&context, request, &reply);
    EXPECT_TRUE(status.ok()) << Reply::descriptor()->name() << ": " << status.error_message();
    fields.Add(reply, Reply::descriptor()->name());
    return reply;
  }

  // Asks about the run, about another one, and about a part. Returns the run's figures.
  template <typename Reply, typename Request>
  Reply AskForFigures(grpc::Status (Stub::*call)(grpc::ClientContext*, const Request&, Reply*),
                      Request request) {
    Reply reply = Ask<Reply>(call, request);
    request.mutable_horizon()->set_kind(v1::Horizon::KIND_ITERATIONS);
    request.mutable_horizon()->set_iterations(5000);
    Ask<Reply>(call, request);
    request.clear_horizon();
    request.mutable_part()->set_to(99);
    Ask<Reply>(call, request);
    return reply;
  }

  // As `seqpoint run` does after the program.
  void EndProgram(const std::string& job, int exit_status, int signal) {
    v1::ControlRequest end;
    end.set_job(job);
    end.set_action(v1::ControlRequest::ACTION_PROGRAM_ENDED);
    end.set_launch(kLaunch);
    end.set_exit_status(exit_status);
    end.set_signal(signal);
    Ask<v1::ControlReply>(&Stub::Control, end);
  }

  template <typename Writer, typename Reply>
  void Note(Writer& writer, const Reply& reply) {
    writer->WritesDone();
    const grpc::Status status = writer->Finish();
    EXPECT_TRUE(status.ok()) << Reply::descriptor()->name() << ": " << status.error_message();
    fields.Add(reply, Reply::descriptor()->name());
  }

  void AskWithPlaylists() {
    auto request = About<v1::GetPlaylistRequest>();
    const auto playlist = Ask<v1::GetPlaylistReply>(&Stub::GetPlaylist, request);
    v1::ProjectPlaylistRequest project;
    *project.mutable_points() = playlist.points();
    for (const v1::PlaylistPoint& point : playlist.points()) {
      project.add_durations_ns(point.expected_duration_ns() / 2);
      project.add_measured(point.measurements());
    }
    Ask<v1::ProjectPlaylistReply>(&Stub::ProjectPlaylist, project);
  }

  const std::unique_ptr<Stub> stub_;
  const std::string job_, other_;
};

class ContractTest : public ::testing::Test {
 protected:
  ~ContractTest() override { KillAndWait(&daemon_, SIGKILL); }

  SetFields AskFake() {
    rpc::FakeBackend backend;
    v1::Job other = rpc::FakeBackend::SampleJob();
    other.set_id("2");
    other.set_name("other");
    backend.PutJob(other);
    const std::filesystem::path socket = folder_.path() / "fake.sock";
    auto server = rpc::Server::Start({.socket_path = socket}, &backend);
    EXPECT_TRUE(server.ok()) << server.status();
    Questions questions(socket, "gnmt", "other");
    questions.Watch(1);
    AskAll(&questions);
    return questions.fields;
  }

  SetFields AskReal() {
    const std::filesystem::path bin = BinaryDirectory(), run = folder_.path() / "run";
    setenv("SEQPOINT_DIR", run.c_str(), 1);
    setenv("SWGPU_SET", "clock.speed_cap=4", 1);
    daemon_ = SpawnDaemon(folder_.path());
    Questions questions(run / "api.sock", "job", "other");
    for (const char* name : {"other", "job"}) {
      v1::PrepareJobRequest prepare;
      prepare.set_name(name);
      prepare.set_run_id("1");
      prepare.set_command("seqpoint_workload");
      prepare.set_overhead_budget_share(0.5);
      prepare.set_roofline(name == std::string("job"));
      prepare.add_metric_sets("memory");
      prepare.mutable_horizon()->set_kind(v1::Horizon::KIND_ITERATIONS);
      prepare.mutable_horizon()->set_iterations(600);
      questions.Prepare(prepare);
      const pid_t training =
          Spawn({"/usr/bin/env",
                 "LD_LIBRARY_PATH=" + (bin.parent_path() / "softgpu").string(),
                 absl::StrCat("SEQPOINT_JOB=", name),
                 "SEQPOINT_RUN_ID=1",
                 absl::StrCat("SEQPOINT_LAUNCH=", kLaunch),
                 "LD_PRELOAD=" + (bin.parent_path() / "lib/libseqpoint_inject.so").string(),
                 (bin / "seqpoint_workload").string(),
                 "--model",
                 "transformer",
                 "--batch",
                 "32",
                 "--max-iterations",
                 name == std::string("job") ? "500" : "400",
                 "--pad-multiple",
                 "8",
                 "--eval-every",
                 "200",
                 "--eval-batches",
                 "4",
                 "--quiet"},
                folder_.path() / "training.log");
      if (name == std::string("job")) questions.Watch(10'000);
      EXPECT_EQ(WaitFor(training), 0);
    }
    AskAll(&questions);
    return questions.fields;
  }

  static void AskAll(Questions* questions) {
    questions->AskAboutTheJob();
    questions->AskWithLogs();
    questions->AskWithTraces();
    questions->AskToChange();
  }

  const TempFolder folder_;
  pid_t daemon_ = 0;
};

TEST_F(ContractTest, TheFakeAndTheRealDaemonFillTheSameFields) {
  const SetFields fake = AskFake(), real = AskReal();
  for (const auto& [field, path] : fake.paths()) {
    if (real.Has(field) || OnlyFake().contains(field) || ByChance().contains(field)) continue;
    ADD_FAILURE() << field << " (" << path << ") is filled by the fake alone";
  }
  for (const auto& [field, path] : real.paths()) {
    if (fake.Has(field) || OnlyReal().contains(field) || ByChance().contains(field)) continue;
    ADD_FAILURE() << field << " (" << path << ") is filled by the real daemon alone";
  }
  std::set<std::string> declared;
  const auto* service =
      v1::GetJobReply::descriptor()->file()->pool()->FindServiceByName("seqpoint.v1.Profiler");
  ASSERT_NE(service, nullptr);
  for (int i = 0; i < service->method_count(); ++i) {
    SetFields::AddDeclared(*service->method(i)->output_type(), &declared);
  }
  for (const std::string& field : declared) {
    if (fake.Has(field) || real.Has(field)) continue;
    const std::string whole_message = field.substr(0, field.find('.') + 1) + "*";
    if (Neither().contains(field) || Neither().contains(whole_message) ||
        ByChance().contains(field)) {
      continue;
    }
    ADD_FAILURE() << field << " is filled by neither";
  }
  const auto expect_needed = [&](const Exceptions& fields, bool by_fake, bool by_real) {
    for (const auto& [field, reason] : fields) {
      if (field.back() == '*') continue;
      EXPECT_TRUE(declared.contains(field)) << field << " is no field of a reply";
      EXPECT_TRUE(fake.Has(field) == by_fake && real.Has(field) == by_real)
          << field << " is in the wrong list: \"" << reason << "\"";
    }
  };
  expect_needed(OnlyFake(), true, false);
  expect_needed(OnlyReal(), false, true);
  expect_needed(Neither(), false, false);
}

}  // namespace
}  // namespace seqpoint
