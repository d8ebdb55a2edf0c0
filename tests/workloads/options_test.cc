#include "tests/workloads/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace seqpoint::workload {
namespace {

using testing::HasSubstr;

std::variant<Options, Usage> Parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "seqpoint_workload");
  return ParseOptions(static_cast<int>(arguments.size()), arguments.data());
}

Options Good(const std::vector<const char*>& arguments) {
  const auto parsed = Parse(arguments);
  const Usage* usage = std::get_if<Usage>(&parsed);
  EXPECT_EQ(usage, nullptr) << usage->text;
  return std::get<Options>(parsed);
}

Usage Bad(const std::vector<const char*>& arguments) {
  const auto parsed = Parse(arguments);
  EXPECT_TRUE(std::holds_alternative<Usage>(parsed));
  return std::get<Usage>(parsed);
}

TEST(OptionsTest, EveryModelHasDefaultsThatFitIt) {
  for (const char* model : {"gnmt", "ds2", "transformer", "fixed"}) {
    const Options options = Good({"--model", model});
    EXPECT_EQ(options.model.name, model);
    EXPECT_GT(options.model.batch, 0);
    const auto table = LoadLengths(options);
    ASSERT_TRUE(table.ok()) << table.status();
    EXPECT_GT(table->size(), 16000u);
    EXPECT_EQ((*table)[0].size(), static_cast<size_t>(LengthsPerExample(model)));
  }
}

TEST(OptionsTest, ReadsValues) {
  const Options options =
      Good({"--model", "transformer", "--hidden", "128", "--readback", "never", "--order", "bucket",
            "--zero-grad", "none", "--optimizer", "foreach", "--nvtx", "--seed", "9"});
  EXPECT_EQ(options.model.hidden, 128);
  EXPECT_EQ(options.readback_every, 0);
  EXPECT_EQ(options.order, Order::kBucket);
  EXPECT_EQ(options.zero_grad, ZeroGrad::kNone);
  EXPECT_TRUE(options.foreach);
  EXPECT_TRUE(options.nvtx);
  EXPECT_EQ(options.model.seed, 9u);
  EXPECT_EQ(Good({"--readback", "50"}).readback_every, 50);
  EXPECT_FALSE(Good({"--no-nvtx"}).nvtx);
}

TEST(OptionsTest, RefusesWhatCannotWorkAndSaysWhy) {
  EXPECT_EQ(Parse({"--help"}).index(), 1u);
  EXPECT_EQ(Bad({"--help"}).code, 0);
  EXPECT_EQ(Bad({"--model", "resnet"}).code, 2);
  EXPECT_THAT(Bad({"--model", "resnet"}).text, HasSubstr("resnet"));
  EXPECT_THAT(Bad({"--batch", "0"}).text, HasSubstr("--batch"));
  EXPECT_THAT(Bad({"--readback", "0"}).text, HasSubstr("--readback"));
  EXPECT_THAT(Bad({"--histogram", "alpaca", "--lengths", "x.csv"}).text, HasSubstr("excludes"));
  EXPECT_THAT(Bad({"--layers", "1"}).text, HasSubstr("gnmt needs 2 or more"));
  EXPECT_THAT(Bad({"--graphs"}).text, HasSubstr("only transformer and fixed"));
  EXPECT_THAT(Bad({"--model", "transformer", "--hidden", "100"}).text,
              HasSubstr("100 is not a multiple of 64"));
  EXPECT_THAT(Bad({"--model", "ds2", "--hidden", "2048"}).text, HasSubstr("2048 is above 1024"));
}

TEST(OptionsTest, LongExamplesCanBeLeftOut) {
  const auto table =
      LoadLengths(Good({"--histogram", "newstest", "--examples", "500", "--max-length", "30"}));
  ASSERT_TRUE(table.ok());
  EXPECT_LT(table->size(), 500u);
  for (const auto& row : *table) {
    EXPECT_LE(row[0], 30);
    EXPECT_LE(row[1], 30);
  }
  const auto none = LoadLengths(Good({"--histogram", "librispeech", "--max-length", "1"}));
  EXPECT_THAT(std::string(none.status().message()), HasSubstr("every example is longer than 1"));
}

}  // namespace
}  // namespace seqpoint::workload
