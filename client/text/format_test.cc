#include "client/text/format.h"

#include <stdlib.h>
#include <time.h>

#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace seqpoint::client {
namespace {

v1::Estimate Estimate(double low, double value, double high) {
  v1::Estimate estimate;
  estimate.set_low(low);
  estimate.set_value(value);
  estimate.set_high(high);
  return estimate;
}

TEST(FormatTest, CountsHaveThousandsSeparators) {
  EXPECT_EQ(FormatCount(0), "0");
  EXPECT_EQ(FormatCount(999), "999");
  EXPECT_EQ(FormatCount(1'000), "1,000");
  EXPECT_EQ(FormatCount(-1'234'567), "-1,234,567");
  EXPECT_EQ(FormatCount(INT64_MIN), "-9,223,372,036,854,775,808");
}

TEST(FormatTest, QuantitiesHaveTheUnitThatFits) {
  EXPECT_EQ(FormatQuantity(0, "ns"), "0 ns");
  EXPECT_EQ(FormatQuantity(12.34, "ns"), "12.34 ns");
  EXPECT_EQ(FormatQuantity(41'230'112, "ns"), "41.23 ms");
  EXPECT_EQ(FormatQuantity(90e9, "ns"), "90 s");
  EXPECT_EQ(FormatQuantity(150e9, "ns"), "2 min 30.00 s");
  EXPECT_EQ(FormatQuantity(100 * 60e9, "ns"), "1 h 40 min 0 s");
  EXPECT_EQ(FormatQuantity(3.5 * 3600e9, "ns"), "3 h 30 min 0 s");
  EXPECT_EQ(FormatQuantity(76 * 3600e9, "ns"), "3 d 4 h 0 min");
  EXPECT_EQ(FormatQuantity(512, "B"), "512 B");
  EXPECT_EQ(FormatQuantity(3.2123e9, "B"), "3.212 GB");
  EXPECT_EQ(FormatQuantity(1.7e8, "1"), "170 M");
  EXPECT_EQ(FormatQuantity(7, "1"), "7");
  EXPECT_EQ(FormatQuantity(3.2123e9, "bytes"), "3.212 GB");
  EXPECT_EQ(FormatQuantity(69.08e9, "B/s"), "69.08 GB/s");
  EXPECT_EQ(FormatQuantity(1255, "GB/s"), "1.255 TB/s");
  EXPECT_EQ(FormatQuantity(0.5, "GB/s"), "500 MB/s");
  EXPECT_EQ(FormatQuantity(2.5e12, "cycles"), "2.500 T cycles");
  EXPECT_EQ(FormatQuantity(12, "cycles"), "12 cycles");
  EXPECT_EQ(FormatQuantity(0.25, "%"), "0.2500 %");
  EXPECT_EQ(FormatQuantity(-1.5e6, "ns"), "-1.500 ms");
  EXPECT_EQ(FormatQuantity(5e23, "B"), "500000.0 EB");
}

TEST(FormatTest, AnIntervalDecidesHowManyDigitsAreShown) {
  FormattedEstimate text = FormatEstimate(Estimate(199.2e9, 200e9, 200.8e9), "ns");
  EXPECT_EQ(text.value, "3 min 20.00 s");
  EXPECT_EQ(text.interval, "3 min 19.20 s to 3 min 20.80 s");
  EXPECT_EQ(text.precision, "+-0.40 %");
  text = FormatEstimate(Estimate(10e9, 20e9, 30e9), "ns");
  EXPECT_EQ(text.value, "20 s");
  EXPECT_EQ(text.interval, "10 to 30 s");
  EXPECT_EQ(text.precision, "+-50 %");
  text = FormatEstimate(Estimate(9.9e12, 10e12, 10.1e12), "ns");  // 1.7 minutes each way
  EXPECT_EQ(text.value, "2 h 46 min 40 s");
  EXPECT_EQ(text.interval, "2 h 45 min 0 s to 2 h 48 min 20 s");
  text = FormatEstimate(Estimate(0, 600e12, 1200e12), "ns");  // next to nothing is known
  EXPECT_EQ(text.value, "6 d 23 h");
  EXPECT_EQ(text.interval, "0 min to 13 d 21 h");
  EXPECT_EQ(FormatEstimate(Estimate(99.999, 100, 100.001), "B").precision, "+-<0.01 %");
  // One unit for all three, that of the value.
  text = FormatEstimate(Estimate(0.9e9, 1.1e9, 1.3e9), "B");
  EXPECT_EQ(text.value, "1.10 GB");
  EXPECT_EQ(text.interval, "0.90 to 1.30 GB");
}

TEST(FormatTest, AShareReachesTheFartherEndOfTheInterval) {
  EXPECT_EQ(FormatEstimate(Estimate(106e6, 106e6, 181e6), "ns").precision, "+-71 %");
  EXPECT_EQ(FormatEstimate(Estimate(40e9, 100e9, 110e9), "ns").precision, "+-60 %");
}

TEST(FormatTest, AnExactValueSaysSo) {
  FormattedEstimate text = FormatEstimate(Estimate(40e9, 40e9, 40e9), "ns");
  EXPECT_EQ(text.value, "40 s");
  EXPECT_EQ(text.interval, "exact");
  EXPECT_EQ(text.precision, "");
}

TEST(FormatTest, LossesAreNamedOnlyWhereThereAreAny) {
  v1::Losses losses;
  EXPECT_EQ(FormatLosses(losses), "");
  losses.set_distorted_iterations(1);
  losses.set_ring_dropped(12'000);
  EXPECT_EQ(FormatLosses(losses), "1 distorted iteration, 12,000 records dropped by a full ring");
  losses.Clear();
  losses.set_clock_steps(2);
  EXPECT_EQ(FormatLosses(losses),
            "2 steps of the system's clock (iterations around them have no time)");
  losses.Clear();
  losses.set_uncounted_processes(1);
  EXPECT_EQ(FormatLosses(losses), "1 process not read completely (figures are lower bounds)");
}

TEST(FormatTest, WhatMayBeMoreHasNoUpperEnd) {
  const auto at_least = [](double low, const char* unit) {
    return FormatEstimate(Estimate(low, 1.01 * low, std::numeric_limits<double>::infinity()), unit);
  };
  EXPECT_EQ(at_least(4.0949e9, "ns").value, "4.094 s") << "it is no bound if it is rounded up";
  EXPECT_EQ(at_least(4.0949e9, "ns").interval, "or more");
  EXPECT_EQ(at_least(4.0949e9, "ns").precision, "");
  EXPECT_EQ(at_least(4.095e9, "ns").value, "4.095 s");
  EXPECT_EQ(at_least(6e9, "ns").value, "6 s");
  EXPECT_EQ(at_least(179.999e9, "ns").value, "2 min 59.99 s");
  EXPECT_EQ(at_least(1.9999e12, "B").value, "1.999 TB");
  EXPECT_EQ(at_least(0, "ns").value, "0 ns");
}

TEST(FormatTest, ReachIsNeverInPowersOfTen) {
  EXPECT_EQ(FormatReach(0), "+-0 %");
  EXPECT_EQ(FormatReach(0.0042), "+-0.42 %");
  EXPECT_EQ(FormatReach(0.084), "+-8.4 %");
  EXPECT_EQ(FormatReach(1.4), "+-140 %");
  EXPECT_EQ(FormatReach(25), "+-2,500 %");
}

TEST(FormatTest, ProgressTellsWhatIsKnown) {
  v1::Job job;
  job.set_name("gnmt");
  job.set_state(v1::JOB_STATE_WAITING);
  EXPECT_EQ(ProgressLine(job, 80), "gnmt: waiting for the program to train");
  job.set_state(v1::JOB_STATE_LEARNING);
  EXPECT_EQ(ProgressLine(job, 80), "gnmt: learning where an iteration begins");
  job.set_state(v1::JOB_STATE_MARKING);
  job.set_iterations(1'000);
  job.set_unique_lengths(73);
  job.mutable_seqpoints()->set_seqpoints(8);
  job.mutable_seqpoints()->set_measured(3);
  *job.mutable_time()->mutable_per_1000_iterations() = Estimate(39.9e9, 40e9, 40.1e9);
  EXPECT_EQ(ProgressLine(job, 200),
            "gnmt: 1,000 iterations, 73 lengths, 3/8 SeqPoints, per 1,000 iterations 40.00 s "
            "+-0.25 %");
  job.mutable_time()->set_iterations_total(5'000);
  *job.mutable_time()->mutable_total() = Estimate(199.2e9, 200e9, 200.8e9);
  EXPECT_EQ(ProgressLine(job, 200),
            "gnmt: 1,000 of 5,000 iterations, 73 lengths, 3/8 SeqPoints, whole run 3 min 20.00 s "
            "(3 min 19.20 s to 3 min 20.80 s)");
  EXPECT_EQ(ProgressLine(job, 20), "gnmt: 1,000 of 5,...");
  job.set_error("the disk is full");
  EXPECT_THAT(ProgressLine(job, 200), ::testing::EndsWith(" - the disk is full"));
  job.set_ranks("rank 3 is slow");
  EXPECT_THAT(ProgressLine(job, 200), ::testing::EndsWith(" - the disk is full"));
  job.clear_error();
  EXPECT_THAT(ProgressLine(job, 200), ::testing::EndsWith(" - rank 3 is slow"));
}

TEST(FormatTest, AnEndHasItsIntervalAndTheDaysThatDiffer) {
  setenv("TZ", "UTC", 1);
  tzset();
  constexpr int64_t kSecond = 1'000'000'000, kMorning = 1'767'348'900 * kSecond;
  v1::Job job;
  v1::ExpectedEnd& end = *job.mutable_expected_end();
  end.set_time_ns(kMorning);
  end.set_low_ns(kMorning - 20 * kSecond);
  end.set_high_ns(kMorning + 24 * 3600 * kSecond);
  EXPECT_EQ(FormatEnd(end), "2026-01-02 10:15:00 (10:14:40 to 2026-01-03 10:15:00)");
  job.mutable_time()->mutable_total()->set_value(2e9);
  EXPECT_THAT(ProgressLine(job, 200),
              ::testing::HasSubstr(", ends 10:15:00 (10:14:40 to 2026-01-03 10:15:00)"));
}

TEST(FormatTest, TablesAlign) {
  Table table({"NAME", ">VALUE", "NOTE"});
  table.AddRow({"a", "1", ""});
  table.AddRow({"long name", "1,000", "something long enough to be cut"});
  EXPECT_EQ(table.ToString(),
            "NAME       VALUE  NOTE\n"
            "a              1\n"
            "long name  1,000  something long enough to be cut\n");
  EXPECT_EQ(table.ToString(40),
            "NAME       VALUE  NOTE\n"
            "a              1\n"
            "long name  1,000  something long enou...\n");
}

TEST(FormatTest, EmptyColumnsAreLeftOut) {
  Table table({"NAME", "DEVICE", "NOTE"});
  table.AddRow({"a", "", "x"});
  EXPECT_EQ(table.ToString(), "NAME  NOTE\na     x\n");
}

TEST(FormatTest, NamesCannotMoveTheCursor) {
  EXPECT_EQ(Printable("a\033[2Jb\tc\nd"), "a\\x1b[2Jb\\x09c\nd");
  // So are bytes that are not UTF-8, as old encodings leave them.
  EXPECT_EQ(Printable("L\xC3\xA4nge \xE2\x82\xAC \xF0\x9F\x98\x80"), "Länge € 😀");
  EXPECT_EQ(Printable("l\xE4nge"), "l\\xe4nge");
  // U+202E shows what follows from right to left, U+009B begins an order to a terminal.
  EXPECT_EQ(Printable("a\xE2\x80\xAEz\xC2\x9B\x32Jb"), "a\\u202ez\\u009b2Jb");
  EXPECT_EQ(Printable("\xC0\xAF \xED\xA0\x80 \xF4\x90\x80\x80 \xE2\x82"),
            "\\xc0\\xaf \\xed\\xa0\\x80 \\xf4\\x90\\x80\\x80 \\xe2\\x82");
  EXPECT_EQ(Quote(std::string(500, 'x')).size(), 62u);
  v1::GetJobReply reply;
  reply.mutable_job()->set_name("\033]0;x");
  reply.mutable_job()->add_processes()->add_features()->set_message("a\rb");
  MakePrintable(&reply);
  EXPECT_EQ(reply.job().name(), "\\x1b]0;x");
  EXPECT_EQ(reply.job().processes(0).features(0).message(), "a\\x0db");
}

TEST(FormatTest, LongLinesAreWrapped) {
  EXPECT_EQ(Wrap("basis: ", "one two three four", 17), "basis: one two\n       three four\n");
  EXPECT_EQ(Wrap("basis: ", "one two three four", 0), "basis: one two three four\n");
}

TEST(FormatTest, SmallSharesAreNotZero) {
  EXPECT_EQ(FormatShare(0.00001), "< 0.01 %");
  EXPECT_EQ(FormatShare(0), "0.0 %");
}

TEST(FormatTest, ARunThatEndedEarlySaysSo) {
  v1::Job job;
  job.set_iterations(1'000);
  job.mutable_time()->set_iterations_total(5'000);
  job.set_state(v1::JOB_STATE_MARKING);
  EXPECT_EQ(EndedBeforeText(job), "");
  job.set_state(v1::JOB_STATE_LOST);
  EXPECT_EQ(EndedBeforeText(job), "the run ended after 1,000 of 5,000 iterations");
  job.set_iterations(5'000);
  EXPECT_EQ(EndedBeforeText(job), "");
}

TEST(FormatTest, SymbolsAreDemangled) {
  EXPECT_EQ(Demangle("_Z4axpyfPf"), "axpy(float, float*)");
  EXPECT_EQ(Demangle("gemm_128x128"), "gemm_128x128");
  EXPECT_EQ(Demangle("_Znonsense"), "_Znonsense");
}

}  // namespace
}  // namespace seqpoint::client
