#include "daemon/queries/log_import.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "daemon/seqpoint/outliers.h"

namespace seqpoint::queries {
namespace {

constexpr double kMostDurationNs = 1LL << 56;  // what an engine takes for a time
constexpr double kMostRunNs = 1LL << 60;       // then the end of a run that begins today has a date
constexpr size_t kMostSourceBytes = 1024;

}  // namespace

std::string OneLine(std::string text) {
  text.resize(std::min(text.size(), kMostSourceBytes));
  std::replace_if(
      text.begin(), text.end(),
      [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 0x7f; }, ' ');
  return text;
}

absl::StatusOr<jobs::ImportedRun> ReadImport(const v1::ImportJobRequest& request, int64_t now_ns) {
  const v1::IterationLog& log = request.log();
  const int rows = log.lengths_size();
  jobs::ImportedRun run{.source = OneLine(request.source()),
                        .dimensions = log.second_lengths_size() > 0 ? 2 : 1};
  std::vector<KeyTime> times;
  // Start-up is looked for among those with a time.
  std::vector<KeyTime> timed;
  std::vector<int32_t> groups_of_timed;
  double run_ns = 0;
  for (int i = 0; i < rows; ++i) {
    const double duration_ns =
        log.durations(i) == 0 ? 0 : std::max(std::round(log.durations(i)), 1.0);
    run_ns += duration_ns;
    if (duration_ns > kMostDurationNs) {
      return absl::InvalidArgumentError(absl::StrCat("log: durations[", i, "] = ", log.durations(i),
                                                     " ns is ", duration_ns / 86400e9,
                                                     " days; is the unit of time right?"));
    }
    times.push_back(
        {{log.lengths(i), run.dimensions > 1 ? log.second_lengths(i) : 0}, duration_ns});
    if (duration_ns == 0) continue;
    timed.push_back(times.back());
    if (log.groups_size() > 0) groups_of_timed.push_back(log.groups(i));
  }
  if (run_ns > kMostRunNs) {
    return absl::InvalidArgumentError(absl::StrCat("log: its ", rows, " durations sum to ",
                                                   run_ns / 86400e9,
                                                   " days; is the unit of time right?"));
  }
  if (request.start_ns() < 0 || request.start_ns() > INT64_MAX - (int64_t{1} << 61)) {
    return absl::InvalidArgumentError(
        absl::StrCat("start_ns = ", request.start_ns(), " is not a time since 1970"));
  }
  const std::vector<bool> start_up = FindStartUp(timed, groups_of_timed);
  absl::flat_hash_set<int64_t> seen[2];
  int64_t start_ns = 0;
  size_t next_timed = 0;
  for (size_t i = 0; i < times.size(); ++i) {
    const Key& key = times[i].key;
    jobs::ImportedIteration& to = run.iterations.emplace_back();
    to = {.key = key,
          .start_ns = start_ns,
          .duration_ns = static_cast<int64_t>(times[i].time_ns),
          .start_up = times[i].time_ns > 0 && start_up[next_timed++]};
    start_ns += to.duration_ns;
    if (to.start_up) continue;
    to.first = seen[0].insert(key.first).second;
    if (run.dimensions > 1) to.first |= seen[1].insert(key.second).second;
  }
  run.start_ns =
      request.start_ns() != 0 ? request.start_ns() : std::max<int64_t>(now_ns - start_ns, 1);
  run.end_ns = run.start_ns + start_ns;
  for (jobs::ImportedIteration& iteration : run.iterations) iteration.start_ns += run.start_ns;
  return run;
}

}  // namespace seqpoint::queries
