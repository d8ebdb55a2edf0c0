#include "daemon/counters/metric_file.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace seqpoint::counters {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

std::string ErrorOf(const std::string& text) {
  return std::string(ParseMetricFile(text, "own.txt").status().message());
}

TEST(MetricFile, ReadsSetsConfigurationsAndRatios) {
  const auto sets = ParseMetricFile(
      "# own sets\n"
      "[l2]\n"
      "description = bytes through the L2 cache   # of all units\n"
      "config = gpu__time_duration.sum, lts__t_bytes.sum\r\n"
      "config = lts__t_sectors_lookup_hit.sum,lts__t_sectors.sum\n"
      "ratio = L2 traffic (GB/s): lts__t_bytes.sum / gpu__time_duration.sum\n"
      "ratio = hits (%): 100 * lts__t_sectors_lookup_hit.sum / "
      "(lts__t_sectors_lookup_hit.sum + lts__t_sectors.sum)\n"
      "ratio = both: 2 * lts__t_bytes.sum + lts__t_sectors.sum\n"
      "[other]\n"
      "config = sm__cycles_active.sum\n",
      "own.txt");
  ASSERT_TRUE(sets.ok()) << sets.status();
  ASSERT_EQ(sets->size(), 2u);
  const OwnSet& l2 = (*sets)[0];
  EXPECT_EQ(l2.name, "l2");
  EXPECT_EQ(l2.description, "bytes through the L2 cache");
  ASSERT_EQ(l2.configs.size(), 2u);
  EXPECT_THAT(l2.configs[0], testing::ElementsAre("gpu__time_duration.sum", "lts__t_bytes.sum"));
  ASSERT_EQ(l2.ratios.size(), 3u);
  EXPECT_EQ(
      l2.ratios[0],
      (Ratio{"L2 traffic", "GB/s", {{"lts__t_bytes.sum", 1}}, {{"gpu__time_duration.sum", 1}}}));
  EXPECT_EQ(l2.ratios[1],
            (Ratio{"hits",
                   "%",
                   {{"lts__t_sectors_lookup_hit.sum", 100}},
                   {{"lts__t_sectors_lookup_hit.sum", 1}, {"lts__t_sectors.sum", 1}}}));
  EXPECT_EQ(l2.ratios[2],
            (Ratio{"both", "", {{"lts__t_bytes.sum", 2}, {"lts__t_sectors.sum", 1}}, {}}));
  // Together with a shipped one.
  const auto both = CombineMetricSets({"l2", "utilisation"}, *sets, "GH100", Backend::kRange);
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_EQ(both->configs.size(), 3u);
  EXPECT_EQ(both->configs[0].metrics[1].unit, "bytes");
}

TEST(MetricFile, TakesFilesOfOtherEditorsAndNoOtherBytes) {
  const auto sets = ParseMetricFile(
      "\xef\xbb\xbf[l2]\r\ndescription = \xc3\xbc\xe2\x82\xac\xf0\x9f\x98\x80\r\nconfig = "
      "x.sum\r\n",
      "own.txt");
  ASSERT_TRUE(sets.ok()) << sets.status();
  EXPECT_EQ((*sets)[0].name, "l2");
  EXPECT_EQ((*sets)[0].description, "\xc3\xbc\xe2\x82\xac\xf0\x9f\x98\x80");
  for (const char* bytes : {"\x1b[2J", "\xff", "\xc0\xaf", "\xe2\x82", "\xed\xa0\x80",
                            "\xf5\x80\x80\x80", "\xc2\x9b", "\x7f"}) {
    EXPECT_THAT(ErrorOf(std::string("[a]\ndescription = ") + bytes + "\nconfig = x.sum\n"),
                StartsWith("own.txt:2: is no line of UTF-8 text"));
  }
}

TEST(MetricFile, RefusesWeightsThatMakeNoNumbers) {
  for (const char* weight : {"1e19", "-1e300"}) {
    EXPECT_THAT(ErrorOf(std::string("[a]\nconfig = x.sum\nratio = r: ") + weight + " * x.sum\n"),
                HasSubstr("the ratio \"r\" has a number beyond 1e+18"));
  }
}

