#include "daemon/queries/metric_sets.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace seqpoint::queries {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

v1::ListMetricSetsRequest Asked(const std::string& set, const std::string& chip,
                                const std::string& file = "") {
  v1::ListMetricSetsRequest request;
  request.set_set(set);
  request.set_chip(chip);
  request.mutable_file()->set_name("own.txt");
  request.mutable_file()->set_text(file);
  return request;
}

TEST(MetricSetsTest, ASetHasMetricsUnitsAndWhatItLacks) {
  const auto reply = ListMetricSets(Asked("cache", "GA100"));
  ASSERT_TRUE(reply.ok()) << reply.status();
  ASSERT_EQ(reply->sets_size(), 1);
  const v1::MetricSetOffer& range = reply->sets(0).offers(0);
  EXPECT_EQ(range.backend(), v1::COUNTER_BACKEND_RANGE);
  ASSERT_EQ(range.configurations_size(), 2);
  EXPECT_EQ(range.configurations(0).passes(), 1);
  EXPECT_EQ(range.ratios(0).numerator(0).weight(), 100);
  EXPECT_THAT(reply->sets(0).offers(1).missing(), HasSubstr("without L2 hits"));
  EXPECT_THAT(std::string(ListMetricSets(Asked("x", "GA100")).status().message()),
              HasSubstr("no metric set \"x\"; there are: utilisation"));
}

TEST(MetricSetsTest, ChipsAreTakenInSmallLetters) {
  EXPECT_EQ(ListMetricSets(Asked("", "gh100"))->chip(), "GH100");
  EXPECT_EQ(ListMetricSets(Asked("", ""))->chip(), "GH100");
  const absl::Status status = ListMetricSets(Asked("", "foo")).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("\"foo\" is none of "));
}

TEST(MetricSetsTest, OwnSetsComeFirstAndTheirPassesAreAsked) {
  const auto reply =
      ListMetricSets(Asked("", "GH100",
                           "[mine]\ndescription = what I want\nconfig = gpu__time_duration.sum, "
                           "lts__t_sectors_lookup_hit.sum, lts__t_sectors_lookup_miss.sum\n"));
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->sets(0).name(), "mine");
  // With CUPTI's host library its count, else the reason why there is none.
  EXPECT_THAT(reply->sets(0).offers(0).configurations(0).problem(),
              AnyOf(HasSubstr("2 passes: one iteration gives one, split"),
                    HasSubstr("libcupti.so.13 was not found"), HasSubstr("no CUPTI headers")));
}

TEST(MetricSetsTest, TheSetsOfAFileBelongToTheRequest) {
  v1::PrepareJobRequest request;
  request.mutable_metric_file()->set_name("own.txt");
  request.mutable_metric_file()->set_text(
      "[a]\ndescription = s\nconfig = gpu__time_duration.sum, dram__bytes.sum\n"
      "ratio = r (%): 100 * dram__bytes.sum / gpu__time_duration.sum\n");
  request.add_metric_sets("a");
  request.add_metric_sets("utilisation");
  const absl::Status status = ResolveMetricSets(&request);
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_EQ(request.own_metric_sets_size(), 1);
  const v1::MetricSet& set = request.own_metric_sets(0);
  EXPECT_EQ(set.name(), "a");
  EXPECT_EQ(set.configurations(0).metrics(1), "dram__bytes.sum");
  EXPECT_EQ(set.ratios(0).numerator(0).weight(), 100);
  EXPECT_FALSE(request.has_metric_file());
}

TEST(MetricSetsTest, AMistakeIsNamed) {
  v1::PrepareJobRequest request;
  request.mutable_metric_file()->set_name("own.txt");
  request.mutable_metric_file()->set_text("[a]\nconfig = x\n");
  EXPECT_THAT(std::string(ResolveMetricSets(&request).message()),
              HasSubstr("own.txt:2: metric \"x\""));
  request.clear_metric_file();
  request.add_metric_sets("foo");
  const absl::Status status = ResolveMetricSets(&request);
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("no metric set \"foo\"; there are: utilisation"));
}

}  // namespace
}  // namespace seqpoint::queries
