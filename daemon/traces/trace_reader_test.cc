#include "daemon/traces/trace_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "daemon/traces/call_records.h"
#include "daemon/traces/json_text.h"

namespace seqpoint::traces {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using trace::CallKind;
using trace::Trace;
using trace::WorkKind;

absl::StatusOr<Trace> Read(std::string_view text, size_t piece = std::string_view::npos) {
  TraceReader reader({.name = "t.json"});
  while (!text.empty()) {
    const size_t n = std::min(piece, text.size());
    if (const absl::Status status = reader.Add(text.substr(0, n)); !status.ok()) return status;
    text.remove_prefix(n);
  }
  return reader.Finish();
}

std::string Refusal(std::string_view text) {
  const auto trace = Read(text);
  if (trace.ok()) return "it was read";
  EXPECT_EQ(trace.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(trace.status().message());
}

// Everything in a trace, for comparisons.
std::string Dump(const absl::StatusOr<Trace>& read) {
  if (!read.ok()) return std::string(read.status().message());
  const Trace& trace = *read;
  std::string text = absl::StrCat(trace.source, " rank ", trace.rank, "/", trace.world_size, "\n");
  for (const auto& gpu : trace.gpus) absl::StrAppend(&text, "gpu ", gpu, "\n");
  for (const auto& thread : trace.threads) absl::StrAppend(&text, "thread ", thread, "\n");
  for (const auto& s : trace.streams) absl::StrAppend(&text, "stream ", s.device, ":", s.id, "\n");
  for (const auto& c : trace.calls) {
    absl::StrAppend(&text, "call ", c.begin_ns, " ", c.end_ns, " ", c.correlation, " ",
                    trace.names[c.name], " ", c.thread, " ", static_cast<int>(c.kind), "\n");
  }
  for (const auto& w : trace.works) {
    absl::StrAppend(&text, "work ", w.start_ns, " ", w.end_ns, " ", w.correlation, " ", w.bytes,
                    " ", trace.names[w.name], " ", w.stream, " ", w.grid[0], ",", w.grid[1], ",",
                    w.grid[2], " ", w.block[0], ",", w.block[1], ",", w.block[2], " ");
    absl::StrAppend(&text, static_cast<int>(w.kind), w.pageable ? " pageable" : "", "\n");
  }
  for (const auto& s : trace.spans) {
    absl::StrAppend(&text, "span ", s.begin_ns, " ", s.end_ns, " ", trace.names[s.name], " ",
                    s.thread, " ", static_cast<int>(s.kind), "\n");
  }
  for (const auto& w : trace.waits) {
    absl::StrAppend(&text, "wait ", w.correlation, " ", w.record_correlation, " ", w.stream, " ",
                    w.source, "\n");
  }
  const auto& l = trace.left_out;
  absl::StrAppend(&text, "left out ", l.damaged, "@", l.first_damaged_at, " ", l.mended, " ",
                  l.without_duration, " ", l.python_frames, " ", l.other, " ");
  absl::StrAppend(&text, l.trailing_bytes, l.truncated ? " truncated" : "");
  return text;
}

constexpr char kCall[] =
    R"({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 10, "tid": 11,
    "ts": 1000.5, "dur": 4, "args": {"cbid": 211, "correlation": 7}})";
constexpr char kKernel[] =
    R"({"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 1010, "dur": 20,
    "args": {"device": 0, "stream": 7, "correlation": 7, "grid": [4, 2, 1], "block": [128, 1, 1]}})";

// A document of `elements` between a call and its kernel.
std::string Document(const std::vector<std::string>& elements) {
  std::string text = absl::StrCat("{\"schemaVersion\": 1, \"traceEvents\": [\n", kCall);
  for (const std::string& element : elements) absl::StrAppend(&text, ",\n  ", element);
  return absl::StrCat(text, ",\n  ", kKernel, "\n]}");
}

// A work with `name`, and what `more` sets.
std::string Kernel(const std::string& name, const std::string& more = "\"ts\": 1, \"dur\": 1") {
  return absl::StrCat(R"({"ph": "X", "cat": "kernel", "name": ")", name,
                      R"(", "pid": 0, "tid": 7, "args": {"stream": 7, "correlation": 5}, )", more,
                      "}");
}

// The trace of a document with `element` in it; its work, if any, is works[0].
Trace With(const std::string& element) {
  auto trace = Read(Document({element}));
  EXPECT_TRUE(trace.ok()) << trace.status();
  return trace.ok() ? *std::move(trace) : Trace();
}

std::string NameOf(const Trace& trace, size_t work = 0) {
  return work < trace.works.size() ? trace.names[trace.works[work].name] : "none";
}

