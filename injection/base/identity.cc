#include "injection/base/identity.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <atomic>

#include "injection/version.h"

namespace seqpoint::inject {
namespace {

constexpr size_t kCommandBytes = 2048;

// As SetRank said.
std::atomic<int> g_rank{-1}, g_world_size{-1};
// As the launcher says: the environment is read once, as the program may change it.
std::atomic<int> g_launched_world_size{1};

const char* FirstOf(const char* const* variables) {
  for (; *variables != nullptr; ++variables) {
    const char* value = getenv(*variables);
    if (value != nullptr && value[0] != '\0') return value;
  }
  return nullptr;
}

// Of a launcher's variable; the fallback where it is not set or no number that a rank can be.
int NumberOf(const char* text, int fallback) {
  if (text == nullptr) return fallback;
  char* end = nullptr;
  const long value = strtol(text, &end, 10);
  return *end == '\0' && value >= 0 && value <= 1'000'000 ? static_cast<int>(value) : fallback;
}

bool IsInterpreter(const char* program) { return strncmp(program, "python", 6) == 0; }

// Control characters would end a line of the text too early.
void Clean(char* text) {
  for (; *text != '\0'; ++text) {
    if (static_cast<unsigned char>(*text) < ' ') *text = ' ';
  }
}

// Arguments of this process, one after the other, each ended by a zero byte.
size_t ReadCommand(char* bytes, size_t capacity) {
  const int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  const ssize_t got = read(fd, bytes, capacity - 1);
  close(fd);
  if (got <= 0) return 0;
  bytes[got] = '\0';
  return static_cast<size_t>(got);
}

}  // namespace

void SetRank(int rank, int world_size) {
  g_rank.store(rank);
  g_world_size.store(world_size);
}

int WorldSize() {
  const int said = g_world_size.load(std::memory_order_relaxed);
  return said > 0 ? said : g_launched_world_size.load(std::memory_order_relaxed);
}

void BuildHelloText(uint32_t cupti_version, int driver_version, HelloText* text) {
  char command[kCommandBytes];
  const size_t length = ReadCommand(command, sizeof(command));

  char job[256] = "unnamed";
  const char* named = getenv("SEQPOINT_JOB");
  if (named != nullptr && named[0] != '\0') {
    snprintf(job, sizeof(job), "%.255s", named);
  } else if (length > 0) {
    const char* program = Basename(command);
    if (IsInterpreter(program)) {
      // The first argument that is no option is the script (after -m: the module).
      for (const char* at = command + strlen(command) + 1; at < command + length;
           at += strlen(at) + 1) {
        if (at[0] == '-') continue;
        program = Basename(at);
        break;
      }
    }
    snprintf(job, sizeof(job), "%.255s", program);
    // "@" parts a job's name from its run id.
    for (char* at = job; *at != '\0'; ++at) {
      if (*at == '@') *at = '_';
    }
  }
  Clean(job);
  text->Append("job=%s\n", job);

  static constexpr const char* kRunIds[] = {"SEQPOINT_RUN_ID", "TORCHELASTIC_RUN_ID", nullptr};
  static constexpr const char* kSlurmJob[] = {"SLURM_JOB_ID", nullptr};
  char run_id[256] = {};
  if (const char* value = FirstOf(kRunIds)) snprintf(run_id, sizeof(run_id), "%.255s", value);
  Clean(run_id);
  const char* slurm_job = FirstOf(kSlurmJob);
  if (run_id[0] != '\0') {
    text->Append("run_id=%s\n", run_id);
  } else if (slurm_job != nullptr) {
    const char* restart = getenv("SLURM_RESTART_COUNT");
    text->Append("run_id=slurm-%.64s-%.64s\n", slurm_job, restart != nullptr ? restart : "0");
  } else {
    text->Append("run_id=%d-%llu\n", static_cast<int>(getpid()),
                 static_cast<unsigned long long>(RealNs()));
  }

  const char* launch = getenv("SEQPOINT_LAUNCH");
  if (launch != nullptr && launch[0] != '\0') {
    char clean[64];
    snprintf(clean, sizeof(clean), "%.63s", launch);
    Clean(clean);
    text->Append("launch=%s\n", clean);
  }

  static constexpr const char* kRanks[] = {"RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", nullptr};
  static constexpr const char* kLocalRanks[] = {"LOCAL_RANK", "SLURM_LOCALID",
                                                "OMPI_COMM_WORLD_LOCAL_RANK", nullptr};
  // Not SLURM_NTASKS, which a batch script has, too, when it starts one process only.
  static constexpr const char* kWorldSizes[] = {"WORLD_SIZE", "SLURM_STEP_NUM_TASKS",
                                                "OMPI_COMM_WORLD_SIZE", nullptr};
  const char* rank = FirstOf(kRanks);
  const char* local_rank = FirstOf(kLocalRanks);
  const char* world_size = FirstOf(kWorldSizes);
  const int told_rank = g_rank.load();
  g_launched_world_size.store(NumberOf(world_size, 1));
  text->Append("rank=%d\nlocal_rank=%d\nworld_size=%d\n",
               told_rank >= 0 ? told_rank : NumberOf(rank, 0), NumberOf(local_rank, 0),
               WorldSize());

  for (size_t i = 0; i + 1 < length; ++i) {
    if (command[i] == '\0') command[i] = ' ';
  }
  Clean(command);
  if (length > 0) text->Append("command=%s\n", command);
  char host[256] = {};
  if (gethostname(host, sizeof(host) - 1) == 0) text->Append("host=%s\n", host);
  char folder[PATH_MAX];
  if (getcwd(folder, sizeof(folder)) != nullptr) {
    Clean(folder);
    text->Append("cwd=%s\n", folder);
  }
  text->Append("library_version=%s\ncupti_version=%u\ndriver_version=%d\n", kLibraryVersion,
               cupti_version, driver_version);
}

}  // namespace seqpoint::inject