TEST(MetricFile, SaysLineValueAndWayOut) {
  const std::string set = "[a]\nconfig = x.sum\n";
  EXPECT_THAT(ErrorOf(""), HasSubstr("begin with a line [NAME]"));
  EXPECT_THAT(ErrorOf("config = x.sum\n"), StartsWith("own.txt:1: stands before the first set"));
  EXPECT_THAT(ErrorOf("[a]\nconfig = dram__throughput.avg.pct_of_peak_sustained_elapsed\n"),
              StartsWith("own.txt:2: metric \"dram__throughput.avg.pct_of_peak_sustained_elapsed\" "
                         "does not end in .sum"));
  EXPECT_THAT(ErrorOf("[a]\nconfig = x.sum, x.sum\n"),
              StartsWith("own.txt:2: \"x.sum\" stands here twice"));
  EXPECT_THAT(ErrorOf(set + set), StartsWith("own.txt:3: \"a\" is here twice"));
  EXPECT_THAT(ErrorOf("[cache]\n"), StartsWith("own.txt:1: \"cache\" is the name of a shipped"));
  EXPECT_THAT(ErrorOf("[a\n"), StartsWith("own.txt:1: a \"]\" is missing"));
  EXPECT_THAT(ErrorOf("[a]\n[b]\n"),
              StartsWith("own.txt:1: metric set \"a\": has no line \"config = "));
  EXPECT_THAT(ErrorOf("[a]\nmetrics = x.sum\n"), HasSubstr("\"metrics = x.sum\" is none of"));
  EXPECT_THAT(ErrorOf("[a]\nconfig = \n"), StartsWith("own.txt:2: config is empty"));
  EXPECT_THAT(ErrorOf("[a b]\nconfig = x.sum\n"), HasSubstr("a name has letters"));
  EXPECT_THAT(
      ErrorOf(set + "ratio = r: y.sum / x.sum\n"),
      AllOf(StartsWith("own.txt:3:"), HasSubstr("\"y.sum\", which no configuration collects")));
  EXPECT_THAT(ErrorOf("[a]\nconfig = x.sum, y.sum\nratio = r: x.sum / x.sum + y.sum\n"),
              HasSubstr("own.txt:3: beside \"/\" a sum stands in parentheses: write \"(x.sum + "
                        "y.sum)\""));
  EXPECT_THAT(ErrorOf(set + "ratio = r: (x.sum\n"), HasSubstr("a \")\" is missing"));
  EXPECT_THAT(ErrorOf(set + "ratio = r (%) x.sum\n"),
              HasSubstr("own.txt:3: \"r (%) x.sum\" is not"));
  EXPECT_THAT(ErrorOf(set + "ratio = r: a * x.sum\n"),
              HasSubstr("\"a * x.sum\" is neither METRIC nor NUMBER * METRIC"));
  EXPECT_THAT(ErrorOf(set + "ratio = r: x.sum\nratio = r: x.sum\n"), HasSubstr("\"r\" twice"));
  std::string many = "[a]\n";
  for (int i = 0; i < 13; ++i) many += "config = x.sum\n";
  EXPECT_THAT(ErrorOf(many), HasSubstr("13 configurations, and a job collects at most 12"));
  std::string wide = "[a]\nconfig = x0.sum";
  for (int i = 1; i < 65; ++i) wide += ", x" + std::to_string(i) + ".sum";
  EXPECT_THAT(ErrorOf(wide), HasSubstr("names 65 metrics, and 64 can be read"));
  std::string lengthy = "[a]\nconfig = ";
  for (int i = 0; i < 12; ++i) lengthy += std::string(90, static_cast<char>('a' + i)) + ".sum,";
  lengthy.pop_back();
  EXPECT_THAT(ErrorOf(lengthy), HasSubstr("1140 characters, and there is room for 1016"));
  EXPECT_THAT(ErrorOf(std::string(70000, '#')),
              HasSubstr("more than 65536 bytes are no list of metrics"));
}

}  // namespace
}  // namespace seqpoint::counters
