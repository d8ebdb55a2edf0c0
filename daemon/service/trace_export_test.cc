// Traces out of the daemon and in again.
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/service/daemon.h"
#include "daemon/trace/marks.h"
#include "daemon/traces/chrome_writer.h"
#include "daemon/traces/trace_reader.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "injection/abi/control.h"
#include "injection/abi/records.h"
#include "tests/support/small_graph.h"
#include "tests/support/temp_folder.h"

namespace seqpoint::service {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class TraceExportTest : public ::testing::Test {
 protected:
  TraceExportTest() {
    options_.ingest.directory = folder_.path();
    options_.store_path = folder_.path() / "store.db";
  }

  std::unique_ptr<Daemon> Start() {
    auto daemon = Daemon::Start(options_);
    EXPECT_TRUE(daemon.ok()) << daemon.status();
    return *std::move(daemon);
  }

  static std::string Export(Daemon& daemon, const std::string& job,
                            v1::ExportRequest::Format format) {
    v1::ExportRequest request;
    request.set_job(job);
    request.set_format(format);
    std::string text;
    const absl::Status status = daemon.backend().Export(request, [&](std::string_view piece) {
      text += piece;
      return true;
    });
    EXPECT_TRUE(status.ok()) << status;
    return text;
  }

  static absl::StatusOr<v1::ImportTraceReply> Import(Daemon& daemon, const std::string& name,
                                                     const std::vector<std::string>& files,
                                                     const std::string& marker = "") {
    size_t next = 0;
    return daemon.backend().ImportTrace(
        [&](v1::ImportTraceRequest* message) -> absl::StatusOr<bool> {
          message->Clear();
          if (next == files.size()) return false;
          message->set_name(name);
          message->set_run_id("1");
          message->set_marker(marker);
          message->set_file(absl::StrCat("t", next, ".json"));
          message->set_data(files[next++]);
          return true;
        });
  }

  // "number: lengths, start, duration" of each iteration.
  // Starts are counted from the first one's: a job is moved to where it was imported.
  static std::vector<std::string> Iterations(Daemon& daemon, const std::string& job) {
    v1::ListIterationsRequest request;
    request.set_job(job);
    request.set_page_size(100);
    const auto reply = daemon.backend().ListIterations(request);
    EXPECT_TRUE(reply.ok()) << reply.status();
    std::vector<std::string> lines;
    for (const v1::Iteration& iteration : reply->iterations()) {
      std::string line = absl::StrCat(iteration.number(), ":");
      for (const int64_t length : iteration.lengths()) absl::StrAppend(&line, " ", length);
      absl::StrAppend(&line, ", ", iteration.start_ns() - reply->iterations(0).start_ns(), ", ",
                      iteration.duration_ns());
      lines.push_back(line);
    }
    return lines;
  }

  static std::string Kernels(Daemon& daemon, const std::string& job) {
    v1::GetKernelsRequest request;
    request.set_job(job);
    request.set_confidence(0.95);
    const auto reply = daemon.backend().GetKernels(request);
    EXPECT_TRUE(reply.ok()) << reply.status();
    std::string lines;
    for (const v1::Kernel& kernel : reply->kernels()) {
      absl::StrAppend(&lines, kernel.name(), " ", kernel.duration_ns().value(), " ",
                      kernel.launches(), "\n");
    }
    return lines;
  }

  static v1::ReplayReply Replay(Daemon& daemon, const std::string& job) {
    v1::ReplayRequest request;
    request.set_job(job);
    const auto reply = daemon.backend().Replay(request, [] { return false; });
    EXPECT_TRUE(reply.ok()) << reply.status();
    return reply.ok() ? *reply : v1::ReplayReply();
  }

  static std::string Written(const trace::Trace& trace) {
    std::string text;
    const auto write = [&](std::string_view piece) {
      text += piece;
      return true;
    };
    traces::ChromeWriter writer(
        {.base_ns = kBeginNs, .rank = trace.rank, .world_size = trace.world_size}, write);
    EXPECT_TRUE(writer.Add(trace) && writer.Finish());
    return text;
  }

