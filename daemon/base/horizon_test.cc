#include "daemon/base/horizon.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace seqpoint {
namespace {

using ::testing::HasSubstr;

v1::Horizon Histogram(std::vector<std::vector<int64_t>> rows) {  // count, lengths ...
  v1::Horizon horizon;
  horizon.set_kind(v1::Horizon::KIND_HISTOGRAM);
  for (const std::vector<int64_t>& row : rows) {
    v1::LengthCount* entry = horizon.add_histogram();
    entry->set_count(row[0]);
    for (size_t i = 1; i < row.size(); ++i) entry->add_lengths(row[i]);
  }
  return horizon;
}

std::string HorizonError(const v1::Horizon& horizon) {
  absl::Status status = CheckHorizon(horizon);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  return std::string(status.message());
}

TEST(HorizonTest, HorizonsThatMakeSensePass) {
  EXPECT_TRUE(CheckHorizon(v1::Horizon()).ok());
  EXPECT_TRUE(CheckHorizon(Histogram({{10, 5}, {1, 0}})).ok());
  EXPECT_TRUE(CheckHorizon(Histogram({{10, 5, 7}, {1, 2, 3}})).ok());
  v1::Horizon iterations;
  iterations.set_kind(v1::Horizon::KIND_ITERATIONS);
  iterations.set_iterations(5);
  EXPECT_TRUE(CheckHorizon(iterations).ok());
}

TEST(HorizonTest, OtherHorizonsAreRefusedWithFieldAndValue) {
  EXPECT_THAT(HorizonError(Histogram({})), HasSubstr("histogram is empty"));
  EXPECT_THAT(HorizonError(Histogram({{10, -5}})), HasSubstr("length -5"));
  EXPECT_THAT(HorizonError(Histogram({{1, 5}, {0, 6}})), HasSubstr("histogram[1]: count 0"));
  EXPECT_THAT(HorizonError(Histogram({{1, 5}, {1, 6, 7}})), HasSubstr("histogram[1] has 2"));
  EXPECT_THAT(HorizonError(Histogram({{1, 1, 2, 3}})), HasSubstr("has 3 lengths"));
  EXPECT_THAT(HorizonError(Histogram({{1, INT64_MAX}})), HasSubstr("length 9223372036854775807"));
  EXPECT_THAT(HorizonError(Histogram({{INT64_MAX, 5}, {INT64_MAX, 6}})), HasSubstr("count"));
  v1::Horizon many_epochs = Histogram({{1000, 5}});
  many_epochs.set_epochs(100'000'000'000'000);
  EXPECT_THAT(HorizonError(many_epochs), HasSubstr("count 1000"));
  v1::Horizon iterations;
  iterations.set_kind(v1::Horizon::KIND_ITERATIONS);
  EXPECT_THAT(HorizonError(iterations), HasSubstr("iterations is 0"));
  iterations.set_iterations(-1);
  EXPECT_THAT(HorizonError(iterations), HasSubstr("iterations = -1"));
  v1::Horizon unknown_with_histogram = Histogram({{1, 1}});
  unknown_with_histogram.set_kind(v1::Horizon::KIND_UNKNOWN);
  EXPECT_THAT(HorizonError(unknown_with_histogram), HasSubstr("takes none"));
}

}  // namespace
}  // namespace seqpoint
