#include "daemon/ingest/process_identity.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace seqpoint::ingest {
namespace {

std::string ReadProc(const std::string& path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// The fields of /proc/PID/stat from the third on, at least 20; none when there is no such process.
std::vector<std::string> StatFields(pid_t pid) {
  const std::string stat = ReadProc(absl::StrCat("/proc/", pid, "/stat"));
  // The name in field 2 may hold anything; it ends with the last bracket.
  std::vector<std::string> fields =
      absl::StrSplit(stat.substr(std::min(stat.size(), stat.rfind(')') + 2)), ' ');
  if (fields.size() < 20) fields.clear();
  return fields;
}

std::string Identity(const std::vector<std::string>& fields) {
  if (fields.empty()) return "";
  const std::string boot = ReadProc("/proc/sys/kernel/random/boot_id");
  // Field 22 is the start in ticks since boot.
  return absl::StrCat(boot.substr(0, boot.find('\n')), " ", fields[19]);
}

// It has ended and nobody has waited for it yet. A process whose first thread alone has ended is in
// the same state; field 20 counts its threads, that one included.
bool IsZombie(const std::vector<std::string>& fields) {
  const bool first_ended = fields[0] == "Z" || fields[0] == "X";
  return first_ended && (fields[17] == "0" || fields[17] == "1");
}

}  // namespace

std::string ProcessIdentity(pid_t pid) { return pid <= 0 ? "" : Identity(StatFields(pid)); }

bool StillRuns(pid_t pid, const std::string& identity) {
  if (pid <= 0) return true;
  const std::vector<std::string> fields = StatFields(pid);
  if (fields.empty() || IsZombie(fields)) return false;
  return identity.empty() || identity == Identity(fields);
}

}  // namespace seqpoint::ingest
