#include "daemon/ingest/process_identity.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"

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

TEST(ProcessIdentityTest, AZombieRunsNoMore) {
  const pid_t pid = fork();
  if (pid == 0) pause();
  const std::string identity = ProcessIdentity(pid);
  kill(pid, SIGKILL);
  siginfo_t ended;
  waitid(P_PID, static_cast<id_t>(pid), &ended, WEXITED | WNOWAIT);
  EXPECT_EQ(ProcessIdentity(pid), identity) << "its number is still its own";
  EXPECT_FALSE(StillRuns(pid, identity));
  EXPECT_FALSE(StillRuns(pid, ""));
  waitpid(pid, nullptr, 0);
}

TEST(ProcessIdentityTest, AProcessRunsAsLongAsOneOfItsThreads) {
  const pid_t pid = fork();
  if (pid == 0) {
    std::thread([] { pause(); }).detach();
    syscall(SYS_exit, 0);  // this thread alone
  }
  const std::string identity = ProcessIdentity(pid);
  const auto first_ended = [pid] {
    std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
    const std::string stat(std::istreambuf_iterator<char>(file), {});
    return stat.find(") Z ") != std::string::npos;
  };
  for (int i = 0; i < 1000 && !first_ended(); ++i) usleep(10'000);
  EXPECT_TRUE(first_ended());
  EXPECT_TRUE(StillRuns(pid, identity));
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
}

}  // namespace
}  // namespace seqpoint::ingest