std::string Gzip(std::string_view text) {
  z_stream stream = {};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string packed(deflateBound(&stream, text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

// One of everything, the rest of the document before and behind.
std::string Everything() {
  return R"json({
  "schemaVersion": 1,
  "deviceProperties": [
    {"id": 0, "name": "Tesla V100", "totalGlobalMem": 34089730048},
    {"id": 2, "name": "Tesla \"T4\""}
  ],
  "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8, "pg_config": [{"ranks": [0]}]},
  "INFO": ["{\"ph\": 1}", "a ] b }"], "with_stack": 1,
  "traceEvents": [
  {
    "ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 10, "tid": 11,
    "ts": 1000000.125, "dur": 50.5,
    "args": {"External id": 1, "Input Dims": [[2, 3], [3, 4]], "Call stack": "a.py(1): f;b \\ \"c\""}
  },
  {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#4", "pid": 10, "tid": 11,
   "ts": 999999, "dur": 200},
  {"ph": "X", "cat": "python_function", "name": "x.py(3): <lambda>", "pid": 10, "tid": 11, "ts": 1,
   "dur": 2, "args": {"Python id": 4}},
  {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 10, "tid": 11,
   "ts": 1000001, "dur": 4.001, "args": {"cbid": 211, "correlation": 7}},
  {"ph": "s", "id": 7, "pid": 10, "tid": 11, "ts": 1000001, "cat": "ac2g", "name": "ac2g"},
  {"ph": "X", "cat": "kernel", "name": "void f<{lambda(int)#1}>(float*, char [2])", "pid": 0,
   "tid": 7, "ts": 1000010.999, "dur": 20.001, "args": {"External id": 1, "device": 0,
   "context": 1, "stream": 7, "correlation": 7, "grid": [4, 2, 1], "block": [128, 1, 1]}},
  {"ph": "f", "id": 7, "pid": 0, "tid": 7, "ts": 1000010, "cat": "ac2g", "name": "ac2g", "bp": "e"},
  {"ph": "X", "cat": "kernel", "name": "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)",
   "pid": 0, "tid": 20, "ts": 1000020, "dur": 9, "args": {"device": 0, "stream": 20,
   "correlation": 8}},
  {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD (Pageable -> Device)", "pid": 0, "tid": 7,
   "ts": 1000040, "dur": 1.5, "args": {"device": 0, "stream": 7, "correlation": 9, "bytes": 4096}},
  {"ph": "X", "cat": "gpu_memset", "name": "Memset (Device)", "pid": 0, "tid": 7, "ts": 1000050,
   "dur": 1, "args": {"device": 0, "stream": 7, "correlation": 10, "bytes": 64}},
  {"ph": "X", "cat": "cuda_runtime", "name": "cudaStreamWaitEvent", "pid": 10, "tid": 11,
   "ts": 1000060, "dur": 1, "args": {"correlation": 12}},
  {"ph": "X", "cat": "cuda_sync", "name": "Stream Wait Event", "pid": 0, "tid": 20, "ts": 1000060,
   "dur": 1, "args": {"cuda_sync_kind": "Stream Wait Event", "wait_on_stream": 7,
   "wait_on_cuda_event_record_corr_id": 11, "wait_on_cuda_event_id": 9, "stream": 20,
   "correlation": 12, "device": 0, "context": 1}},
  {"ph": "X", "cat": "cuda_sync", "name": "Context Sync", "pid": 0, "tid": -1, "ts": 1000070,
   "dur": 1, "args": {"stream": -1, "correlation": 13, "device": 0}},
  {"ph": "X", "cat": "gpu_user_annotation", "name": "ProfilerStep#4", "pid": 0, "tid": 7, "ts": 1,
   "dur": 2},
  {"name": "thread_name", "ph": "M", "ts": 1, "pid": 10, "tid": 11, "args": {"name": "thread 11 (python)"}},
  {"name": "Record Window End", "ph": "i", "s": "g", "pid": "", "tid": "", "ts": 1000100}
  ],
  "traceName": "C:\\traces\\x.json",
  "baseTimeNanoseconds": 1711964646000000000
}
)json";
}

constexpr char kEverythingRead[] =
    "Kineto, t.json rank 3/8\n"
    "gpu Tesla V100\n"
    "gpu \n"
    "gpu Tesla \"T4\"\n"
    "thread 10/11 thread 11 (python)\n"
    "stream 0:7\n"
    "stream 0:20\n"
    "call 1711964647000001000 1711964647000005001 7 cudaLaunchKernel 0 1\n"
    "call 1711964647000060000 1711964647000061000 12 cudaStreamWaitEvent 0 9\n"
    "work 1711964647000010999 1711964647000031000 7 0 void f<{lambda(int)#1}>(float*, char [2]) 0 "
    "4,2,1 128,1,1 0\n"
    "work 1711964647000020000 1711964647000029000 8 0 "
    "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem) 1 0,0,0 0,0,0 1\n"
    "work 1711964647000040000 1711964647000041500 9 4096 Memcpy HtoD (Pageable -> Device) 0 0,0,0 "
    "0,0,0 2 pageable\n"
    "work 1711964647000050000 1711964647000051000 10 64 Memset (Device) 0 0,0,0 0,0,0 6\n"
    "span 1711964647000000125 1711964647000050625 aten::mm 0 0\n"
    "span 1711964646999999000 1711964647000199000 ProfilerStep#4 0 1\n"
    "wait 12 11 1 0\n"
    "wait 13 0 4294967295 4294967295\n"
    "left out 0@0 0 0 1 4 0";

TEST(TraceReaderTest, ACollectiveHasTheBytesThatItMoves) {
  const auto bytes = [](const std::string& arguments) {
    const Trace trace = With(absl::StrCat(
        R"({"ph": "X", "cat": "kernel", "name": "ncclKernel_AllReduce", "pid": 0, "tid": 7,
        "ts": 1, "dur": 1, "args": {"stream": 7, "correlation": 5)",
        arguments, "}}"));
    return trace.works.empty() ? UINT64_MAX : trace.works[0].bytes;
  };
  EXPECT_EQ(bytes(R"(, "In msg nelems": 6637568, "dtype": "Float")"), 26550272u);
  EXPECT_EQ(bytes(R"(, "In msg nelems": 10, "dtype": "BFloat16")"), 20u);
  EXPECT_EQ(bytes(R"(, "In msg nelems": 10, "dtype": "Secret")"), 0u);
  EXPECT_EQ(bytes(""), 0u);
}

// In any order, under their newer and older names; one end alone is none.
TEST(TraceReaderTest, FlowsFromForwardToBackwardOperatorsAreKept) {
  const auto trace = Read(Document(
      {Kernel("k"),
       R"({"ph": "f", "id": 3, "pid": 1, "tid": 9, "ts": 20.5, "cat": "fwdbwd", "bp": "e"})",
       R"({"ph": "s", "id": 3, "pid": 1, "tid": 8, "ts": 10, "cat": "fwdbwd", "name": "fwdbwd"})",
       R"({"ph": "s", "id": 4, "pid": 1, "tid": 8, "ts": 11, "cat": "fwdbwd", "name": "fwdbwd"})",
       R"({"cat": "forward_backward", "ph": "s", "id": "x", "pid": 1, "tid": 8, "ts": 12})",
       R"({"cat": "forward_backward", "ph": "f", "id": "x", "pid": 1, "tid": 9, "ts": 19})",
       R"({"ph": "s", "id": 5, "pid": 1, "tid": 8, "ts": 11, "cat": "ac2g", "name": "ac2g"})",
       R"({"ph": "f", "id": 5, "pid": 0, "tid": 7, "ts": 12, "cat": "ac2g", "name": "ac2g"})"}));
  ASSERT_TRUE(trace.ok()) << trace.status();
  ASSERT_EQ(trace->flows.size(), 2u);
  EXPECT_EQ(trace->flows[0].forward_ns, 10'000);
  EXPECT_EQ(trace->flows[0].backward_ns, 20'500);
  EXPECT_EQ(trace->threads[trace->flows[0].forward_thread], "1/8");
  EXPECT_EQ(trace->threads[trace->flows[0].backward_thread], "1/9");
  EXPECT_EQ(trace->flows[1].backward_ns, 19'000);
  EXPECT_EQ(LeftOutInWords(trace->left_out), "");
}

TEST(TraceReaderTest, OneOfEverything) { EXPECT_EQ(Dump(Read(Everything())), kEverythingRead); }

TEST(TraceReaderTest, HoweverTheBytesAreCut) {
  const std::string text = Everything();
  const std::string packed = Gzip(text);
  const std::string broken = Document({Kernel("a \"b\" c"), Kernel("d \" e"), Kernel("f\ng"),
                                       R"({"ph": "X", "cat": "kernel", "name": "not closed)"});
  const std::string broken_read = Dump(Read(broken));
  for (size_t cut = 1; cut < text.size(); ++cut) {
    TraceReader reader({.name = "t.json"});
    ASSERT_TRUE(reader.Add(text.substr(0, cut)).ok());
    ASSERT_TRUE(reader.Add(text.substr(cut)).ok());
    ASSERT_EQ(Dump(reader.Finish()), kEverythingRead) << "cut at " << cut;
  }
  for (const size_t piece : {1, 2, 3, 7, 63, 64, 65, 127, 128, 129, 1000}) {
    SCOPED_TRACE(piece);
    EXPECT_EQ(Dump(Read(text, piece)), kEverythingRead);
    EXPECT_EQ(Dump(Read(packed, piece)), kEverythingRead);
    EXPECT_EQ(Dump(Read(broken, piece)), broken_read);
  }
}

TEST(TraceReaderTest, ElementsMayLieAnywhereInABlock) {
  for (size_t blanks = 0; blanks < 130; ++blanks) {
    const std::string text = absl::StrReplaceAll(
        Everything(), {{"\"traceEvents\": [", "\"traceEvents\": [" + std::string(blanks, ' ')}});
    ASSERT_EQ(Dump(Read(text)), kEverythingRead) << blanks;
  }
}

TEST(TraceReaderTest, ABareArrayAndItsEndMayBeMissing) {
  const std::string array = absl::StrCat("\xEF\xBB\xBF [", kCall, ",", kKernel);
  for (const char* end : {"]", "", ",", ",\n"}) {
    const auto trace = Read(array + end);
    ASSERT_TRUE(trace.ok()) << trace.status();
    EXPECT_EQ(trace->works.size(), 1u);
    EXPECT_EQ(LeftOutInWords(trace->left_out), "") << end;
  }
}

TEST(TraceReaderTest, EscapesInNames) {
  EXPECT_EQ(NameOf(With(Kernel(R"(a\"b\\\u00e9\n{\"ph\":1})"))), "a\"b\\\u00e9\n{\"ph\":1}");
  EXPECT_EQ(NameOf(With(Kernel(R"(ends in \\)"))), "ends in \\");
}

TEST(TraceReaderTest, CategoriesOfAllAges) {
  const auto trace = Read(R"json({"schemaVersion": 1, "traceEvents": [
  {"ph": "X", "cat": "Operator", "name": "aten::add", "pid": 5, "tid": "1441273664",
   "ts": 1610366387140599, "dur": 14, "args": {"Device": 0}},
  {"ph": "X", "cat": "Runtime", "name": "cudaMemcpyAsync", "pid": 5, "tid": "1441273664",
   "ts": 1610366387140600, "dur": 3, "args": {"correlation": 627, "external id": 883}},
  {"ph": "X", "cat": "Memcpy", "name": "Memcpy DtoH (Device -> Pageable)", "pid": 0,
   "tid": "stream 23", "ts": 1610366387140610, "dur": 9, "args": {
  "device" : 0, "correlation" : "627", "bytes" : 8}},
  {"ph": "X", "cat": "Kernel", "name": "k", "pid": 1, "tid": "stream 7", "ts": 1610366387140700,
   "dur": 1009, "args": {"queued": 0, "correlation id": 628}},
  {"ph": "X", "cat": "Memset", "name": "Memset", "pid": 0, "tid": "stream 23", "ts": 1, "dur": 1},
  {"ph": "X", "cat": "hip_runtime", "name": "hipExtModuleLaunchKernel", "pid": 5, "tid": 6,
   "ts": 2, "dur": 1, "args": {"correlation": 629}},
  {"ph": "X", "cat": "cuda_driver", "name": "cuGraphLaunch", "pid": 5, "tid": 6, "ts": 3, "dur": 1},
  {"ph": "X", "cat": "gpu_memcpy", "name": "CopyHostToDevice", "pid": 2, "tid": 0, "ts": 4,
   "dur": 1, "args": {"device": 2, "stream": 0, "kind": "HtoD"}},
  {"ph": "X", "cat": "gpu_memcpy", "name": "hipMemcpy", "pid": 2, "tid": 0, "ts": 4, "dur": 1,
   "args": {"device": 2, "stream": 0, "kind": "DtoD"}}
  ]
})json");
  ASSERT_TRUE(trace.ok()) << trace.status();
  ASSERT_EQ(trace->works.size(), 5u);
  EXPECT_EQ(trace->works[0].kind, WorkKind::kCopyD2H);
  EXPECT_TRUE(trace->works[0].pageable);
  EXPECT_EQ(trace->works[0].correlation, 627u);
  EXPECT_EQ(trace->works[0].start_ns, 1610366387140610000);
  EXPECT_EQ(trace->streams[trace->works[0].stream].id, 23);
  EXPECT_EQ(trace->works[1].kind, WorkKind::kKernel);
  EXPECT_EQ(trace->works[1].correlation, 628u);
  EXPECT_EQ(trace->streams[trace->works[1].stream].device, 1);
  EXPECT_EQ(trace->works[2].kind, WorkKind::kMemset);
  EXPECT_EQ(trace->works[2].stream, trace->works[0].stream);
  EXPECT_EQ(trace->works[3].kind, WorkKind::kCopyH2D);
  EXPECT_EQ(trace->works[4].kind, WorkKind::kCopyD2D);
  ASSERT_EQ(trace->calls.size(), 3u);
  EXPECT_EQ(trace->calls[0].kind, CallKind::kCopy);
  EXPECT_EQ(trace->calls[1].kind, CallKind::kLaunch);
  EXPECT_EQ(trace->calls[2].kind, CallKind::kGraphLaunch);
  // An operator and a call of one thread are on one thread.
  EXPECT_EQ(trace->spans.at(0).thread, trace->calls[0].thread);
}

TEST(TraceReaderTest, TimesAreExact) {
  EXPECT_EQ(ParseMicros("1669783687389534.123"), 1669783687389534123);
  EXPECT_EQ(ParseMicros(" \"1669783687389534.1\" "), 1669783687389534100);
  EXPECT_EQ(ParseMicros("0.0005"), 1);
  EXPECT_EQ(ParseMicros("0.00049999"), 0);
  EXPECT_EQ(ParseMicros("-2.001"), -2001);
  EXPECT_EQ(ParseMicros("1.5e3"), 1500000);
  EXPECT_EQ(ParseMicros("7"), 7000);
  for (const char* none : {"", "nan", "-", "1e300", "99999999999999999999", "abc", "1.2.3", "{"}) {
    EXPECT_EQ(ParseMicros(none), std::nullopt) << none;
  }
}

TEST(TraceReaderTest, DurationsAndTimesThatCannotBe) {
  for (const char* duration :
       {"\"dur\": -5", "\"dur\": 18446744073709551.615", "\"dur\": nan", "\"other\": 1"}) {
    const Trace trace = With(Kernel("k", absl::StrCat("\"ts\": 3, ", duration)));
    ASSERT_EQ(trace.works.size(), 2u) << duration;
    EXPECT_EQ(trace.works[0].end_ns, trace.works[0].start_ns);
    EXPECT_EQ(trace.left_out.without_duration, 1u) << duration;
  }
  EXPECT_EQ(With(Kernel("k", "\"ts\": 3, \"dur\": 0")).left_out.without_duration, 0u);
  for (const char* time : {"\"dur\": 5", "\"ts\": nan, \"dur\": 5", "\"ts\": 1e99, \"dur\": 5",
                           "\"ts\": \"soon\", \"dur\": 5", "\"ts\": {}, \"dur\": 5"}) {
    const Trace trace = With(Kernel("k", time));
    EXPECT_EQ(trace.works.size(), 1u) << time;
    EXPECT_EQ(trace.left_out.damaged, 1u) << time;
  }
}

TEST(TraceReaderTest, OddNumbers) {
  const auto work = [](const std::string& arguments) {
    const Trace trace = With(
        absl::StrCat(R"({"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 1, "args": {)",
                     arguments, "}}"));
    EXPECT_EQ(trace.works.size(), 2u) << arguments;
    return trace.works.empty() ? trace::Work() : trace.works[0];
  };
  EXPECT_EQ(work("\"correlation\": -1").correlation, 0u);
  EXPECT_EQ(work("\"correlation\": 12.0").correlation, 12u);
  EXPECT_EQ(work("\"correlation\": 1e99").correlation, 0u);
  EXPECT_EQ(work("\"correlation\": [1]").correlation, 0u);
  EXPECT_EQ(work("\"grid\": [-1, 99999999999, 2, 3], \"block\": 7").grid[1], UINT32_MAX);
  EXPECT_EQ(work("\"block\": [70000, 1]").block[0], UINT16_MAX);
  EXPECT_EQ(work("\"device\": -3, \"stream\": -1").correlation, 0u);
  EXPECT_EQ(work("\"blocks per SM\": nan, \"x\": inf, \"y\": -nan, \"correlation\": 4").correlation,
            4u);
}

// As old profilers wrote them: no JSON, and still there.
TEST(TraceReaderTest, WhatIsNearlyJsonIsMended) {
  const std::pair<std::string, std::string> names[] = {
      {"a\nb\x01", "a\nb\x01"},                    // control characters
      {"C:\\dir\\x", "C:\\dir\\x"},                // backslashes
      {"bad \xff byte", "bad \xEF\xBF\xBD byte"},  // no UTF-8
      {"f(\"x\")", "f(\"x\")"},                    // quotes, two
      {"6\" disk", "6\" disk"},                    // and one
  };
  for (const auto& [written, read] : names) {
    const Trace trace = With(Kernel(written));
    EXPECT_EQ(NameOf(trace), read);
    EXPECT_EQ(trace.works.size(), 2u) << read;
    EXPECT_EQ(trace.left_out.mended, 1u) << read;
    EXPECT_EQ(trace.left_out.damaged, 0u) << read;
  }
  for (const char* more : {"\"ts\": 1, \"dur\": 1,", "\"ts\": 1, \"dur\": 1, \"x\": [1, ], "}) {
    EXPECT_EQ(With(Kernel("comma", more)).works.size(), 2u) << more;
  }
  // A brace that is missing.
  std::string open = Kernel("open");
  open.pop_back();
  const Trace trace = With(open);
  EXPECT_EQ(trace.works.size(), 2u);
  EXPECT_EQ(NameOf(trace), "open");
}

TEST(TraceReaderTest, ADamagedElementIsSkippedAndNamed) {
  const std::string damaged = R"({"ph": "X", "cat": "kernel", "name": "a", , "ts" 12 "dur": 3})";
  const std::string text = Document({damaged, Kernel("good"), "[1, 2]"});
  const auto trace = Read(text);
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_EQ(trace->works.size(), 2u);
  EXPECT_EQ(trace->left_out.damaged, 2u);
  EXPECT_EQ(trace->left_out.first_damaged_at, text.find(damaged));
  EXPECT_EQ(
      LeftOutInWords(trace->left_out),
      absl::StrCat("2 elements damaged and left out, the first at byte ", text.find(damaged)));
}

// A string that does not end swallows no more than the element it is in.
TEST(TraceReaderTest, ReadingGoesOnAfterABrokenString) {
  for (const char* separator : {",", ",\n  ", "\n,\r\n"}) {
    std::string text = absl::StrCat("[", kCall, ",");
    text += R"({"ph": "X", "cat": "kernel", "name": "no end, "args": {"a": "b"}, "ts": )";
    for (int i = 0; i < 5; ++i) {
      text += separator + Kernel(absl::StrCat("\\\"k", i, "\\\" {lambda()#1} [x]]"));
    }
    const auto trace = Read(text + "]");
    ASSERT_TRUE(trace.ok()) << trace.status();
    EXPECT_EQ(trace->works.size(), 5u) << separator;
    EXPECT_EQ(NameOf(*trace, 4), "\"k4\" {lambda()#1} [x]]");
    EXPECT_EQ(trace->left_out.damaged, 1u);
    EXPECT_FALSE(trace->left_out.truncated);
  }
}

// Whatever happens to one byte of an element, all others but at most its neighbour are read.
TEST(TraceReaderTest, OneBadByteCostsNoMoreThanItsElement) {
  const std::string victim =
      R"json({
    "ph": "X", "cat": "kernel", "name": "void f<{lambda(int)#1}>(char (*) [2], \"x\")", "pid": 0,
    "tid": 7, "ts": 5, "dur": 3, "args": {"device": 0, "stream": 7, "grid": [1, 2, 3]}
  })json";
  std::vector<std::string> elements;
  for (int i = 0; i < 6; ++i) {
    elements.push_back(Kernel(absl::StrCat("g<{lambda(int)#", i, "}>(float [4])")));
  }
  elements.insert(elements.begin() + 3, victim);
  const auto packed = [](std::string text) {
    return absl::StrReplaceAll(text, {{"\n  ", ""}, {"\n", ""}, {": ", ":"}, {", ", ","}});
  };
  for (const bool one_line : {false, true}) {
    const std::string text = one_line ? packed(Document(elements)) : Document(elements);
    const size_t size = (one_line ? packed(victim) : victim).size();
    const size_t begin = text.find(one_line ? packed(victim) : victim);
    ASSERT_NE(begin, std::string::npos);
    for (size_t at = begin; at < begin + size; ++at) {
      for (const char* instead : {"", "\"", "{", "}", "[", "]", "\\", ",", "x", "\n", "\xff"}) {
        std::string bad = text;
        bad.replace(at, 1, instead);
        const std::string shown = bad.substr(begin, size);
        const auto trace = Read(bad);
        ASSERT_TRUE(trace.ok()) << trace.status();
        size_t read = 0;
        for (const auto& work : trace->works) read += trace->names[work.name].substr(0, 1) == "g";
        EXPECT_GE(read, 6u) << shown;  // of seven, with "gemm"
        EXPECT_FALSE(trace->left_out.truncated) << shown;
        if (trace->works.size() < 8) {  // it is not silent about it
          EXPECT_GT(trace->left_out.damaged + trace->left_out.other, 0u) << shown;
        }
      }
    }
  }
}

