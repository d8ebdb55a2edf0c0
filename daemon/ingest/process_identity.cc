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

}  // namespace

std::string ProcessIdentity(pid_t pid) {
  if (pid <= 0) return "";
  const std::string stat = ReadProc(absl::StrCat("/proc/", pid, "/stat"));
  // Field 22 is the start in ticks since boot. The name in field 2 may hold anything; it ends with
  // the last bracket.
  const std::vector<std::string> fields =
      absl::StrSplit(stat.substr(std::min(stat.size(), stat.rfind(')') + 2)), ' ');
  if (fields.size() < 20) return "";
  const std::string boot = ReadProc("/proc/sys/kernel/random/boot_id");
  return absl::StrCat(boot.substr(0, boot.find('\n')), " ", fields[19]);
}

bool StillRuns(pid_t pid, const std::string& identity) {
  if (pid <= 0) return true;
  const std::string now = ProcessIdentity(pid);
  return !now.empty() && (identity.empty() || identity == now);
}

}  // namespace seqpoint::ingest
