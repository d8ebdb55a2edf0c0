// Replay, pairs and collectives on recorded traces, with the limits that docs/whatif-accuracy.md
// states. The traces are not part of the repository: SEQPOINT_SHARED_DATA names the folder that
// holds traces/. `./dev bench whatif` says more.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "tests/whatif/judge.h"

namespace seqpoint::whatif {
namespace {

std::string NotThere() {
  return SharedTraces() + " is not there; set SEQPOINT_SHARED_DATA to the folder with traces/";
}

std::vector<std::string> Files() {
  std::vector<std::string> files;
  for (const std::string& file : SharedTraceFiles()) {
    if (absl::EndsWith(file, ".json.gz")) files.push_back(file);
  }
  if (files.empty()) files.push_back("none");  // so that a skipped test says why
  return files;
}

// A column of trace_stats.py's table, by file.
std::map<std::string, double> Stats(const std::string& column) {
  std::map<std::string, double> values;
  std::ifstream in(SharedTraces() + "/stats.tsv");
  std::string line;
  std::getline(in, line);
  const std::vector<std::string> head = absl::StrSplit(line, '\t');
  const auto at = static_cast<size_t>(std::find(head.begin(), head.end(), column) - head.begin());
  while (std::getline(in, line)) {
    const std::vector<std::string> cells = absl::StrSplit(line, '\t');
    if (at < cells.size()) values[cells[0]] = std::strtod(cells[at].c_str(), nullptr);
  }
  return values;
}

double Mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

// A window that begins and ends in the middle of iterations, and a hundredth of the GPU work lost:
// as profilers leave traces.
Recorded PartOf(const Recorded& whole) {
  Recorded part = whole;
  const int64_t begin_ns = whole.marks.begins_ns.front(), end_ns = whole.marks.begins_ns.back();
  const int64_t first_ns = begin_ns + (end_ns - begin_ns) * 37 / 100;
  const int64_t last_ns = end_ns - (end_ns - begin_ns) / 10;
  const auto outside = [&](int64_t ns) { return ns < first_ns || ns > last_ns; };
  std::erase_if(part.trace.calls, [&](const Call& call) { return outside(call.begin_ns); });
  std::erase_if(part.trace.spans, [&](const Span& span) { return outside(span.begin_ns); });
  size_t works = 0;
  std::erase_if(part.trace.works,
                [&](const Work& work) { return outside(work.start_ns) || ++works % 97 == 50; });
  part.marks = FindMarks(part.trace);
  part.graph = BuildGraph(part.trace, {part.marks.begins_ns});
  return part;
}

void ExpectReplayed(const Verdict& verdict) {
  EXPECT_LE(std::abs(verdict.error), kReplayWorst) << verdict.note;
  EXPECT_EQ(verdict.note.find("never reached"), std::string::npos) << verdict.note;
}

class WhatIfTraceTest : public ::testing::TestWithParam<std::string> {};

TEST_P(WhatIfTraceTest, ReplaysAsMeasured) {
  if (GetParam() == "none") GTEST_SKIP() << NotThere();
  const absl::StatusOr<Recorded> recorded = ReadRecorded(SharedTraces() + "/" + GetParam());
  ASSERT_TRUE(recorded.ok()) << recorded.status();
  const Verdict verdict = JudgeReplay(*recorded);
  ExpectReplayed(verdict);
  if (!verdict.training()) return;
  // The other program that measures the same has tenths of microseconds in milliseconds.
  EXPECT_NEAR(verdict.measured_ms, Stats("gpu_ms")[GetParam()], 1e-4);
  EXPECT_NEAR(Mean(MarkPeriodsMs(recorded->marks)), Stats("s2s_ms")[GetParam()], 1e-4);
  if (recorded->marks.iterations() >= 3) ExpectReplayed(JudgeReplay(PartOf(*recorded)));
}

INSTANTIATE_TEST_SUITE_P(Recorded, WhatIfTraceTest, ::testing::ValuesIn(Files()),
                         [](const auto& info) {
                           std::string name = info.param.substr(0, info.param.find('.'));
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return !std::isalnum(c); },
                               '_');
                           return name;
                         });

TEST(WhatIfPairTest, LoadingDataInOtherProcesses) {
  if (Files()[0] == "none") GTEST_SKIP() << NotThere();
  for (const char* name : {"c1", "c2", "nomarker"}) {
    const std::string path = SharedTraces() + "/resnet50_v100_dataloader/" + name;
    const absl::StatusOr<Recorded> before = ReadRecorded(path + "_workers0.json.gz");
    const absl::StatusOr<Recorded> after = ReadRecorded(path + "_workers4.json.gz");
    ASSERT_TRUE(before.ok() && after.ok());
    const absl::StatusOr<Verdict> verdict = JudgePair(*before, *after, LoaderRequest(*before, {}));
    ASSERT_TRUE(verdict.ok()) << verdict.status();
    EXPECT_LE(std::abs(verdict->error), kPairWorst) << name << ": " << verdict->predicted_ms;
  }
}

TEST(WhatIfCollectivesTest, EndWhenTheyDidWhateverTheClock) {
  if (Files()[0] == "none") GTEST_SKIP() << NotThere();
  const std::string folder = SharedTraces() + "/dlrm_v100x8_two_ranks/";
  const absl::StatusOr<Recorded> one = ReadRecorded(folder + "rank1.json.gz");
  absl::StatusOr<Recorded> six = ReadRecorded(folder + "rank6.json.gz");
  ASSERT_TRUE(one.ok() && six.ok());
  for (const int64_t ahead_ns : {int64_t{0}, int64_t{3'000'000'000}}) {
    for (Call& call : six->trace.calls) call.begin_ns += ahead_ns, call.end_ns += ahead_ns;
    for (Work& work : six->trace.works) work.start_ns += ahead_ns, work.end_ns += ahead_ns;
    for (int64_t& begin_ns : six->marks.begins_ns) begin_ns += ahead_ns;
    for (int64_t& end_ns : six->marks.ends_ns) end_ns += ahead_ns;
    six->graph = BuildGraph(six->trace, {six->marks.begins_ns});
    const Recorded* ranks[] = {&*one, &*six};
    const Verdict verdict = JudgeCollectives(ranks);
    EXPECT_LE(verdict.error, kCollectiveMean);
    EXPECT_LT(verdict.worst_us, 50);
    EXPECT_EQ(verdict.left_out, 0);
    EXPECT_EQ(verdict.note.substr(0, 21), "8 collectives matched");
  }
}

}  // namespace
}  // namespace seqpoint::whatif