TEST(TraceReaderTest, AnElementThatIsTooLongIsLeftOut) {
  const Trace trace = With(Kernel(std::string(size_t{5} << 20, 'x')));
  EXPECT_EQ(trace.works.size(), 1u);
  EXPECT_EQ(trace.left_out.damaged, 1u);
  EXPECT_EQ(With(Kernel(std::string(size_t{1} << 20, 'x'))).left_out.damaged, 0u);
}

// The profiler was killed: wherever that was, all whole elements are there.
TEST(TraceReaderTest, ATruncatedFileIsReadAsFarAsItGoes) {
  const std::string text = Document({Kernel("last")});
  const size_t first_end = text.find(kKernel) + sizeof kKernel - 1;
  for (size_t size = first_end; size < text.size(); ++size) {
    const auto trace = Read(text.substr(0, size));
    ASSERT_TRUE(trace.ok()) << trace.status();
    EXPECT_EQ(trace->works.size(), 2u);
    EXPECT_TRUE(trace->left_out.truncated) << size;
    EXPECT_THAT(LeftOutInWords(trace->left_out), HasSubstr("cut or damaged"));
  }
  for (size_t size = text.find(Kernel("last")) + Kernel("last").size(); size < first_end; ++size) {
    const auto trace = Read(text.substr(0, size));
    ASSERT_TRUE(trace.ok()) << trace.status();
    EXPECT_EQ(trace->works.size(), 1u);
    EXPECT_TRUE(trace->left_out.truncated);
    EXPECT_EQ(trace->left_out.damaged, 0u);
  }
}

