// ExpectSameIterations: the hub has the iterations of the nodes, each once, as they were.
//
// Threading: as NodeJobs.
#ifndef SEQPOINT_TESTS_INTEGRATION_CLUSTER_SAME_ITERATIONS_H_
#define SEQPOINT_TESTS_INTEGRATION_CLUSTER_SAME_ITERATIONS_H_

#include <string>

#include "gtest/gtest.h"
#include "tests/support/node_jobs.h"

namespace seqpoint {

inline void ExpectSameIterations(const NodeJobs& jobs, const std::string& job,
                                 const std::string& hub = "hub") {
  for (int rank = 0; rank < jobs.ranks(); ++rank) {
    const auto expected = jobs.OnNode(job, rank);
    ASSERT_TRUE(expected) << rank;
    const auto seen = jobs.OnHub(job, rank, expected->size(), hub);
    ASSERT_TRUE(seen) << rank;
    ASSERT_EQ(seen->size(), expected->size()) << rank;
    for (size_t i = 0; i < seen->size(); ++i) {
      EXPECT_EQ((*seen)[i].number(), (*expected)[i].number());
      EXPECT_EQ((*seen)[i].lengths(0), (*expected)[i].lengths(0)) << rank << " " << i;
      EXPECT_EQ((*seen)[i].start_ns(), (*expected)[i].start_ns()) << rank << " " << i;
      EXPECT_EQ((*seen)[i].duration_ns(), (*expected)[i].duration_ns()) << rank << " " << i;
    }
  }
}

}  // namespace seqpoint

#endif  // SEQPOINT_TESTS_INTEGRATION_CLUSTER_SAME_ITERATIONS_H_
