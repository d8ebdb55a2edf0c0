// Ranks on the software NCCL, for its tests: a puppet for each (nccl_puppet.cc), which does a list
// of steps, and what they wrote.
//
//   Ranks ranks(2, kQuiet, {"init", "allreduce:10", "destroy"});
//   ranks.Finish();
//   ranks.TruthOf(0) ...
#ifndef SEQPOINT_TESTS_SOFTGPU_NCCL_RANKS_H_
#define SEQPOINT_TESTS_SOFTGPU_NCCL_RANKS_H_

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "tests/softgpu/nccl_abi.h"

namespace seqpoint::softgpu {

using Strings = std::vector<std::string>;

inline constexpr char kQuiet[] =
    "noise.kernel=0,noise.slow_share=0,noise.cpu=0,noise.drift=0,noise.counters=0,"
    "noise.search_ns=0,noise.collective=0,clock.speed_cap=0,";

inline std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline Strings Lines(const std::string& text) {
  Strings lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// Lines that begin so.
inline Strings Only(const Strings& lines, const std::string& begin) {
  Strings found;
  for (const std::string& line : lines) {
    if (line.starts_with(begin)) found.push_back(line);
  }
  return found;
}

// The number behind `name=` in a line.
inline uint64_t Field(const std::string& line, const std::string& name) {
  const size_t at = line.find(name + "=");
  EXPECT_NE(at, std::string::npos) << name << " in " << line;
  return at == std::string::npos ? 0 : strtoull(line.c_str() + at + name.size() + 1, nullptr, 10);
}

// A line of nccl.truth_file.
struct Truth {
  std::string communicator, function;
  uint64_t kernel, sequence, bytes, arrival_ns, start_ns, end_ns;
  int rank, last_rank;
};

inline std::vector<Truth> ReadTruth(const std::string& path) {
  std::vector<Truth> all;
  Strings lines = Lines(ReadFile(path));
  for (size_t i = 1; i < lines.size(); ++i) {
    std::replace(lines[i].begin(), lines[i].end(), ',', ' ');
    std::istringstream in(lines[i]);
    Truth t;
    in >> t.communicator >> t.kernel >> t.function >> t.sequence >> t.bytes >> t.rank >>
        t.arrival_ns >> t.start_ns >> t.end_ns >> t.last_rank;
    EXPECT_FALSE(in.fail()) << lines[i];
    all.push_back(t);
  }
  return all;
}

// Ranks that run one list of steps.
class Ranks {
 public:
  Ranks(int count, const std::string& settings, const Strings& steps,
        const std::map<std::string, std::string>& environment = {})
      : count_(count) {
    std::string pattern = testing::TempDir() + "nccl-XXXXXX";
    folder_ = mkdtemp(pattern.data());
    for (int rank = 0; rank < count; ++rank) Start(rank, settings, steps, environment);
  }

  ~Ranks() {
    for (pid_t pid : pids_) {
      if (pid != 0) kill(pid, SIGKILL), waitpid(pid, nullptr, 0);
    }
    std::filesystem::remove_all(folder_);
  }

  // The wait status of a rank; fails the test when the rank does not end.
  int Wait(int rank) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    int status = 0;
    while (waitpid(pids_[static_cast<size_t>(rank)], &status, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() > deadline) {
        ADD_FAILURE() << "rank " << rank << " does not end; it said\n"
                      << ReadFile(Path("out", rank));
        return -1;
      }
      usleep(2000);
    }
    pids_[static_cast<size_t>(rank)] = 0;
    return status;
  }

  // All ranks end, and no call fails.
  void Finish() {
    for (int rank = 0; rank < count_; ++rank) {
      EXPECT_EQ(Wait(rank), 0) << "rank " << rank;
      const Strings out = Output(rank);
      ASSERT_FALSE(out.empty());
      EXPECT_EQ(out.back(), "done");
      for (const std::string& line : out) {
        EXPECT_EQ(line.find("failed"), std::string::npos) << "rank " << rank << ": " << line;
      }
    }
    ExpectNoLeftovers();
  }

  // The shared memory of the ranks' communicators has no name any more. The id of the first one
  // holds its name, from the ninth byte on.
  void ExpectNoLeftovers() {
    const std::string id = ReadFile(folder_ + "/id");
    ASSERT_EQ(id.size(), sizeof(ncclUniqueId));
    unsigned long long random[2];
    memcpy(random, id.data() + 8, sizeof(random));
    char name[64];
    snprintf(name, sizeof(name), "swgpu-nccl-%016llx%016llx", random[0], random[1]);
    for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
      EXPECT_FALSE(entry.path().filename().string().starts_with(name)) << entry.path();
    }
  }

  Strings Output(int rank) const { return Lines(ReadFile(Path("out", rank))); }
  std::vector<Truth> TruthOf(int rank) const { return ReadTruth(Path("truth", rank)); }
  Strings Recorded(int rank) const { return Lines(ReadFile(Path("record", rank))); }
  pid_t pid(int rank) const { return pids_[static_cast<size_t>(rank)]; }
  std::string Path(const std::string& name, int rank) const {
    return folder_ + "/" + name + "." + std::to_string(rank);
  }

 private:
  void Start(int rank, const std::string& settings, const Strings& steps,
             const std::map<std::string, std::string>& environment) {
    fflush(nullptr);
    const pid_t pid = fork();
    ASSERT_GE(pid, 0);
    pids_.push_back(pid);
    if (pid != 0) return;
    const int out = open(Path("out", rank).c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0600);
    dup2(out, STDOUT_FILENO);
    const std::string all = settings + "nccl.truth_file=" + folder_ + "/truth.%r";
    setenv("SWGPU_SET", all.c_str(), 1);
    setenv("SWGPU_SEED", std::to_string(1 + rank).c_str(), 1);
    setenv("RECORD_FILE", Path("record", rank).c_str(), 1);
    setenv("SWGPU_TRUTH", Path("sums", rank).c_str(), 1);
    setenv("NCCL_PROFILER_PLUGIN", "none", 1);
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    Strings arguments = {NCCL_PUPPET, std::to_string(rank), std::to_string(count_), folder_};
    arguments.insert(arguments.end(), steps.begin(), steps.end());
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    execv(argv[0], argv.data());
    _exit(127);
  }

  const int count_;
  std::string folder_;
  std::vector<pid_t> pids_;
};

}  // namespace seqpoint::softgpu

#endif  // SEQPOINT_TESTS_SOFTGPU_NCCL_RANKS_H_