TEST(TraceReaderTest, Gzip) {
  const std::string text = Everything();
  const size_t half = text.size() / 2;
  const std::string members = Gzip(text.substr(0, half)) + Gzip("") + Gzip(text.substr(half));
  EXPECT_EQ(Dump(Read(members)), kEverythingRead);
  EXPECT_EQ(Dump(Read(members, 1)), kEverythingRead);
  EXPECT_EQ(Dump(Read(members + std::string(512, '\0'))), kEverythingRead);

  auto trace = Read(Gzip(text) + "garbage");
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_EQ(trace->left_out.trailing_bytes, 7u);
  EXPECT_EQ(LeftOutInWords(trace->left_out), "7 bytes behind its end are not read");
  trace = Read(text + "{}");
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_EQ(trace->left_out.trailing_bytes, 2u);

  std::vector<std::string> kernels;
  for (int i = 0; i < 2000; ++i) kernels.push_back(Kernel(absl::StrCat("k", i * 7919 % 2000)));
  const std::string packed = Gzip(Document(kernels));
  trace = Read(packed.substr(0, packed.size() / 2));
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_GT(trace->works.size(), 100u);
  EXPECT_LT(trace->works.size(), 2000u);
  EXPECT_TRUE(trace->left_out.truncated);
  EXPECT_THAT(Refusal(packed.substr(0, 12)), HasSubstr("first 12 bytes of a gzip file"));
}

