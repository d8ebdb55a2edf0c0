// Logs as JSON, and what systemd is told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "daemon/operate/log_format.h"
#include "daemon/operate/notify.h"
#include "daemon/operate/probes.h"
#include "daemon/operate/start_note.h"
#include "proto/start_note.h"
#include "spdlog/details/log_msg.h"
#include "tests/support/daemon_in_process.h"
#include "tests/support/temp_folder.h"

namespace seqpoint::operate {
namespace {

using ::testing::EndsWith;

TEST(LogFormatTest, AnObjectALine) {
  spdlog::memory_buf_t out;
  const spdlog::log_clock::time_point time{std::chrono::milliseconds(1'767'225'600'123)};
  const spdlog::details::log_msg message(time, {}, "", spdlog::level::warn, "job \"a\"\nended");
  JsonLogFormatter().format(message, out);
  EXPECT_EQ(std::string(out.data(), out.size()),
            "{\"time\":\"2026-01-01T00:00:00.123Z\",\"level\":\"warning\","
            "\"message\":\"job \\\"a\\\"\\u000aended\"}\n");
}

TEST(LogFormatTest, NoNameForgesALineOfText) {
  const auto line_of = [](const std::string& text) {
    spdlog::memory_buf_t out;
    const spdlog::details::log_msg message("", spdlog::level::warn, text);
    TextLogFormatter().format(message, out);
    return std::string(out.data(), out.size());
  };
  EXPECT_THAT(line_of("node a\n[2026-01-01 00:00:00.000] [error] forged\x1b[2J\r ended"),
              EndsWith("] [warning] node a\\x0a[2026-01-01 00:00:00.000] [error] forged\\x1b[2J"
                       "\\x0d ended\n"));
  EXPECT_THAT(line_of("node Länge ended"), EndsWith("] [warning] node Länge ended\n"));
}

TEST(StartNoteTest, ACommandLineIsOneThatAShellTakes) {
  const TempFolder folder;
  LeaveStartNote(folder.path(), "hub", {"seqpointd", "--store", "/a b/it's.db", ""});
  std::ifstream note(folder.path() / kStartNote);
  std::string kind, command;
  std::getline(note, kind);
  std::getline(note, command);
  EXPECT_EQ(kind, "hub");
  EXPECT_EQ(command, "seqpointd --store '/a b/it'\\''s.db' ''");
}

class ProbesTest : public service::DaemonTest {};

TEST_F(ProbesTest, AStoreThatHangsWithTheLockOfTheJobsIsToldAndHoldsNoProbeUp) {
  const auto daemon = Start();
  const Probes probes(daemon.get());
  EXPECT_EQ(probes.Answer("/readyz").status, 200);
  EXPECT_TRUE(absl::StrContains(probes.Answer("/metrics").body, "seqpointd_jobs 0"));
  absl::Notification locked, answered;
  std::thread hangs([&] {
    absl::MutexLock lock(&daemon->jobs().mutex());
    locked.Notify();
    answered.WaitForNotification();
  });
  locked.WaitForNotification();
  EXPECT_EQ(probes.Answer("/healthz").status, 200);
  const HttpReply ready = probes.Answer("/readyz"), metrics = probes.Answer("/metrics");
  answered.Notify();
  hangs.join();
  EXPECT_EQ(ready.status, 503);
  EXPECT_TRUE(absl::StrContains(ready.body, "the jobs are locked")) << ready.body;
  EXPECT_EQ(metrics.status, 200);
  EXPECT_TRUE(absl::StrContains(metrics.body, "seqpointd_ready 0")) << metrics.body;
  EXPECT_TRUE(absl::StrContains(metrics.body, "seqpointd_ingest_turn_age_seconds"));
  EXPECT_FALSE(absl::StrContains(metrics.body, "seqpointd_jobs"));
}

TEST(NotifierTest, SendsToTheSocketThatSystemdNames) {
  const TempFolder folder;
  const std::string path = (folder.path() / "notify").string();
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_un address = {.sun_family = AF_UNIX};
  strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  setenv("NOTIFY_SOCKET", path.c_str(), 1);
  setenv("WATCHDOG_USEC", "30000000", 1);
  setenv("WATCHDOG_PID", absl::StrCat(getpid()).c_str(), 1);
  const Notifier notifier;
  EXPECT_EQ(notifier.watchdog(), absl::Seconds(30));
  notifier.Send("READY=1");
  char bytes[64];
  EXPECT_EQ(std::string(bytes, recv(fd, bytes, sizeof bytes, 0)), "READY=1");
  close(fd);

  setenv("WATCHDOG_PID", "1", 1);  // another process's
  EXPECT_EQ(Notifier().watchdog(), absl::ZeroDuration());
  unsetenv("NOTIFY_SOCKET");
  EXPECT_FALSE(Notifier().on());
}

}  // namespace
}  // namespace seqpoint::operate