  // Steps of 1 ms, "train 30", "train 40", ...: in each a copy, two kernels and a synchronisation.
  static trace::Trace Steps(int32_t rank = 0, int32_t world_size = 1) {
    whatif::TestTrace t;
    const double begin_us = static_cast<double>(kBeginNs) / 1000;
    for (int i = 0; i < 5; ++i) {
      const double at = begin_us + 1000 * i;
      t.Annotation(at, at + 10, absl::StrCat("train ", 30 + 10 * i));
      t.Api(at + 10, at + 20, "cudaMemcpyAsync", trace::CallKind::kCopy);
      t.Run("Memcpy HtoD (Pinned -> Device)", at + 15, at + 30, trace::WorkKind::kCopyH2D);
      t.Launch(at + 30, at + 40, "gemm", at + 50, at + 500);
      t.Launch(at + 50, at + 60, "relu", at + 502, at + 700 + 20 * i);
      t.Api(at + 70, at + 800, "cudaDeviceSynchronize", trace::CallKind::kContextSync);
    }
    trace::Trace trace = t.trace();
    trace.rank = rank;
    trace.world_size = world_size;
    return trace;
  }

  static constexpr int64_t kBeginNs = 1'767'348'900'000'000'000;
  const TempFolder folder_;
  DaemonOptions options_;
};

TEST_F(TraceExportTest, AnImportedTraceIsTheSameJobWhenItIsImportedAgain) {
  auto daemon = Start();
  ASSERT_TRUE(Import(*daemon, "first", {Written(Steps())}, "train (\\d+)").ok());
  const std::string text = Export(*daemon, "first", v1::ExportRequest::FORMAT_CHROME);
  // Without the marker: the file says where iterations begin, and their lengths.
  const auto again = Import(*daemon, "again", {text});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->traces(0).message(), "");
  EXPECT_EQ(again->traces(0).calls(), 20);
  const std::vector<std::string> iterations = Iterations(*daemon, "first");
  ASSERT_EQ(iterations.size(), 4u);  // the last mark only ends one
  EXPECT_THAT(iterations[2], HasSubstr("2: 50, "));
  EXPECT_EQ(Iterations(*daemon, "again"), iterations);
  EXPECT_EQ(Kernels(*daemon, "again"), Kernels(*daemon, "first"));
  EXPECT_EQ(Replay(*daemon, "again").iterations_size(), 4);
}

TEST_F(TraceExportTest, FilesOneAfterTheOtherAreNotOneRun) {
  trace::Trace later = Steps();
  for (trace::Call& call : later.calls)
    call.begin_ns += 9'000'000'000, call.end_ns += 9'000'000'000;
  for (trace::Work& work : later.works)
    work.start_ns += 9'000'000'000, work.end_ns += 9'000'000'000;
  for (trace::Span& span : later.spans)
    span.begin_ns += 9'000'000'000, span.end_ns += 9'000'000'000;
  auto daemon = Start();
  ASSERT_TRUE(Import(*daemon, "first", {Written(Steps()), Written(later)}, "train (\\d+)").ok());
  const std::string text = Export(*daemon, "first", v1::ExportRequest::FORMAT_CHROME);
  ASSERT_TRUE(Import(*daemon, "again", {text}).ok());
  const std::vector<std::string> iterations = Iterations(*daemon, "first");
  EXPECT_EQ(iterations.size(), 8u);
  EXPECT_EQ(Iterations(*daemon, "again"), iterations);
}

TEST_F(TraceExportTest, RanksAreProcessesOfOneFileThatIsOnlyToBeLookedAt) {
  auto daemon = Start();
  ASSERT_TRUE(
      Import(*daemon, "ranks", {Written(Steps(0, 2)), Written(Steps(1, 2))}, "train (\\d+)").ok());
  const std::string text = Export(*daemon, "ranks", v1::ExportRequest::FORMAT_CHROME);
  EXPECT_THAT(text, AllOf(HasSubstr("\"rank 0, GPU 0\""), HasSubstr("\"pid\":5000000,"),
                          HasSubstr("\"rank 1, GPU 0\""), HasSubstr("\"pid\":15000000,")));
  EXPECT_THAT(std::string(Import(*daemon, "again", {text}).status().message()),
              HasSubstr("several ranks"));
  const std::string replay = Export(*daemon, "ranks", v1::ExportRequest::FORMAT_REPLAY);
  EXPECT_THAT(replay, AllOf(HasSubstr("\"rank 1, GPU 0\""), HasSubstr("stream 0 (replayed)")));
}

