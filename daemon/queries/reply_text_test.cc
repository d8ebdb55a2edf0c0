#include "daemon/queries/reply_text.h"

#include <string>

#include "gtest/gtest.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::queries {
namespace {

TEST(ReplyTextTest, BytesThatAreNotUtf8AreReplacedEverywhere) {
  v1::Job job;
  job.set_command("train \xE9t\xE9");                         // Latin-1
  job.add_processes()->set_command("\xC0\xAF \xED\xA0\x80");  // overlong, surrogate
  job.add_processes()->set_command("gr\xC3\xBC\xC3\x9F \xF0\x9F\x98\x80");
  job.mutable_rule()->set_boundary("cut \xE2\x82");
  MakeFit(&job);
  const std::string r = "\xEF\xBF\xBD";
  EXPECT_EQ(job.command(), "train " + r + "t" + r);
  EXPECT_EQ(job.processes(0).command(), r + r + " " + r + r + r);
  EXPECT_EQ(job.processes(1).command(), "gr\xC3\xBC\xC3\x9F \xF0\x9F\x98\x80");
  EXPECT_EQ(job.rule().boundary(), "cut " + r + r);
  v1::PrepareJobRequest repeated;
  repeated.add_metric_sets("a\xFF");
  MakeFit(&repeated);
  EXPECT_EQ(repeated.metric_sets(0), "a" + r);
}

}  // namespace
}  // namespace seqpoint::queries