TEST(TraceReaderTest, Messages) {
  using namespace std::string_literals;
  EXPECT_EQ(Refusal(""), "t.json is empty; was the profiler stopped before its file was written?");
  EXPECT_EQ(Refusal(Gzip("")), Refusal(""));
  EXPECT_THAT(Refusal("x"),
              HasSubstr("t.json is not a trace: it begins with \"x\"; give the JSON"));
  EXPECT_THAT(Refusal("name,time\nconv1,3\n"), HasSubstr("is not a trace"));
  EXPECT_THAT(Refusal("SQLite format 3\0\x10"s), HasSubstr("is an SQLite database"));
  EXPECT_THAT(Refusal("\x01\x02\x03 nsys"), HasSubstr("is a binary file"));
  EXPECT_THAT(Refusal("PK\x03\x04 zip"), HasSubstr("unpack it"));
  EXPECT_EQ(Refusal(R"({"schema": "1.0", "nodes": [{"id": 1}]})"),
            "t.json is JSON without \"traceEvents\" (it has schema, nodes); give the file "
            "of torch.profiler's export_chrome_trace");
  EXPECT_THAT(Refusal("[[1, 2], {\"a\": 3}]"), HasSubstr("has no events of a trace"));
  EXPECT_THAT(Refusal("{"), AllOf(HasSubstr("without \"traceEvents\""), HasSubstr("cut")));
  EXPECT_EQ(Refusal(absl::StrCat("{\"traceEvents\": [", kCall)),
            absl::StrCat("t.json has no GPU work in the ", sizeof kCall + 16,
                         " bytes before it is cut or damaged; give the whole file"));
  EXPECT_EQ(Refusal(absl::StrCat("{\"traceEvents\": [", kCall, "]}")),
            "t.json has no GPU work; record with activities=[ProfilerActivity.CPU, "
            "ProfilerActivity.CUDA] while the GPU works");
  const std::string anonymous = R"({"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 1})";
  EXPECT_THAT(Refusal(absl::StrCat("{\"traceEvents\": [", kCall, ",", anonymous, "]}")),
              HasSubstr("has 1 pieces of GPU work of which none names the call that launched it"));
  // Without any calls there is nothing that launched it: GPU activities alone.
  EXPECT_TRUE(Read(absl::StrCat("[", anonymous, "]")).ok());
}

