// The reader against an independent one, trace_stats.py, on real traces. Neither is part of the
// repository: SEQPOINT_SHARED_DATA names the folder that holds trace_stats.py and traces/.
#include <gtest/gtest.h>
#include <simdjson.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "daemon/traces/trace_reader.h"
#include "tests/support/shared_traces.h"
#include "tests/support/trace_file.h"

namespace seqpoint::traces {
namespace {

using trace::Trace;
using trace::WorkKind;

std::vector<std::string> Files() {
  std::vector<std::string> files;
  for (const std::string& file : SharedTraceFiles()) {
    if (file.ends_with(".json.gz")) files.push_back(file);
  }
  return OrNone(std::move(files));
}

std::string Output(const std::string& command) {
  std::string text;
  FILE* pipe = popen(command.c_str(), "r");
  char piece[4096];
  while (const size_t n = std::fread(piece, 1, sizeof piece, pipe)) text.append(piece, n);
  EXPECT_EQ(pclose(pipe), 0) << command << "\n" << text;
  return text;
}

bool Copy(const trace::Work& work) {
  return work.kind != WorkKind::kKernel && work.kind != WorkKind::kCollective &&
         work.kind != WorkKind::kGraph;
}

bool ProfilerStep(std::string_view name) {
  constexpr std::string_view kPrefix = "ProfilerStep#";
  return name.substr(0, kPrefix.size()) == kPrefix && name.size() > kPrefix.size() &&
         std::isdigit(static_cast<unsigned char>(name[kPrefix.size()])) != 0;
}

struct Interval {
  int64_t begin_ns, end_ns;
};

// The figures of trace_stats.py (its docstring defines them), from our trace.
struct Figures {
  size_t steps = 0;  // 0: none, the whole trace is taken
  double span_ms = 0, wall_ms = 0, step_ms = 0, busy_pct = 0;
};

Figures FiguresOf(const Trace& trace) {
  std::map<uint32_t, std::vector<Interval>> by_thread;
  for (const trace::Span& span : trace.spans) {
    if (ProfilerStep(trace.names[span.name])) {
      by_thread[span.thread].push_back({span.begin_ns, span.end_ns});
    }
  }
  std::vector<Interval> steps;
  for (auto& [thread, marks] : by_thread) {
    if (marks.size() > steps.size()) steps = marks;
  }
  Figures figures;
  figures.steps = steps.size();
  int64_t begin = std::numeric_limits<int64_t>::max();
  int64_t end = std::numeric_limits<int64_t>::min();
  const auto include = [&](int64_t from, int64_t to) {
    begin = std::min(begin, from);
    end = std::max(end, to);
  };
  if (steps.empty()) {
    for (const auto& work : trace.works) include(work.start_ns, work.end_ns);
    for (const auto& call : trace.calls) include(call.begin_ns, call.end_ns);
    for (const auto& span : trace.spans) include(span.begin_ns, span.end_ns);
    steps.push_back({begin, end});
  }
  double steps_ns = 0;
  for (const Interval& step : steps) {
    include(step.begin_ns, step.end_ns);
    steps_ns += static_cast<double>(step.end_ns - step.begin_ns);
  }
  const auto ms = [](double ns) { return ns / 1e6; };
  figures.span_ms = ms(static_cast<double>(end - begin));
  figures.step_ms = ms(steps_ns / static_cast<double>(steps.size()));

  std::unordered_map<uint64_t, const trace::Call*> by_correlation;
  for (const trace::Call& call : trace.calls) {
    const std::string& name = trace.names[call.name];
    const bool launches = name.find("Launch") != name.npos || name.find("Memcpy") != name.npos ||
                          name.find("Memset") != name.npos;
    const auto [it, inserted] = by_correlation.try_emplace(call.correlation, &call);
    if (!inserted && launches) it->second = &call;
  }
  int64_t wall_end = end;
  for (const trace::Work& work : trace.works) {
    const auto call = by_correlation.find(work.correlation);
    const int64_t at = call == by_correlation.end() ? work.start_ns : call->second->begin_ns;
    if (at < begin || (steps.size() == 1 && at > end)) continue;
    wall_end = std::max(wall_end, work.end_ns);
  }
  figures.wall_ms = ms(static_cast<double>(wall_end - begin));
  std::vector<Interval> busy;
  for (const trace::Work& work : trace.works) {
    if (work.end_ns > begin && work.start_ns < wall_end) {
      busy.push_back({std::max(work.start_ns, begin), std::min(work.end_ns, wall_end)});
    }
  }
  std::sort(busy.begin(), busy.end(),
            [](const Interval& a, const Interval& b) { return a.begin_ns < b.begin_ns; });
  int64_t busy_ns = 0, busy_end = std::numeric_limits<int64_t>::min();
  for (const Interval& i : busy) {
    if (i.end_ns > busy_end) busy_ns += i.end_ns - std::max(i.begin_ns, busy_end);
    busy_end = std::max(busy_end, i.end_ns);
  }
  figures.busy_pct = 100 * static_cast<double>(busy_ns) / static_cast<double>(wall_end - begin);
  return figures;
}

class OracleTest : public ::testing::TestWithParam<std::string> {};

TEST_P(OracleTest, ReadsWhatTheOtherReads) {
  const std::string path = SharedTraces() + "/" + GetParam();
  const std::string oracle = SharedData() + "/trace_stats.py";
  if (!std::filesystem::exists(path) || !std::filesystem::exists(oracle)) {
    GTEST_SKIP() << "no " << path << " or no " << oracle
                 << "; set SEQPOINT_SHARED_DATA to the folder that holds them";
  }
  const auto trace = ReadTraceFile(path);
  ASSERT_TRUE(trace.ok()) << trace.status();
  simdjson::dom::parser parser;
  simdjson::dom::element expected;
  const std::string text = Output("python3 '" + oracle + "' --json '" + path + "'");
  ASSERT_EQ(parser.parse(text).get(expected), simdjson::SUCCESS) << text;
  const auto count = [&](std::string_view key) {
    uint64_t value = 0;
    EXPECT_EQ(expected[key].get(value), simdjson::SUCCESS) << key;
    return value;
  };
  const auto number = [&](std::string_view key) {
    double value = 0;
    EXPECT_EQ(expected[key].get(value), simdjson::SUCCESS) << key;
    return value;
  };
  const auto category = [&](std::string_view key) {
    uint64_t value = 0;
    return expected["cats"][key].get(value) ? 0 : value;  // none: not there
  };

  uint64_t copies = 0, collectives = 0, matched = 0, operators = 0, numbered = 0;
  std::set<uint64_t> correlations;
  std::set<uint32_t> threads, streams;
  for (const trace::Call& call : trace->calls) {
    correlations.insert(call.correlation);
    threads.insert(call.thread);
  }
  for (const trace::Work& work : trace->works) {
    copies += Copy(work);
    collectives += work.kind == WorkKind::kCollective;
    matched += correlations.count(work.correlation);
    streams.insert(work.stream);
  }
  for (const trace::Span& span : trace->spans) {
    if (span.kind == trace::SpanKind::kOperator) {
      ++operators;
    } else {
      numbered += trace->names[span.name].find('#') != std::string::npos;
    }
  }
  EXPECT_EQ(trace->works.size() - copies, count("kernels"));
  EXPECT_EQ(copies, count("copies"));
  EXPECT_EQ(collectives, count("nccl"));
  EXPECT_EQ(trace->calls.size(), count("api"));
  EXPECT_EQ(matched, count("matched"));
  EXPECT_EQ(streams.size(), count("streams"));
  EXPECT_EQ(threads.size(), count("threads"));
  // Old ones have annotations "Optimizer.step#SGD.step" among the operators.
  const uint64_t recorded = category("cpu_op") + category("Operator");
  EXPECT_EQ(trace->spans.size(), recorded + category("user_annotation"));
  EXPECT_LE(operators, recorded);
  EXPECT_LE(recorded - operators, numbered);
  EXPECT_EQ(trace->waits.size(), category("cuda_sync"));
  EXPECT_EQ(trace->left_out.python_frames, count("python_frames"));
  EXPECT_EQ(LeftOutInWords(trace->left_out), "");
  std::string_view gpu;
  ASSERT_EQ(expected["gpu"].get(gpu), simdjson::SUCCESS);
  EXPECT_EQ(trace->gpus.empty() ? "?" : trace->gpus[0], gpu);
  EXPECT_EQ(trace->gpus.size(), count("ngpu"));
  simdjson::dom::element distributed;
  int64_t rank = 0, world_size = 1;
  if (!expected["distributed"].get(distributed)) {
    if (distributed["rank"].get(rank)) rank = 0;
    if (distributed["world_size"].get(world_size)) world_size = 1;
  }
  EXPECT_EQ(trace->rank, rank);
  EXPECT_EQ(trace->world_size, world_size);

  bool points = false;  // the last step is only the end of the one before
  ASSERT_EQ(expected["point_markers"].get(points), simdjson::SUCCESS);
  const Figures figures = FiguresOf(*trace);
  if (points) {
    EXPECT_EQ(figures.steps, count("iterations") + 1);
    return;
  }
  EXPECT_EQ(figures.steps, count("iterations"));
  EXPECT_NEAR(figures.span_ms, number("span_ms"), 1e-3);
  EXPECT_NEAR(figures.step_ms, number("step_ms"), 1e-3);
  EXPECT_NEAR(figures.wall_ms, number("wall_ms"), 1e-3);
  EXPECT_NEAR(figures.busy_pct, number("busy_pct"), 0.02);
}

INSTANTIATE_TEST_SUITE_P(Recorded, OracleTest, ::testing::ValuesIn(Files()),
                         [](const auto& info) { return TestNameOf(info.param); });

}  // namespace
}  // namespace seqpoint::traces
