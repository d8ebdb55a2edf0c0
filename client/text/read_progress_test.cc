#include "client/text/read_progress.h"

#include "gtest/gtest.h"

namespace seqpoint::client {
namespace {

TEST(ReadProgress, ShareAndRateAreSaid) {
  EXPECT_EQ(ReadProgressText("train.csv", 945'000'000, 2'100'000'000, 4.5),
            "train.csv: 45 % of 2.100 GB read, 210 MB/s");
  EXPECT_EQ(ReadProgressText("/dev/stdin", 945'000'000, 0, 4.5),
            "/dev/stdin: 945 MB read, 210 MB/s");
  // A file that grows while it is read.
  EXPECT_EQ(ReadProgressText("a.csv", 3'000, 2'000, 1), "a.csv: 100 % of 2 kB read, 3 kB/s");
}

}  // namespace
}  // namespace seqpoint::client