TEST(TraceReaderTest, TooMuchTextIsRefused) {
  TraceReader reader({.name = "t.json", .max_bytes = size_t{1} << 20});
  const std::string text = absl::StrCat("[", std::string(size_t{2} << 20, ' '), kKernel, "]");
  EXPECT_EQ(reader.Add(text).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(reader.Finish().status().code(), absl::StatusCode::kResourceExhausted);
}

constexpr char kTable[] =
    "#names: id\tname\n#0\t[CUDA memset]\n#1\t[CUDA memcpy HtoD]\n#2\tvoid f<int=4, char>(int)\n"
    "start_us,dur_us,stream,name_id,size\n"
    "23060.000,0.896,7,0,4B\n"
    "23070.125,3.000,7,1,56.375KB\n"
    "oops\n"
    "26410.000,3.904,14,2,(64 2 1)|(256 1 1)\r\n"
    "26420.000,-1,14,9,";

TEST(TraceReaderTest, TablesOfGpuActivities) {
  for (const size_t piece : {1, 5, 1000}) {
    EXPECT_EQ(
        Dump(Read(kTable, piece)),
        absl::StrCat("GPU activities, t.json rank 0/1\nstream 0:7\nstream 0:14\n"
                     "work 23060000 23060896 0 4 [CUDA memset] 0 0,0,0 0,0,0 6\n"
                     "work 23070125 23073125 0 57728 [CUDA memcpy HtoD] 0 0,0,0 0,0,0 2\n"
                     "work 26410000 26413904 0 0 void f<int=4, char>(int) 1 64,2,1 256,1,1 0\n"
                     "work 26420000 26420000 0 0  1 0,0,0 0,0,0 0\n"
                     "left out 1@",
                     std::string(kTable).find("oops"), " 0 1 0 0 0"));
  }
  EXPECT_EQ(Dump(Read(Gzip(kTable))), Dump(Read(kTable)));
}

TEST(CallRecordsTest, CallsDescribeTheWorkTheyCaused) {
  const auto trace = Read(Document({
      R"({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 10, "tid": 11,
          "ts": 900, "dur": 4, "args": {"correlation": 99}})",
      R"({"ph": "X", "cat": "cuda_runtime", "name": "cudaMalloc", "pid": 10, "tid": 11, "ts": 901,
          "dur": 4, "args": {"correlation": 98}})",
      R"({"ph": "X", "cat": "cuda_runtime", "name": "cudaDeviceSynchronize", "pid": 10, "tid": 11,
          "ts": 950, "dur": 40, "args": {"correlation": 97}})",
      R"({"ph": "X", "cat": "cpu_op", "name": "step#2", "pid": 10, "tid": 11, "ts": 5, "dur": 4})",
      R"({"ph": "X", "cat": "cpu_op", "name": "step#1", "pid": 10, "tid": 11, "ts": 1, "dur": 4})",
  }));
  ASSERT_TRUE(trace.ok()) << trace.status();
  const CallRecords stream = ToCallRecords(*trace);
  ASSERT_EQ(stream.calls.size(), 2u);  // the launch without work and cudaMalloc reach no stream
  EXPECT_EQ(stream.calls[0].op, static_cast<uint8_t>(abi::Op::kContextSync));
  EXPECT_EQ(stream.calls[0].bytes, 40000u);
  const abi::CallRecord& launch = stream.calls[1];
  EXPECT_EQ(launch.op, static_cast<uint8_t>(abi::Op::kLaunch));
  EXPECT_EQ(trace->names[launch.name_id], "gemm");
  EXPECT_EQ(launch.api_ns, 1000500u);
  EXPECT_EQ(launch.grid_y, 2u);
  EXPECT_EQ(launch.sequence, 2u);
  EXPECT_THAT(stream.gpu_starts, ElementsAre(std::make_pair(7u, uint64_t{1010000})));

  const auto table = Read(kTable);
  ASSERT_TRUE(table.ok());
  EXPECT_EQ(ToCallRecords(*table).calls.size(), 4u);
}

