#include "daemon/rpc/requests.h"

#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace seqpoint::rpc {
namespace {

using ::testing::HasSubstr;

TEST(RequestsTest, ANameThatCannotBeAJobsIsRefused) {
  v1::PrepareJobRequest request;
  for (const char* name : {"a@b", "", "line\nbreak"}) {
    request.set_name(name);
    EXPECT_TRUE(absl::IsInvalidArgument(CheckRest(request))) << name;
  }
  request.set_name("a");
  EXPECT_TRUE(CheckRest(request).ok());
}

TEST(RequestsTest, AHistogramInPiecesHasAnEnd) {
  v1::AnalyzeRequest request;
  v1::Horizon& horizon = *request.mutable_horizon();
  for (int i = 0; i < 1 << 22; ++i) horizon.add_histogram();
  EXPECT_TRUE(CheckSize(request).ok());
  horizon.add_histogram();
  EXPECT_THAT(std::string(CheckSize(request).message()), HasSubstr("horizon: the histogram"));
}

TEST(RequestsTest, ConfidenceHasADefaultAndBounds) {
  double result = 0;
  EXPECT_TRUE(SetConfidence(0, &result).ok());
  EXPECT_EQ(result, 0.95);
  EXPECT_TRUE(SetConfidence(0.999, &result).ok());
  EXPECT_EQ(result, 0.999);
  EXPECT_FALSE(SetConfidence(1, &result).ok());
  EXPECT_FALSE(SetConfidence(-0.1, &result).ok());
  EXPECT_FALSE(SetConfidence(std::nan(""), &result).ok());
  EXPECT_FALSE(CheckShare("x", std::nan("")).ok());
}

}  // namespace
}  // namespace seqpoint::rpc