// A job of our own: iterations 40 and 41, which follow each other, and 70, 5 ms each, were traced.
// The GPU is busy for 1 ms after the CPU has gone on.
constexpr int64_t kOwnPeriodNs = 5'000'000;
void AddOwnJob(Store& store, int64_t begin_ns) {
  WriteBatch batch;
  const int64_t job_id = store.NewJobId(), process_id = store.NewProcessId();
  batch.jobs = {{.job_id = job_id,
                 .name = "own",
                 .run_id = "1",
                 .command = "train",
                 .state = v1::JOB_STATE_ENDED,
                 .start_ns = begin_ns - 1'000'000'000,
                 .end_ns = begin_ns + 9'000'000'000}};
  batch.names = {{.process_id = process_id, .name_id = 5, .text = "_Z4axpyfPf"}};
  const auto boundary_ns = [&](int64_t number) { return begin_ns + (number - 40) * kOwnPeriodNs; };
  for (int64_t number = 40; number < 72; ++number) {
    const bool traced = number <= 41 || number == 70;
    batch.iterations.push_back({.job_id = job_id,
                                .number = number,
                                .length_count = 1,
                                .length = {number, 0},
                                .start_ns = boundary_ns(number) + 20'000,
                                .duration_ns = kOwnPeriodNs,
                                .config_id = traced ? uint32_t{abi::kConfigTrace} : 0,
                                .boundary_ns = boundary_ns(number)});
    if (!traced) continue;
    std::string records;
    const auto add = [&](const abi::DataRecord& record) {
      records.append(reinterpret_cast<const char*>(&record), sizeof(record));
    };
    for (uint32_t i = 0; i < 3; ++i) {
      const auto at_ns = static_cast<uint64_t>(boundary_ns(number)) + i * 2'000'000;
      abi::DataRecord kernel = {};
      kernel.kernel.type = static_cast<uint16_t>(abi::DataType::kKernel);
      kernel.kernel.name_id = 5;
      kernel.kernel.correlation_id = i + 1;  // the same in all windows, as if restarted
      kernel.kernel.stream = 7;
      kernel.kernel.registers_per_thread = 32;
      kernel.kernel.start_ns = at_ns + 20'000;
      kernel.kernel.end_ns = at_ns + 1'900'000;
      add(kernel);
      if (i == 0) continue;  // in its call the window was opened
      abi::DataRecord call = {};
      call.api.type = static_cast<uint16_t>(abi::DataType::kApi);
      call.api.op = static_cast<uint8_t>(abi::Op::kLaunch);
      call.api.correlation_id = i + 1;
      call.api.thread_id = 77;
      call.api.start_ns = at_ns + 10'000;
      call.api.end_ns = at_ns + 12'000;
      add(call);
    }
    batch.trace_segments.push_back(
        {.job_id = job_id, .number = number, .process_id = process_id, .records = records});
  }
  ASSERT_TRUE(store.Write(batch).ok());
}

TEST_F(TraceExportTest, OurOwnWindowsAreIterationsOfTheirOwnWhenImported) {
  AddOwnJob(**Store::Open(options_.store_path, {}), kBeginNs);
  auto daemon = Start();
  const std::string text = Export(*daemon, "own", v1::ExportRequest::FORMAT_CHROME);
  EXPECT_THAT(text, AllOf(HasSubstr("\"cat\":\"cuda_driver\",\"name\":\"cuLaunchKernel\""),
                          HasSubstr("\"registers per thread\":32"), HasSubstr("\"iteration\":41"),
                          HasSubstr("axpy(float, float*)")));
  const auto imported = Import(*daemon, "again", {text});
  ASSERT_TRUE(imported.ok()) << imported.status();
  ASSERT_EQ(imported->traces_size(), 1);
  EXPECT_EQ(imported->traces(0).iterations(), 3);
  EXPECT_EQ(imported->traces(0).calls(), 9);  // those that opened the windows, too
  EXPECT_EQ(imported->traces(0).gpu_tasks(), 9);
  // Until the GPU is done, and not until the next window.
  constexpr int64_t kDoneNs = 5'900'000;
  EXPECT_THAT(Iterations(*daemon, "again"),
              testing::ElementsAre(absl::StrCat("0: 40, 0, ", kDoneNs),
                                   absl::StrCat("1: 41, ", kOwnPeriodNs, ", ", kDoneNs),
                                   absl::StrCat("2: 70, ", 30 * kOwnPeriodNs, ", ", kDoneNs)));
  const v1::ReplayReply replay = Replay(*daemon, "again");
  ASSERT_EQ(replay.iterations_size(), 3);
  for (const v1::ReplayedIteration& iteration : replay.iterations()) {
    EXPECT_NEAR(iteration.replayed_duration_ns(), kDoneNs, 500'000);
  }
  // And once more.
  ASSERT_TRUE(
      Import(*daemon, "third", {Export(*daemon, "again", v1::ExportRequest::FORMAT_CHROME)}).ok());
  EXPECT_EQ(Iterations(*daemon, "third"), Iterations(*daemon, "again"));
}

// Begin and length in microseconds of the events of a row (its "tid"), in the order of the file.
std::vector<std::pair<double, double>> Row(const std::string& text, const std::string& category,
                                           const std::string& thread) {
  std::vector<std::pair<double, double>> events;
  for (size_t at = 0; (at = text.find("\n{\"ph\":\"X\"", at)) != std::string::npos; ++at) {
    const std::string line = text.substr(at + 1, text.find('\n', at + 1) - at);
    double ts = 0, duration = 0;
    const size_t times = line.find("\"ts\":");
    if (line.find(absl::StrCat("\"cat\":\"", category, "\"")) == std::string::npos ||
        line.find(absl::StrCat("\"tid\":", thread, ",")) == std::string::npos ||
        std::sscanf(line.c_str() + times, "\"ts\":%lf,\"dur\":%lf", &ts, &duration) != 2) {
      continue;
    }
    events.emplace_back(ts, duration);
  }
  return events;
}

TEST_F(TraceExportTest, AReplayLiesBelowItsTrace) {
  AddOwnJob(**Store::Open(options_.store_path, {}), kBeginNs);
  auto daemon = Start();
  ASSERT_TRUE(Import(*daemon, "steps", {Written(Steps())}, "train (\\d+)").ok());
  ASSERT_TRUE(
      Import(*daemon, "windows", {Export(*daemon, "own", v1::ExportRequest::FORMAT_CHROME)}).ok());
  for (const auto& [job, stream, works, tolerance_us] :
       {std::tuple("steps", 0, 10, 30.0), std::tuple("windows", 7, 9, 2000.0)}) {
    SCOPED_TRACE(job);
    const std::string text = Export(*daemon, job, v1::ExportRequest::FORMAT_REPLAY);
    EXPECT_THAT(text, AllOf(HasSubstr(absl::StrCat("stream ", stream, " (replayed)")),
                            HasSubstr("iterations (replayed)"), Not(HasSubstr("nan"))));
    const auto measured = Row(text, "kernel", absl::StrCat(stream));
    const auto replayed = Row(text, "kernel", absl::StrCat(1'000'000'000 + stream));
    ASSERT_EQ(measured.size(), static_cast<size_t>(works));
    ASSERT_EQ(replayed.size(), measured.size());
    for (size_t i = 0; i < measured.size(); ++i) {
      EXPECT_EQ(replayed[i].second, measured[i].second);  // what was not changed takes as long
      // In a row of windows the GPU is behind the CPU, unlike in the one that was traced.
      EXPECT_NEAR(replayed[i].first, measured[i].first, tolerance_us);
    }
    EXPECT_THAT(std::string(Import(*daemon, "again", {text}).status().message()),
                HasSubstr("a replay beside the trace"));
  }
  v1::ExportRequest request;
  request.set_job("own");
  request.set_format(v1::ExportRequest::FORMAT_REPLAY);
  const auto nothing = [](std::string_view) { return true; };
  // Without its state, which rule found its iterations is not known.
  EXPECT_FALSE(daemon->backend().Export(request, nothing).ok());
  request.set_job("steps");
  EXPECT_EQ(daemon->backend().Export(request, [](std::string_view) { return false; }).code(),
            absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace seqpoint::service
