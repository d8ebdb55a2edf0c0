#include "injection/base/identity.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <string>

namespace seqpoint::inject {
namespace {

class IdentityTest : public ::testing::Test {
 protected:
  IdentityTest() {
    for (const char* name :
         {"SEQPOINT_RUN_ID", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "RANK", "SLURM_PROCID",
          "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMI_SIZE", "WORLD_SIZE", "JOB_COMPLETION_INDEX"}) {
      unsetenv(name);
    }
  }
  static bool Says(const std::string& line) {
    HelloText text;
    BuildHelloText(0, 0, &text);
    return ("\n" + std::string(text.c_str())).find("\n" + line + "\n") != std::string::npos;
  }
};

TEST_F(IdentityTest, AJobOfSlurmIsOneRunAlsoWhenItIsQueuedAgain) {
  setenv("SLURM_JOB_ID", "77", 1);
  setenv("SLURM_PROCID", "5", 1);
  EXPECT_TRUE(Says("run_id=slurm-77"));
  EXPECT_TRUE(Says("rank=5"));
  setenv("SLURM_RESTART_COUNT", "2", 1);
  EXPECT_TRUE(Says("run_id=slurm-77"));
  setenv("TORCHELASTIC_RUN_ID", "own", 1);
  EXPECT_TRUE(Says("run_id=own"));
}

TEST_F(IdentityTest, RanksComeFromTheLauncherThatIsNearest) {
  setenv("JOB_COMPLETION_INDEX", "3", 1);  // of the pod
  EXPECT_TRUE(Says("rank=3"));
  setenv("PMI_RANK", "6", 1);
  setenv("PMI_SIZE", "8", 1);
  EXPECT_TRUE(Says("rank=6"));
  EXPECT_TRUE(Says("world_size=8"));
  setenv("RANK", "7", 1);
  EXPECT_TRUE(Says("rank=7"));
}

}  // namespace
}  // namespace seqpoint::inject