absl::StatusOr<Trace> ReadOperators(std::string_view text) {
  TraceReader reader({.name = "t.json", .operators = true});
  if (const absl::Status status = reader.Add(text); !status.ok()) return status;
  return reader.Finish();
}

// Exports of a PyTorch without Kineto, as distributions package it for CPUs.
TEST(TraceReaderTest, TheListOfAPyTorchWithoutKinetoIsReadForTheTimesOfOperators) {
  const char kList[] =
      R"([{"name": "aten::mm", "ph": "X", "ts": 161, "dur": 129, "tid": 1, "pid": "CPU functions",
           "args": {}},
          {"name": "Optimizer.step#SGD.step", "ph": "X", "ts": 300, "dur": 9, "tid": 1,
           "pid": "CPU functions", "args": {}}])";
  const auto trace = ReadOperators(kList);
  ASSERT_TRUE(trace.ok()) << trace.status();
  ASSERT_EQ(trace->spans.size(), 2u);
  EXPECT_EQ(trace->names[trace->spans[0].name], "aten::mm");
  EXPECT_EQ(trace->spans[0].end_ns - trace->spans[0].begin_ns, 129'000);
  EXPECT_EQ(trace->spans[1].kind, trace::SpanKind::kAnnotation);
  // A job's trace has GPU work.
  EXPECT_THAT(Refusal(kList), HasSubstr("has no GPU work"));
}

TEST(TraceReaderTest, OperatorsKeepTheirRecordFunctionsIdWhereItIsAskedFor) {
  const char kOperators[] =
      R"({"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1,
           "ts": 5, "dur": 2, "args": {"External id": 13, "Record function id": 4711}},
          {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 8, "dur": 2,
           "args": {"Record function id": 4294967296}}]})";
  const auto trace = ReadOperators(kOperators);
  ASSERT_TRUE(trace.ok()) << trace.status();
  ASSERT_EQ(trace->spans.size(), 2u);
  EXPECT_EQ(trace->spans[0].record_function, 4711u);
  EXPECT_EQ(trace->spans[1].record_function, 0u);  // larger than is kept: not known
  EXPECT_THAT(std::string(ReadOperators(R"({"traceEvents": [{"ph": "M"}]})").status().message()),
              HasSubstr("has no operators"));
}

}  // namespace
}  // namespace seqpoint::traces
