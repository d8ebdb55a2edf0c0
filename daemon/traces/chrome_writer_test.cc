#include "daemon/traces/chrome_writer.h"

#include <gtest/gtest.h>
#include <simdjson.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/traces/gunzip.h"
#include "daemon/traces/trace_reader.h"
#include "tests/support/shared_traces.h"
#include "tests/support/trace_file.h"

namespace seqpoint::traces {
namespace {

using trace::CallKind;
using trace::kNone;
using trace::SpanKind;
using trace::Trace;
using trace::Work;
using trace::WorkKind;

// Everything in a trace, a line each, without the numbers of names, threads and streams.
std::vector<std::string> Lines(const Trace& trace) {
  std::vector<std::string> lines = {absl::StrCat("rank ", trace.rank, "/", trace.world_size)};
  for (size_t i = 0; i < trace.gpus.size(); ++i) {
    if (!trace.gpus[i].empty()) lines.push_back(absl::StrCat("gpu ", i, " ", trace.gpus[i]));
  }
  const auto stream = [&](uint32_t i) {
    if (i == kNone) return std::string("none");
    return absl::StrCat(trace.streams[i].device, "/", trace.streams[i].id);
  };
  for (const trace::Span& span : trace.spans) {
    lines.push_back(absl::StrCat("span ", span.begin_ns, " ", span.end_ns, " ",
                                 trace.names[span.name], " on ", trace.threads[span.thread], " ",
                                 static_cast<int>(span.kind)));
  }
  for (const trace::Call& call : trace.calls) {
    lines.push_back(absl::StrCat("call ", call.begin_ns, " ", call.end_ns, " ", call.correlation,
                                 " ", trace.names[call.name], " on ", trace.threads[call.thread],
                                 " ", static_cast<int>(call.kind)));
  }
  for (const Work& work : trace.works) {
    lines.push_back(absl::StrCat("work ", work.start_ns, " ", work.end_ns, " ", work.correlation,
                                 " ", work.bytes, " ", trace.names[work.name], " in ",
                                 stream(work.stream), " ", absl::StrJoin(work.grid, ","), " ",
                                 absl::StrJoin(work.block, ","), " ", static_cast<int>(work.kind),
                                 work.pageable ? " pageable" : ""));
  }
  for (const trace::Wait& wait : trace.waits) {
    lines.push_back(absl::StrCat("wait ", wait.correlation, " ", wait.record_correlation, " ",
                                 stream(wait.stream), " ", stream(wait.source)));
  }
  for (const trace::Flow& flow : trace.flows) {
    lines.push_back(absl::StrCat("flow ", flow.forward_ns, " on ",
                                 trace.threads[flow.forward_thread], " to ", flow.backward_ns,
                                 " on ", trace.threads[flow.backward_thread]));
  }
  return lines;
}

size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
  return count;
}

std::string Written(const Trace& trace, const ChromeRows& rows = {}) {
  std::string text;
  int64_t base_ns = trace.works.empty() ? 0 : trace.works[0].start_ns;
  for (const trace::Call& call : trace.calls) base_ns = std::min(base_ns, call.begin_ns);
  const ChromeFile file = {.name = "a \"job\"",
                           .base_ns = std::max<int64_t>(base_ns, 0),
                           .rank = trace.rank,
                           .world_size = trace.world_size,
                           .gpus = trace.gpus,
                           .only_to_view = rows.by_rank ? "it has several ranks" : ""};
  const auto write = [&](std::string_view piece) {
    text += piece;
    return true;
  };
  ChromeWriter writer(file, write);
  EXPECT_TRUE(writer.Add(trace, rows));
  EXPECT_TRUE(writer.Finish());
  return text;
}

absl::StatusOr<Trace> Read(const std::string& text) {
  TraceReader reader({.name = "t.json"});
  if (absl::Status status = reader.Add(text); !status.ok()) return status;
  return reader.Finish();
}

void ExpectSame(const Trace& trace, const std::string& text) {
  const auto again = Read(text);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(LeftOutInWords(again->left_out), "");
  const std::vector<std::string> expected = Lines(trace), lines = Lines(*again);
  ASSERT_EQ(lines.size(), expected.size());
  int different = 0;
  for (size_t i = 0; i < lines.size() && different < 5; ++i) {
    EXPECT_EQ(lines[i], expected[i]);
    different += lines[i] != expected[i];
  }
}

// Two devices, all kinds of calls and work, and names that need care.
Trace MadeTrace() {
  Trace trace;
  trace.names = {"",
                 "cudaLaunchKernel",
                 "cuGraphLaunch",
                 "cudaStreamWaitEvent",
                 "cudaEventRecord",
                 "cudaMemcpyAsync",
                 "void gemm<\"a\\b\">(float*)\t\x01\x7f\xc3\xa4",
                 "ncclDevKernel_AllReduce",
                 "Memcpy HtoD (Pageable -> Device)",
                 "Memcpy DtoH",
                 "CopyPeerToPeer",
                 "Memset (Device)",
                 "graph 7",
                 "aten::mm",
                 "ProfilerStep#3",
                 "ProfilerStep#4 lengths=[37,5]",
                 "ProfilerStep#5 lengths=[,5]",
                 "nvtx lengths=[1]"};
  trace.threads = {"12/345 python \"main\" \\", "12/345678", "Spans/PyTorch Profiler", "/77 thread",
                   "3/-5"};
  trace.streams = {{0, 7}, {1, 7}, {1, -3}, {0, 20}, {0, 0}};
  trace.gpus = {"NVIDIA \"X\"", "", "Y"};
  trace.rank = 3;
  trace.world_size = 8;
  constexpr int64_t kBegin = 1'767'348'900'123'456'789;
  const auto call = [&](int64_t at, uint64_t correlation, uint32_t name, uint32_t thread,
                        CallKind kind) {
    trace.calls.push_back({kBegin + at, kBegin + at + 1'001, correlation, name, thread, kind});
  };
  call(0, 1, 1, 0, CallKind::kLaunch);
  call(2'000, 2, 2, 1, CallKind::kGraphLaunch);
  call(4'000, 3, 3, 0, CallKind::kStreamWait);
  call(6'000, 4, 4, 3, CallKind::kEventRecord);
  call(8'000, 5, 5, 4, CallKind::kCopy);
  call(10'000, 0, 1, 0, CallKind::kLaunch);
  const auto work = [&](int64_t at, uint64_t correlation, uint32_t name, uint32_t stream,
                        WorkKind kind) -> Work& {
    Work& w = trace.works.emplace_back();
    w.start_ns = kBegin + at;
    w.end_ns = kBegin + at + 12'345;
    w.correlation = correlation;
    w.name = name;
    w.stream = stream;
    w.kind = kind;
    return w;
  };
  Work& gemm = work(100, 1, 6, 0, WorkKind::kKernel);
  std::fill_n(gemm.grid, 3, 4'000'000'000u);
  std::fill_n(gemm.block, 3, uint16_t{1024});
  work(200, 1, 7, 1, WorkKind::kCollective).bytes = 123'456'789'012;
  work(300, 5, 8, 2, WorkKind::kCopyH2D).pageable = true;
  trace.works.back().bytes = 4096;
  work(400, 5, 9, 3, WorkKind::kCopyD2H).pageable = true;  // which its name does not tell
  work(-400, 99, 10, 3, WorkKind::kCopyOther);             // before all calls
  work(500, 5, 9, 3, WorkKind::kCopyD2H).bytes = 1;
  work(600, 5, 11, 4, WorkKind::kMemset).bytes = 64;
  work(700, 2, 12, 0, WorkKind::kGraph);
  trace.works.back().end_ns = trace.works.back().start_ns;
  trace.spans = {{kBegin, kBegin + 9, 13, 0, SpanKind::kOperator},
                 {kBegin, kBegin + 20, 14, 0, SpanKind::kAnnotation},
                 {kBegin + 21, kBegin + 30, 15, 2, SpanKind::kAnnotation},
                 {kBegin + 21, kBegin + 30, 16, 2, SpanKind::kAnnotation},
                 {kBegin + 31, kBegin + 31, 17, 3, SpanKind::kAnnotation}};
  trace.waits = {{3, 4, 0, 3}, {5, 0, 1, kNone}, {1, 0, kNone, 0}, {98, 0, kNone, kNone}};
  trace.flows = {{kBegin, kBegin + 9'001, 0, 1}, {kBegin + 31, kBegin + 5, 3, 3}};
  return trace;
}

TEST(ChromeWriterTest, WhatWasWrittenIsReadAgain) {
  const Trace trace = MadeTrace();
  const std::string text = Written(trace);
  simdjson::dom::parser parser;
  EXPECT_EQ(parser.parse(text).error(), simdjson::SUCCESS) << text;
  ExpectSame(trace, text);
}

// Perfetto draws an arrow from each launch to its work where both ends have one number.
TEST(ChromeWriterTest, ArrowsLeadFromLaunchesToTheirWork) {
  const std::string text = Written(MadeTrace());
  simdjson::dom::parser parser;
  simdjson::dom::element document;
  ASSERT_EQ(parser.parse(text).get(document), simdjson::SUCCESS);
  std::map<std::string, std::vector<std::string>> ends;  // by category and number
  for (const simdjson::dom::element event : document["traceEvents"].get_array()) {
    const std::string_view phase = event["ph"];
    if (phase != "s" && phase != "f") continue;
    const std::string_view category = event["cat"];
    std::string_view binds;
    EXPECT_EQ(event["bp"].get(binds), phase == "f" ? simdjson::SUCCESS : simdjson::NO_SUCH_FIELD);
    ends[absl::StrCat(std::string(category), " ", event["id"].get_uint64().value())].push_back(
        absl::StrCat(std::string(phase), " ", simdjson::minify(event["pid"].value()), "/",
                     simdjson::minify(event["tid"].value()), " ",
                     event["ts"].get_double().value()));
  }
  // A collective and a kernel of one launch, a graph launch, copies of one call, two of operators.
  EXPECT_EQ(ends.size(), 5u);
  EXPECT_EQ(ends["ac2g 1"],
            (std::vector<std::string>{"s 12/345 0", "f 5000000/7 0.1", "f 5000001/7 0.2"}));
  EXPECT_EQ(ends["ac2g 3"], (std::vector<std::string>{"s 12/345678 2", "f 5000000/7 0.7"}));
  EXPECT_EQ(ends["fwdbwd 4"], (std::vector<std::string>{"s 12/345 0", "f 12/345678 9.001"}));
}

TEST(ChromeWriterTest, BytesThatAreNoUtf8BecomeSigns) {
  Trace trace = MadeTrace();
  trace.names[13] = "aten::\xff";
  const std::string text = Written(trace);
  trace.names[13] = "aten::\xEF\xBF\xBD";
  ExpectSame(trace, text);
}

TEST(ChromeWriterTest, GpusAndProcessesOfAContainerHaveRowsOfTheirOwn) {
  Trace trace = MadeTrace();
  trace.threads = {"1/7 a", "1/8 b", "0/7 c", "1/9 d", "1/10 e"};
  ExpectSame(trace, Written(trace));
}

TEST(ChromeWriterTest, TimesBefore1970AndAGoneReceiver) {
  Trace trace = MadeTrace();
  for (Work& work : trace.works) {
    work.start_ns -= 1'767'348'900'123'456'789;
    work.end_ns -= 1'767'348'900'123'456'789;
  }
  trace.calls.clear();
  trace.waits.clear();
  trace.spans.clear();
  ExpectSame(trace, Written(trace));
  const auto gone = [](std::string_view) { return false; };
  ChromeWriter writer({}, gone);
  EXPECT_TRUE(writer.Add(trace));  // fits into one piece
  EXPECT_FALSE(writer.Finish());
}

TEST(ChromeWriterTest, RanksAndReplaysHaveRowsBesideEachOther) {
  const Trace trace = MadeTrace();
  const std::string text = Written(trace, {.process = "train", .by_rank = true, .replayed = true});
  for (const char* part :
       {R"j("pid":30000012,"tid":1000000345,"args":{"name":"python \"main\" \\ (replayed)"})j",
        R"j("pid":30000012,"tid":0,"args":{"name":"rank 3, train"})j",
        R"j("pid":35000001,"tid":0,"args":{"name":"rank 3, GPU 1"})j",
        R"j("tid":1000000007,"args":{"name":"stream 7 (replayed)"})j",
        R"j("tid":1000000007,"args":{"sort_index":15})j"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
  EXPECT_EQ(Read(text).status().message(),
            "t.json is only to be looked at: it has several ranks; give the traces that it was "
            "made of");
}

std::string WholeFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class ChromeWriterTracesTest : public ::testing::TestWithParam<std::string> {};

TEST_P(ChromeWriterTracesTest, RecordedTracesComeBack) {
  const std::string path = SharedTraces() + "/" + GetParam();
  if (!std::filesystem::exists(path)) {
    GTEST_SKIP() << "no " << path << "; set SEQPOINT_SHARED_DATA to the folder that holds traces/";
  }
  const auto trace = ReadTraceFile(path);
  ASSERT_TRUE(trace.ok()) << trace.status();
  const std::string text = Written(*trace);
  ExpectSame(*trace, text);
  // As many arrows as the source has: one to each work whose launch is there, one to each backward
  // operator.
  std::string source;
  Gunzip gunzip;
  gunzip.Add(WholeFile(path), [&](std::string_view piece) { source.append(piece); });
  const size_t of_operators = Count(source, "\"cat\": \"fwdbwd\"");
  EXPECT_EQ(Count(text, "\"cat\":\"fwdbwd\""), of_operators);
  EXPECT_EQ(trace->flows.size() * 2, of_operators);
  std::set<uint64_t> launched;
  for (const trace::Call& call : trace->calls) launched.insert(call.correlation);
  size_t joined = 0;
  for (const Work& work : trace->works) {
    joined += work.correlation != 0 && launched.contains(work.correlation) ? 1 : 0;
  }
  EXPECT_EQ(Count(text, "{\"ph\":\"f\",\"cat\":\"ac2g\""), joined);
}

INSTANTIATE_TEST_SUITE_P(Recorded, ChromeWriterTracesTest,
                         ::testing::ValuesIn(OrNone(SharedTraceFiles())),
                         [](const auto& info) { return TestNameOf(info.param); });

}  // namespace
}  // namespace seqpoint::traces
