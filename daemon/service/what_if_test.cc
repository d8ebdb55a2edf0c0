// Traces of other profilers become jobs, and what-ifs are asked of them: the daemon as its callers
// see it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "daemon/service/daemon.h"
#include "tests/support/temp_folder.h"

namespace seqpoint::service {
namespace {

constexpr auto kAsked = [] { return false; };  // nobody went away

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A trace as Kineto writes it, in microseconds.
class Kineto {
 public:
  void Event(const std::string& category, const std::string& name, int thread, double begin,
             double end, const std::string& arguments = "") {
    absl::StrAppendFormat(&events_,
                          "%s{\"ph\":\"X\",\"cat\":\"%s\",\"name\":\"%s\",\"pid\":1,\"tid\":%d,"
                          "\"ts\":%.3f,\"dur\":%.3f,\"args\":{%s}}",
                          events_.empty() ? "" : ",\n", category, name, thread, begin, end - begin,
                          arguments);
  }
  // Called at `at`, for 5 us; the kernel runs from `start` to `end`.
  void Launch(double at, const std::string& kernel, double start, double end) {
    const int id = ++correlation_;
    Event("cuda_runtime", "cudaLaunchKernel", 1, at, at + 5, absl::StrCat("\"correlation\":", id));
    Event("kernel", kernel, 7, start, end,
          absl::StrCat("\"correlation\":", id, ",\"stream\":7,\"device\":0"));
  }
  std::string Text(int rank = 0, int world = 1) const {
    return absl::StrCat("{\"distributedInfo\":{\"rank\":", rank, ",\"world_size\":", world,
                        "},\n\"traceEvents\":[\n", events_, "\n]}");
  }

 private:
  std::string events_;
  int correlation_ = 0;
};

// Iterations, one for each length: 4 launches of kernels of `length` us each, 10 us of CPU each,
// and a wait for the GPU at the end. Short ones are bound by launching, long ones by the GPU.
std::string Training(const std::vector<int>& lengths, const std::string& mark, int rank = 0,
                     int world = 1, double begin = 0) {
  Kineto trace;
  double cpu = 1000 + begin;
  for (size_t i = 0; i < lengths.size(); ++i) {
    const double first = cpu;
    double gpu = 0;
    for (int k = 0; k < 4; ++k) {
      const double start = std::max(cpu + 7, gpu + 1);
      gpu = start + lengths[i];
      trace.Launch(cpu, k % 2 == 0 ? "sgemm_128x128" : "elementwise_add", start, gpu);
      cpu += 15;
    }
    trace.Event("cuda_runtime", "cudaDeviceSynchronize", 1, cpu, std::max(cpu + 1, gpu + 2));
    cpu = std::max(cpu + 1, gpu + 2) + 20;
    const std::string name =
        absl::StrCat(mark, i, mark == "step " ? absl::StrCat(" tokens ", lengths[i]) : "");
    trace.Event("user_annotation", name, 1, first - 2, cpu - 3);
  }
  return trace.Text(rank, world);
}

class WhatIfTest : public ::testing::Test {
 protected:
  WhatIfTest() { Start(); }

  void Start() {
    daemon_ = nullptr;
    auto daemon = Daemon::Start(
        {.store_path = folder_.path() / "store.db", .ingest = {.directory = folder_.path()}});
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    daemon_ = *std::move(daemon);
  }

  // Files as name and text, in pieces; `end`: what comes after the last one.
  absl::StatusOr<v1::ImportTraceReply> Import(
      const std::string& name, const std::vector<std::pair<std::string, std::string>>& files,
      const std::string& marker = "", absl::StatusOr<bool> end = false) {
    std::vector<v1::ImportTraceRequest> messages;
    for (const auto& [file, text] : files) {
      for (size_t at = 0; at < text.size(); at += 1000) {
        v1::ImportTraceRequest& message = messages.emplace_back();
        if (at == 0) message.set_file(file);
        message.set_data(text.substr(at, 1000));
      }
    }
    if (messages.empty()) messages.emplace_back();
    messages[0].set_name(name);
    messages[0].set_marker(marker);
    size_t next = 0;
    return daemon_->backend().ImportTrace(
        [&](v1::ImportTraceRequest* message) -> absl::StatusOr<bool> {
          if (next == messages.size()) return end;
          *message = messages[next++];
          return true;
        });
  }

