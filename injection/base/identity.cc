#include "injection/base/identity.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <atomic>
#include <initializer_list>

#include "injection/version.h"

namespace seqpoint::inject {
namespace {

constexpr size_t kCommandBytes = 2048;
// The daemon takes no longer name of a job, or of a run.
constexpr int kMostNameBytes = 255;
constexpr int kMostLaunchBytes = 63;

// As SetRank said.
std::atomic<int> g_rank{-1}, g_world_size{-1};
// As the launcher says: the environment is read once, as the program may change it.
std::atomic<int> g_launched_world_size{1};

// The first of the variables that is set and not empty; null: none is.
const char* FirstOf(std::initializer_list<const char*> variables) {
  for (const char* variable : variables) {
    const char* value = getenv(variable);
    if (value != nullptr && value[0] != '\0') return value;
  }
  return nullptr;
}

// The number in the first variable that is set. The fallback, where none is set or the number
// cannot be a rank.
int NumberOf(std::initializer_list<const char*> variables, int fallback) {
  const char* text = FirstOf(variables);
  if (text == nullptr) return fallback;
  char* end = nullptr;
  const long value = strtol(text, &end, 10);
  return *end == '\0' && value >= 0 && value <= 1'000'000 ? static_cast<int>(value) : fallback;
}

// Appends "key=value". Control characters would end the line too early.
void AppendLine(HelloText* text, const char* key, const char* value,
                int most_bytes = PATH_MAX - 1) {
  char clean[PATH_MAX];
  snprintf(clean, sizeof(clean), "%.*s", most_bytes, value);
  for (char* at = clean; *at != '\0'; ++at) {
    if (static_cast<unsigned char>(*at) < ' ') *at = ' ';
  }
  text->Append("%s=%s\n", key, clean);
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

// The name of the program; an interpreter's is that of its script.
const char* ProgramOf(const char* command, size_t length) {
  const char* program = Basename(command);
  if (strncmp(program, "python", 6) != 0) return program;
  // The first argument that is no option is the script (after -m: the module).
  const char* at = command + strlen(command) + 1;
  while (at < command + length && at[0] == '-') at += strlen(at) + 1;
  return at < command + length ? Basename(at) : program;
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

  if (const char* named = FirstOf({"SEQPOINT_JOB"}); named != nullptr) {
    AppendLine(text, "job", named, kMostNameBytes);
  } else {
    char job[kMostNameBytes + 1] = "unnamed";
    if (length > 0) snprintf(job, sizeof(job), "%s", ProgramOf(command, length));
    // "@" parts a job's name from its run id.
    for (char* at = job; *at != '\0'; ++at) {
      if (*at == '@') *at = '_';
    }
    AppendLine(text, "job", job);
  }
  if (const char* run_id = FirstOf({"SEQPOINT_RUN_ID", "TORCHELASTIC_RUN_ID"}); run_id != nullptr) {
    AppendLine(text, "run_id", run_id, kMostNameBytes);
  } else if (const char* slurm_job = FirstOf({"SLURM_JOB_ID"}); slurm_job != nullptr) {
    text->Append("run_id=slurm-%.64s\n", slurm_job);  // also when it was queued again
  } else {
    text->Append("run_id=%d-%llu\n", static_cast<int>(getpid()),
                 static_cast<unsigned long long>(RealNs()));
  }
  if (const char* launch = FirstOf({"SEQPOINT_LAUNCH"}); launch != nullptr) {
    AppendLine(text, "launch", launch, kMostLaunchBytes);
  }

  // Not SLURM_NTASKS, which a batch script has, too, when it starts one process only.
  g_launched_world_size.store(
      NumberOf({"WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}, 1));
  const int rank = g_rank.load();
  text->Append(
      "rank=%d\nlocal_rank=%d\nworld_size=%d\n",
      rank >= 0 ? rank
                : NumberOf({"RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK",
                            "JOB_COMPLETION_INDEX"},
                           0),
      NumberOf({"LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID"}, 0),
      WorldSize());

  for (size_t i = 0; i + 1 < length; ++i) {
    if (command[i] == '\0') command[i] = ' ';
  }
  if (length > 0) AppendLine(text, "command", command);
  char host[256] = {};
  if (gethostname(host, sizeof(host) - 1) == 0) text->Append("host=%s\n", host);
  char folder[PATH_MAX];
  if (getcwd(folder, sizeof(folder)) != nullptr) AppendLine(text, "cwd", folder);
  text->Append("library_version=%s\ncupti_version=%u\ndriver_version=%d\n", kLibraryVersion,
               cupti_version, driver_version);
}

}  // namespace seqpoint::inject
