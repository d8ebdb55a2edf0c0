#include "daemon/ingest/process_identity.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace seqpoint::ingest {
namespace {

TEST(ProcessIdentityTest, ANumberThatWasGivenAgainIsAnotherProcess) {
  const std::string own = ProcessIdentity(getpid());
  EXPECT_NE(own, "");
  EXPECT_TRUE(StillRuns(getpid(), own));
  EXPECT_FALSE(StillRuns(getpid(), own + "1"));                       // another start
  EXPECT_FALSE(StillRuns(getpid(), "1" + own));                       // another boot
  EXPECT_TRUE(StillRuns(getpid(), "")) << "its number is in use";     // nothing more is known
  EXPECT_TRUE(StillRuns(0, "")) << "a process of another namespace";  // likewise
}

TEST(ProcessIdentityTest, AProcessThatIsGoneRunsNoMore) {
  const pid_t pid = fork();
  if (pid == 0) pause();
  const std::string identity = ProcessIdentity(pid);
  EXPECT_TRUE(StillRuns(pid, identity));
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  EXPECT_EQ(ProcessIdentity(pid), "");
  EXPECT_FALSE(StillRuns(pid, identity));
  EXPECT_FALSE(StillRuns(pid, ""));
}

}  // namespace
}  // namespace seqpoint::ingest