  v1::ReplayReply Replay(const std::string& job) {
    v1::ReplayRequest request;
    request.set_job(job);
    const auto reply = daemon_->backend().Replay(request, kAsked);
    EXPECT_TRUE(reply.ok()) << reply.status();
    return reply.ok() ? *reply : v1::ReplayReply();
  }
  absl::StatusOr<v1::WhatIfReply> Ask(const std::string& job, const std::string& steps) {
    v1::WhatIfRequest request;
    request.set_job(job);
    request.set_confidence(0.95);
    request.add_changes()->set_text(steps);
    return daemon_->backend().WhatIf(request, kAsked);
  }
  v1::WhatIfAnswer WhatIf(const std::string& job, const std::string& steps) {
    const auto reply = Ask(job, steps);
    EXPECT_TRUE(reply.ok()) << reply.status();
    return reply.ok() && reply->answers_size() == 1 ? reply->answers(0) : v1::WhatIfAnswer();
  }

  TempFolder folder_;
  std::unique_ptr<Daemon> daemon_;
};

TEST_F(WhatIfTest, ATraceIsAJobLikeAnyOtherAlsoAfterARestart) {
  const auto imported =
      Import("net", {{"a.json", Training({100, 100, 100, 100}, "ProfilerStep#")}});
  ASSERT_TRUE(imported.ok()) << imported.status();
  ASSERT_EQ(imported->traces_size(), 1);
  EXPECT_EQ(imported->traces(0).boundary(), "annotation \"ProfilerStep\"");
  EXPECT_EQ(imported->traces(0).gpu_tasks(), 16);
  for (const bool restarted : {false, true}) {
    SCOPED_TRACE(restarted);
    if (restarted) Start();
    v1::GetJobRequest get;
    get.set_job("net");
    const auto job = daemon_->backend().GetJob(get);
    ASSERT_TRUE(job.ok()) << job.status();
    EXPECT_EQ(job->job().state(), v1::JOB_STATE_ENDED);
    EXPECT_EQ(job->job().command(), "a.json");
    EXPECT_EQ(job->job().iterations(), 4);
    // 7 + 4 * 100 + 3 + 2 + 20 - 7 us each.
    EXPECT_NEAR(job->job().time().total().value(), 4 * 432e3, 1e3);

    v1::GetKernelsRequest kernels;
    kernels.set_job("net");
    kernels.set_confidence(0.95);
    const auto spent = daemon_->backend().GetKernels(kernels);
    ASSERT_TRUE(spent.ok()) << spent.status();
    ASSERT_EQ(spent->kernels_size(), 2);
    EXPECT_NEAR(spent->kernels(0).duration_ns().value(), 800e3, 1);
    EXPECT_NEAR(spent->kernels(0).launches(), 8, 1e-6);

    v1::GetSeqPointsRequest points;
    points.set_job("net");
    const auto seqpoints = daemon_->backend().GetSeqPoints(points);
    ASSERT_TRUE(seqpoints.ok()) << seqpoints.status();
    EXPECT_EQ(seqpoints->seqpoints_size(), 1);

    const v1::ReplayReply replay = Replay("net");
    ASSERT_EQ(replay.iterations_size(), 3);  // the last one has no next
    EXPECT_NEAR(replay.iterations(0).measured_duration_ns(), 432e3, 1);
    EXPECT_LT(std::abs(replay.worst_error()), 1e-3);
    ASSERT_GT(replay.critical_path_size(), 1);
    EXPECT_EQ(replay.critical_path(0).category(), "kernels");
    EXPECT_NEAR(replay.critical_path(0).share(), 400.0 / 432, 0.03);

    // The GPU is what an iteration waits for: half of the kernels' time, and a little else.
    const v1::WhatIfAnswer answer = WhatIf("net", "scale kernels by 1/2");
    EXPECT_NEAR(answer.before().value(), 4 * 432e3, 1e3);
    EXPECT_NEAR(answer.after().value(), 4 * 232e3, 4e3);
    EXPECT_TRUE(answer.applies());
    EXPECT_EQ(answer.steps(0).tasks(), 16);
    ASSERT_EQ(answer.kernels_size(), 2);
    EXPECT_NEAR(answer.kernels(0).before_duration_ns(), 800e3, 1);
    EXPECT_NEAR(answer.kernels(0).after_duration_ns(), 400e3, 1);
  }
}

TEST_F(WhatIfTest, LengthsComeFromTheAnnotationAndEachLengthHasItsOwnAnswer) {
  // Short iterations are bound by launching: faster kernels do nothing for them.
  std::vector<int> lengths;
  for (int i = 0; i < 60; ++i) lengths.push_back(i % 3 == 0 ? 2 : i % 3 == 1 ? 60 : 200);
  const auto imported =
      Import("net", {{"a.json", Training(lengths, "step ")}}, R"(^step \d+ tokens (\d+))");
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(imported->job().iterations(), 60);
  EXPECT_EQ(imported->job().unique_lengths(), 3);
  EXPECT_EQ(imported->traces(0).length(), "number in the annotation");
  const v1::WhatIfAnswer answer = WhatIf("net", "scale kernels by 1/2");
  ASSERT_EQ(answer.seqpoints_size(), 3);
  EXPECT_THAT(answer.seqpoints(0).lengths(), ElementsAre(2));
  EXPECT_THAT(answer.seqpoints(2).lengths(), ElementsAre(200));
  const auto saved_us = [&](int i) {
    const v1::WhatIfSeqPoint& point = answer.seqpoints(i);
    return (point.before_duration_ns() - point.after_duration_ns()) / 1e3;
  };
  EXPECT_NEAR(saved_us(0), 0, 2);
  EXPECT_NEAR(saved_us(1), 4 * 30, 3);
  EXPECT_NEAR(saved_us(2), 4 * 100, 3);
  EXPECT_NEAR(answer.saved().value(), 20 * (4 * 30e3 + 4 * 100e3), 2e5);
  EXPECT_LE(answer.saved().low(), 20 * 520e3);
  EXPECT_GE(answer.saved().high(), 20 * 520e3);

  // Of a run with other data.
  v1::WhatIfRequest request;
  request.set_job("net");
  request.set_confidence(0.95);
  request.add_changes()->set_text("scale kernels by 1/2");
  v1::Horizon& horizon = *request.mutable_horizon();
  horizon.set_kind(v1::Horizon::KIND_HISTOGRAM);
  v1::LengthCount& count = *horizon.add_histogram();
  count.add_lengths(200);
  count.set_count(1000);
  const auto other = daemon_->backend().WhatIf(request, kAsked);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(other->iterations(), 1000);
  EXPECT_TRUE(other->whole_run());
  EXPECT_NEAR(other->answers(0).saved().value(), 1000 * 400e3, 1000 * 3e3);
}

TEST_F(WhatIfTest, ThePresetsAreRankedAndSayWhatTheyRestOn) {
  ASSERT_TRUE(Import("net", {{"a.json", Training({100, 100, 100}, "ProfilerStep#")}}).ok());
  v1::WhatIfRequest request;
  request.set_job("net");
  request.set_confidence(0.9);
  request.set_list(true);
  const auto list = daemon_->backend().WhatIf(request, kAsked);
  ASSERT_TRUE(list.ok()) << list.status();
  ASSERT_GT(list->answers_size(), 3);
  EXPECT_EQ(list->confidence(), 0.9);
  EXPECT_EQ(list->answers(0).name(), "amp");
  // sgemm is bound by compute, a third, the other one by memory, half.
  EXPECT_NEAR(list->answers(0).saved().value(), 3 * (2 * 66.7 + 2 * 50) * 1e3, 5e3);
  EXPECT_EQ(list->answers(0).guessed_bounds(), 3 * 4);  // each kernel once
  EXPECT_THAT(list->answers(0).source(), HasSubstr("Daydream"));
  bool applied = true;
  double saved = list->answers(0).saved().value();
  for (const v1::WhatIfAnswer& answer : list->answers()) {
    if (applied == answer.applies()) {
      EXPECT_LE(answer.saved().value(), saved);
    }
    EXPECT_TRUE(applied || !answer.applies()) << answer.name();
    applied = answer.applies();
    saved = answer.saved().value();
  }
  EXPECT_FALSE(list->answers(list->answers_size() - 1).applies());
}

TEST_F(WhatIfTest, RanksOfOneJobAreReplayedTogether) {
  // The same all-reduce ends every iteration; rank 1 comes 50 us later each time.
  std::vector<std::pair<std::string, std::string>> files;
  for (int rank = 0; rank < 2; ++rank) {
    Kineto trace;
    for (int i = 0; i < 4; ++i) {
      const double at = 1000 + 400 * i, late = 50 * rank;
      trace.Launch(at, "sgemm", at + 7, at + 207 + late);
      trace.Launch(at + 10, "ncclDevKernel_AllReduce_Sum", at + 208 + late, at + 300);
      trace.Event("cuda_runtime", "cudaDeviceSynchronize", 1, at + 20, at + 302);
      trace.Event("user_annotation", absl::StrCat("ProfilerStep#", i), 1, at - 2, at + 395);
    }
    files.emplace_back(absl::StrCat("rank", rank, ".json"), trace.Text(rank, 2));
  }
  const auto imported = Import("ddp", files);
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(imported->job().iterations(), 4);
  EXPECT_EQ(imported->job().process_count(), 2);
  EXPECT_NEAR(imported->job().time().total().value(), 1600e3, 1e3);
  EXPECT_LT(std::abs(Replay("ddp").worst_error()), 0.005);
  // Rank 1 alone holds both up: what is faster on both gains its 250 us, by half.
  const v1::WhatIfAnswer answer = WhatIf("ddp", "scale kernels where name ~ \"sgemm\" by 1/2");
  EXPECT_NEAR(answer.after().value(), 4 * 275e3, 8e3);
}

TEST_F(WhatIfTest, FilesOfOneRankAreOneAfterTheOther) {
  const auto imported =
      Import("net", {{"second.json", Training({100, 100}, "ProfilerStep#", 0, 1, 9000)},
                     {"first.json", Training({100, 100, 100}, "ProfilerStep#")}});
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(imported->traces(0).file(), "first.json");
  EXPECT_EQ(imported->job().iterations(), 5);
  const v1::ReplayReply replay = Replay("net");
  std::vector<int64_t> numbers;
  for (const auto& iteration : replay.iterations()) numbers.push_back(iteration.number());
  EXPECT_THAT(numbers, ElementsAre(0, 1, 3));
}

TEST_F(WhatIfTest, WhatCannotBeOneJobIsSaidAndLeavesNothing) {
  const std::string good = Training({100, 100, 100}, "ProfilerStep#", 2, 8);
  const auto refused = [&](const std::vector<std::pair<std::string, std::string>>& files,
                           const std::string& marker, const std::string& why) {
    const auto imported = Import("net", files, marker);
    ASSERT_FALSE(imported.ok()) << why;
    EXPECT_EQ(imported.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(imported.status().message()), HasSubstr(why));
  };
  refused({{"a.json", good}, {"b.json", good}}, "",
          "a.json and b.json are both of rank 2 and overlap in time");
  refused({{"a.json", good}}, "^epoch", "a.json: marker: no annotation matches \"^epoch\"");
  refused({{"a.json", good}}, "(", "marker: \"(\" is no regular expression");
  refused({{"a.json", good}}, "(a)(b)(c)", "has 3 groups");
  refused({{"a.json", good}}, "^(Profiler)", "group 1 is \"Profiler\", which is no length");
  refused({{"notes.txt", "remember the milk"}}, "", "notes.txt");
  refused({{"cpu.json",
            "{\"traceEvents\":[{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"aten::mm\","
            "\"pid\":1,\"tid\":1,\"ts\":1,\"dur\":2}]}"}},
          "", "cpu.json");
  refused({}, "", "no trace came");
  // The sender went away in the middle of it.
  const auto half = Import("net", {{"a.json", good}}, "", absl::CancelledError("gone"));
  EXPECT_TRUE(absl::IsCancelled(half.status())) << half.status();
  v1::ListJobsRequest list;
  EXPECT_EQ(daemon_->backend().ListJobs(list)->jobs_size(), 0);
}

TEST_F(WhatIfTest, QuestionsThatCannotBeAnsweredSayWhy) {
  ASSERT_TRUE(Import("net", {{"a.json", Training({100, 100, 100}, "ProfilerStep#")}}).ok());
  EXPECT_THAT(std::string(Ask("net", "scale kernls by 2").status().message()),
              HasSubstr("steps: line 1: \"kernls\""));
  EXPECT_EQ(Ask("nobody", "scale kernels by 2").status().code(), absl::StatusCode::kNotFound);
  v1::WhatIfRequest unknown;
  unknown.set_job("net");
  unknown.set_confidence(0.95);
  unknown.add_changes()->set_preset("ampp");
  EXPECT_EQ(daemon_->backend().WhatIf(unknown, kAsked).status().code(),
            absl::StatusCode::kInvalidArgument);
  v1::WhatIfChange& own = *unknown.mutable_changes(0);
  own.set_text("scale kernels by 1/2");
  own.clear_preset();
  own.set_name("mine.whatif");
  own.set_parameters("times=2");
  EXPECT_THAT(std::string(daemon_->backend().WhatIf(unknown, kAsked).status().message()),
              HasSubstr("mine.whatif: parameters (\"times=2\") are those of a preset"));

  v1::ImportJobRequest log;
  log.set_name("log");
  log.set_source("log.csv");
  for (int i = 0; i < 100; ++i) {
    log.mutable_log()->add_lengths(i);
    log.mutable_log()->add_durations(1e6);
  }
  ASSERT_TRUE(daemon_->backend().ImportJob(log).ok());
  EXPECT_THAT(std::string(Ask("log", "scale kernels by 2").status().message()),
              HasSubstr("it was made of a log; import traces for this"));
  const v1::WhatIfAnswer nothing = WhatIf("net", "remove memsets");
  EXPECT_FALSE(nothing.applies());
  EXPECT_THAT(nothing.warnings(0), HasSubstr("nothing is selected by \"remove memsets\""));
  EXPECT_NEAR(nothing.saved().value(), 0, 1);
  EXPECT_LT(nothing.saved().high() - nothing.saved().low(), 1);  // for certain
}

TEST_F(WhatIfTest, ItIsNeverSurerThanAReplayIs) {
  ASSERT_TRUE(Import("net", {{"a.json", Training({100, 100, 100, 100}, "ProfilerStep#")}}).ok());
  // The same in all iterations, and replayed without an error: nothing else makes it unsure.
  const v1::WhatIfAnswer half = WhatIf("net", "scale kernels by 1/2");
  const double width = half.saved().high() - half.saved().low();
  EXPECT_GT(width, 0.01 * half.after().value());
  EXPECT_LT(width, 0.02 * half.after().value());
  // Nor can it be further off than all that changes.
  const v1::WhatIfAnswer little = WhatIf("net", "scale kernels by 0.999");
  EXPECT_NEAR(little.saved().high() - little.saved().low(), 2 * 0.4e3 * 4, 0.5e3);
}

// Kernels that run at once and say that they are of one stream: one after the other they take
// twice as long.
TEST_F(WhatIfTest, AReplayThatMissesSavesNothing) {
  Kineto trace;
  double at = 1000;
  for (int i = 0; i < 6; ++i) {
    trace.Event("user_annotation", absl::StrCat("ProfilerStep#", i), 1, at - 2, at + 230);
    for (int k = 0; k < 2; ++k) trace.Launch(at + 10 * k, "gemm", at + 45 + k, at + 200 + k);
    trace.Event("cuda_runtime", "cudaDeviceSynchronize", 1, at + 50, at + 206);
    at += 240;
  }
  ASSERT_TRUE(Import("net", {{"a.json", trace.Text()}}).ok());
  EXPECT_GT(Replay("net").mean_error(), 0.3);
  const auto asked = Ask("net", "scale kernels by 1/2");
  EXPECT_EQ(asked.status().code(), absl::StatusCode::kFailedPrecondition);
  v1::WhatIfRequest list;
  list.set_job("net");
  list.set_confidence(0.95);
  list.set_list(true);
  for (const std::string& message :
       {std::string(asked.status().message()),
        std::string(daemon_->backend().WhatIf(list, kAsked).status().message())}) {
    EXPECT_THAT(message, HasSubstr("the replay of its 5 traced iterations misses their measured"));
    EXPECT_THAT(message, HasSubstr("so what a change would save is not known"));
  }
}

TEST_F(WhatIfTest, NobodyWaitsForAnAnswer) {
  ASSERT_TRUE(Import("net", {{"a.json", Training({100, 100, 100}, "ProfilerStep#")}}).ok());
  const auto gone = [] { return true; };
  v1::ReplayRequest replay;
  replay.set_job("net");
  EXPECT_TRUE(absl::IsCancelled(daemon_->backend().Replay(replay, gone).status()));
  v1::WhatIfRequest list;
  list.set_job("net");
  list.set_confidence(0.95);
  list.set_list(true);
  EXPECT_TRUE(absl::IsCancelled(daemon_->backend().WhatIf(list, gone).status()));
  // While the presets are tried.
  int asked = 0;
  EXPECT_TRUE(
      absl::IsCancelled(daemon_->backend().WhatIf(list, [&] { return ++asked == 9; }).status()));
  EXPECT_EQ(asked, 9);
  EXPECT_TRUE(daemon_->backend().WhatIf(list, kAsked).ok());
}

TEST_F(WhatIfTest, QuestionsAtOnceAreAnsweredAsOneByOne) {
  ASSERT_TRUE(Import("short", {{"a.json", Training({50, 50, 50}, "ProfilerStep#")}}).ok());
  ASSERT_TRUE(Import("long", {{"a.json", Training({100, 100, 100}, "ProfilerStep#")}}).ok());
  const double expected[] = {WhatIf("short", "scale kernels by 2").saved().value(),
                             WhatIf("long", "scale kernels by 2").saved().value()};
  std::vector<std::thread> askers;
  for (size_t i = 0; i < 4; ++i) {
    askers.emplace_back([&, i] {
      for (size_t k = i; k < i + 10; ++k) {
        const auto reply = Ask(k % 2 == 0 ? "short" : "long", "scale kernels by 2");
        ASSERT_TRUE(reply.ok()) << reply.status();
        EXPECT_EQ(reply->answers(0).saved().value(), expected[k % 2]);
      }
    });
  }
  for (std::thread& asker : askers) asker.join();
}

TEST_F(WhatIfTest, MarksBehindWhichNothingIsLaunchedTellNoTimes) {
  Kineto trace;
  for (int i = 0; i < 4; ++i) {
    trace.Launch(1000 + 100 * i, "k", 1010 + 100 * i, 1050 + 100 * i);
    trace.Event("user_annotation", absl::StrCat("late ", i), 3, 3000 + 10 * i, 3008 + 10 * i);
    trace.Event("user_annotation", absl::StrCat("step ", i), 1, 990 + 100 * i, 1080 + 100 * i);
  }
  trace.Event("user_annotation", "step of another", 2, 990, 1080);
  EXPECT_THAT(
      std::string(Import("a", {{"a.json", trace.Text()}}, "late").status().message()),
      HasSubstr("a.json: none of the 4 iterations (annotation matching \"late\") launches"));
  const auto steps = Import("b", {{"a.json", trace.Text()}}, "step");
  ASSERT_TRUE(steps.ok()) << steps.status();
  EXPECT_EQ(steps->traces(0).iterations(), 4);
  EXPECT_THAT(steps->traces(0).message(), HasSubstr("1 mark of other threads left out"));
}

TEST_F(WhatIfTest, WhetherEachLengthNeedsAGraphTheKernelsTell) {
  Kineto padded;  // to one shape, whatever the length
  for (int i = 0; i < 4; ++i) {
    const int at = 1000 + 200 * i;
    for (int k = 0; k < 3; ++k) padded.Launch(at + 20 * k, "k", at + 20 * k + 8, at + 20 * k + 18);
    padded.Event("user_annotation", absl::StrCat("step ", 10 + i), 1, at - 2, at + 150);
  }
  ASSERT_TRUE(Import("padded", {{"a.json", padded.Text()}}, "step (\\d+)").ok());
  const v1::WhatIfAnswer one = WhatIf("padded", "capture launches");
  ASSERT_EQ(one.warnings_size(), 1);
  EXPECT_THAT(one.warnings(0), HasSubstr("the same time at all 4 lengths, so one graph is in"));
  const v1::Estimate& saved = one.saved();
  EXPECT_GT(saved.value() - saved.low(), saved.high() - saved.value());

  ASSERT_TRUE(
      Import("net", {{"a.json", Training({20, 30, 40, 50}, "step ")}}, "step \\d+ tokens (\\d+)")
          .ok());
  const v1::WhatIfAnswer each = WhatIf("net", "capture launches");
  ASSERT_EQ(each.warnings_size(), 1);
  EXPECT_THAT(each.warnings(0), HasSubstr("each of 4 lengths needs a graph of its own"));
}

TEST_F(WhatIfTest, ALargerBatchIsComparedForTheSameData) {
  ASSERT_TRUE(Import("net", {{"a.json", Training({100, 100, 100}, "ProfilerStep#")}}).ok());
  // Twice the kernels in half of the iterations: what is saved is the 32 us between them.
  const v1::WhatIfAnswer answer = WhatIf("net", "scale kernels by 2; scale iterations by 1/2");
  EXPECT_NEAR(answer.saved().value(), 3 * 16e3, 3e3);
  EXPECT_NEAR(answer.kernels_size(), 0, 0);  // as long in all
}

TEST_F(WhatIfTest, APresetOfTheUsersOwn) {
  ASSERT_TRUE(Import("net", {{"a.json", Training({100, 100, 100}, "ProfilerStep#")}}).ok());
  v1::WhatIfRequest request;
  request.set_job("net");
  request.set_confidence(0.95);
  v1::WhatIfChange& own = *request.add_changes();
  own.set_name("mine.whatif");
  own.set_text(
      "title: my kernels\nsource: me\nassumes: nothing\nneeds: kernels where name ~ \"add\"\n"
      "param times = 2: how many times as fast\nsteps:\nscale kernels where name ~ \"add\" by "
      "1/$times\n");
  own.set_parameters("times=4");
  const auto reply = daemon_->backend().WhatIf(request, kAsked);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->answers(0).name(), "mine.whatif,times=4");
  EXPECT_EQ(reply->answers(0).title(), "my kernels");
  EXPECT_NEAR(reply->answers(0).saved().value(), 3 * 150e3, 2e3);
}

}  // namespace
}  // namespace seqpoint::service
