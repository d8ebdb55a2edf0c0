#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>
#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "daemon/traces/trace_reader.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "injection/abi/control.h"
#include "injection/abi/records.h"
#include "tests/support/daemon_in_process.h"

namespace seqpoint::service {
namespace {

using ::testing::HasSubstr;

class ExportTest : public DaemonTest {};

TEST_F(ExportTest, TheTraceIsJsonWithNamedRowsAndExactTimes) {
  constexpr int64_t kJobStartNs = 1'767'348'900'123'456'789;
  constexpr int64_t kStepStartNs = kJobStartNs + 2'000'000'001;
  {
    auto store = OpenStore();
    WriteBatch batch;
    const int64_t job_id = store->NewJobId();
    const int64_t process_id = store->NewProcessId();
    const int64_t on_host_id = store->NewJobId();
    batch.jobs.push_back({.job_id = on_host_id,
                          .name = "on the host",
                          .run_id = "1",
                          .state = v1::JOB_STATE_ENDED,
                          .start_ns = kJobStartNs,
                          .end_ns = kJobStartNs + 9'000'000'000});
    for (const char* name : {"traced", "not traced"}) {
      batch.jobs.push_back({.job_id = name[0] == 't' ? job_id : store->NewJobId(),
                            .name = name,
                            .run_id = "1",
                            .command = "train \"x\"",
                            .state = v1::JOB_STATE_ENDED,
                            .start_ns = kJobStartNs,
                            .end_ns = kJobStartNs + 9'000'000'000});
    }
    batch.names = {{.process_id = process_id, .name_id = 5, .text = "_Z4axpyfPf"}};
    batch.iterations = {{.job_id = job_id,
                         .number = 40,
                         .length_count = 1,
                         .length = {37, 0},
                         .start_ns = kStepStartNs,
                         .duration_ns = 1'000'000,
                         .config_id = abi::kConfigTrace}};
    std::string records;
    for (const uint32_t stream : {7, 7, 20}) {
      abi::DataRecord record = {};
      record.kernel.type = static_cast<uint16_t>(abi::DataType::kKernel);
      record.kernel.name_id = 5;
      record.kernel.start_ns = kStepStartNs + records.size() + 1;
      record.kernel.end_ns = record.kernel.start_ns + 333;
      record.kernel.stream = stream;
      records.append(reinterpret_cast<const char*>(&record), sizeof(record));
    }
    abi::DataRecord copy = {};
    copy.copy.type = static_cast<uint16_t>(abi::DataType::kCopy);
    copy.copy.kind = 1;  // host to device
    copy.copy.bytes = 4096;
    copy.copy.correlation_id = 77;
    copy.copy.start_ns = kStepStartNs + records.size() + 1;
    copy.copy.end_ns = copy.copy.start_ns + 333;
    copy.copy.stream = 20;
    records.append(reinterpret_cast<const char*>(&copy), sizeof(copy));
    abi::DataRecord graph = {};
    graph.graph.type = static_cast<uint16_t>(abi::DataType::kGraph);
    graph.graph.start_ns = kStepStartNs + records.size() + 1;
    graph.graph.end_ns = graph.graph.start_ns + 333;
    graph.graph.stream = 20;
    records.append(reinterpret_cast<const char*>(&graph), sizeof(graph));
    batch.trace_segments = {
        {.job_id = job_id, .number = 40, .process_id = process_id, .records = records}};
    abi::DataRecord collective = {};
    collective.collective.type = static_cast<uint16_t>(abi::DataType::kCollective);
    batch.trace_segments.push_back(
        {.job_id = on_host_id,
         .number = 3,
         .process_id = store->NewProcessId(),
         .records = {reinterpret_cast<const char*>(&collective), sizeof(collective)}});
    ASSERT_TRUE(store->Write(batch).ok());
  }
  auto daemon = Start();
  std::string text;
  v1::ExportRequest request;
  request.set_format(v1::ExportRequest::FORMAT_CHROME);
  const auto export_job = [&](const char* name) {
    request.set_job(name);
    return daemon->backend().Export(request, [&](std::string_view piece) {
      text += piece;
      return true;
    });
  };
  // An ended job has nothing to wait for. Collectives alone are no trace.
  for (const char* name : {"not traced", "on the host"}) {
    EXPECT_THAT(std::string(export_job(name).message()),
                testing::AllOf(HasSubstr("no iteration was traced"), HasSubstr("--csv"),
                               testing::Not(HasSubstr("wait"))));
    EXPECT_EQ(text, "");
  }
  ASSERT_TRUE(export_job("traced").ok());

  google::protobuf::Struct trace;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(text, &trace).ok()) << text;
  EXPECT_THAT(text, HasSubstr(absl::StrCat("\"baseTimeNanoseconds\":", kJobStartNs)));
  std::map<std::pair<double, double>, std::string> threads;  // (pid, tid) -> name
  std::map<double, std::string> processes;
  std::vector<double> times_us;
  for (const auto& value : trace.fields().at("traceEvents").list_value().values()) {
    const auto& event = value.struct_value().fields();
    const double pid = event.at("pid").number_value(), tid = event.at("tid").number_value();
    if (event.at("ph").string_value() == "M") {
      const auto& arguments = event.at("args").struct_value().fields();
      const std::string& what = event.at("name").string_value();
      if (what == "process_name") processes[pid] = arguments.at("name").string_value();
      if (what == "thread_name") threads[{pid, tid}] = arguments.at("name").string_value();
      continue;
    }
    // Every event lies in a row that has a name by then.
    EXPECT_EQ(processes.count(pid), 1u) << event.at("name").string_value();
    EXPECT_EQ(threads.count({pid, tid}), 1u) << event.at("name").string_value();
    times_us.push_back(event.at("ts").number_value());
  }
  EXPECT_THAT(processes, testing::ElementsAre(testing::Pair(0, "GPU 0"),
                                              testing::Pair(1e6, "train \"x\", rank 0")));
  EXPECT_EQ((threads[{0, 20}]), "stream 20");
  EXPECT_EQ(threads.size(), 3u);
  // The step, and that nothing was recorded behind it.
  EXPECT_THAT(times_us,
              testing::ElementsAre(2'000'000.001, 2'001'000.001, 2'000'000.002, 2'000'000.066,
                                   2'000'000.130, 2'000'000.194, 2'000'000.258));

  // And it is a trace that we read ourselves, to the nanosecond.
  traces::TraceReader reader({.name = "out.json"});
  ASSERT_TRUE(reader.Add(text).ok());
  const auto read = reader.Finish();
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->source, "SeqPoint, out.json");
  EXPECT_EQ(traces::LeftOutInWords(read->left_out), "");
  ASSERT_EQ(read->spans.size(), 2u);
  EXPECT_EQ(read->names[read->spans[0].name], "ProfilerStep#40 lengths=[37]");
  EXPECT_EQ(read->spans[0].begin_ns, kStepStartNs);
  EXPECT_EQ(read->spans[0].end_ns, kStepStartNs + 1'000'000);
  ASSERT_EQ(read->works.size(), 5u);
  EXPECT_EQ(read->works[3].kind, trace::WorkKind::kCopyH2D);
  EXPECT_EQ(read->works[3].bytes, 4096u);
  EXPECT_EQ(read->works[3].correlation, 77u);
  EXPECT_EQ(read->works[4].kind, trace::WorkKind::kGraph);
  for (size_t i = 0; i < 5; ++i) {
    const trace::Work& work = read->works[i];
    if (i < 3) {
      EXPECT_EQ(work.kind, trace::WorkKind::kKernel);
      EXPECT_EQ(read->names[work.name], "axpy(float, float*)");
    }
    EXPECT_EQ(work.start_ns, kStepStartNs + 1 + static_cast<int64_t>(i * sizeof(abi::DataRecord)));
    EXPECT_EQ(work.end_ns, work.start_ns + 333);
    EXPECT_EQ(read->streams[work.stream].id, i < 2 ? 7 : 20);
  }
}

TEST_F(ExportTest, WhatRanBesideIsMarkedInEachRow) {
  {
    auto store = OpenStore();
    WriteBatch batch;
    batch.jobs.push_back({.job_id = store->NewJobId(),
                          .name = "j",
                          .run_id = "1",
                          .state = v1::JOB_STATE_ENDED,
                          .start_ns = 1,
                          .end_ns = 2});
    batch.processes.push_back({.process_id = store->NewProcessId(),
                               .job_id = batch.jobs[0].job_id,
                               .ring_id = std::string(16, 'r'),
                               .end_ns = 2});
    for (const uint32_t flags : {0u, uint32_t{kIterationConcurrent}}) {
      batch.iterations.push_back({.job_id = batch.jobs[0].job_id,
                                  .number = 4,
                                  .incarnation = flags == 0 ? 0 : 1,
                                  .length_count = 1,
                                  .length = {37, 0},
                                  .start_ns = 9,
                                  .duration_ns = 7,
                                  .flags = flags});
    }
    ASSERT_TRUE(store->Write(batch).ok());
  }
  auto daemon = Start();
  v1::ListIterationsRequest list;
  list.set_job("j");
  list.set_page_size(10);
  const auto reply = daemon->backend().ListIterations(list);
  ASSERT_TRUE(reply.ok()) << reply.status();
  ASSERT_EQ(reply->iterations_size(), 2);
  EXPECT_FALSE(reply->iterations(0).concurrent());
  EXPECT_TRUE(reply->iterations(1).concurrent());
  const std::string text = ExportCsv(*daemon, "j");
  EXPECT_EQ(
      text,
      "rank,iteration,incarnation,length,length2,start_ns,duration_ns,rest_ns,config,distorted,"
      "redone,concurrent,phase\n0,4,0,37,,9,7,0,,0,0,0,\n0,4,1,37,,9,7,0,,0,0,1,\n");
}

}  // namespace
}  // namespace seqpoint::service
