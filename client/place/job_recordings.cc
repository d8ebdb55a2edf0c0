#include "client/place/job_recordings.h"

#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/connection.h"
#include "client/text/plain_text.h"
#include "proto/host_name.h"
#include "proto/status_macros.h"

namespace seqpoint::client {
namespace {

namespace fs = std::filesystem;
using Lengths = std::vector<int64_t>;

constexpr absl::string_view kGraph = ".graph.json";
constexpr absl::string_view kTimes = ".times.json";
constexpr absl::string_view kNoLength = "iteration";  // all have the same

// As the adapter names files: "25", "25x30", "iteration".
std::optional<Lengths> ParseLengths(absl::string_view name) {
  Lengths lengths;
  if (name == kNoLength) return lengths;
  for (const absl::string_view part : absl::StrSplit(name, 'x')) {
    int64_t length = 0;
    if (!absl::SimpleAtoi(part, &length)) return std::nullopt;
    lengths.push_back(length);
  }
  return lengths;
}

// The recordings in the folder whose two files are both there, by their lengths.
std::map<Lengths, TraceArgument> FindPairs(const fs::path& folder) {
  std::map<Lengths, TraceArgument> pairs;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string file = it->path().filename().string();
    absl::string_view name = file;
    if (!absl::ConsumeSuffix(&name, kGraph)) continue;
    const std::optional<Lengths> lengths = ParseLengths(name);
    if (!lengths) continue;
    const fs::path times = folder / absl::StrCat(name, kTimes);
    if (!fs::exists(times, error)) continue;
    TraceArgument trace = {.graph = it->path().string(), .times = times.string()};
    trace.name = lengths->empty()       ? "all lengths"
                 : lengths->size() == 1 ? absl::StrCat("length ", name)
                                        : absl::StrCat("lengths ", absl::StrJoin(*lengths, ", "));
    pairs.emplace(*lengths, std::move(trace));
  }
  return pairs;
}

int64_t Distance(const Lengths& a, const Lengths& b) {
  int64_t distance = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) distance += std::abs(a[i] - b[i]);
  return distance;
}

// Why an adapter recorded nothing, as it said itself; empty: it said nothing.
std::string WhyNone(const v1::Job& job) {
  for (const v1::Process& process : job.processes()) {
    for (const v1::Feature& feature : process.features()) {
      if (feature.name() == "operators") return absl::StrCat(": ", feature.message());
    }
  }
  return "";
}

}  // namespace

absl::StatusOr<JobRecordings> WeighJobRecordings(const v1::Job& job,
                                                 const v1::GetSeqPointsReply& seqpoints) {
  JobRecordings found = {.job = absl::StrCat(job.name(), "@", job.run_id())};
  const std::string& folder = job.operators_folder();
  if (folder.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("operators of job ", Quote(found.job),
                     " were not recorded; run it with `seqpoint run --operators`"));
  }
  std::map<Lengths, TraceArgument> pairs = FindPairs(folder);
  if (pairs.empty()) {
    std::string why = WhyNone(job);
    if (why.empty() && job.end_ns() == 0) why = " yet";
    if (why.empty() && job.host() != HostName()) why = ", or they are there and not here";
    if (why.empty()) {
      why =
          ": no iteration came with the length of a SeqPoint once these were known, or iterations "
          "have several forward passes, whose length is known only at the last one";
    }
    return absl::FailedPreconditionError(absl::StrCat(
        "there are no recordings of operators in ", folder,
        job.host().empty() ? "" : absl::StrCat(" of ", job.host()), why,
        "; `--trace ET,TIMES` takes files from anywhere (docs/formats/operator-costs.md)"));
  }
  for (auto& [lengths, trace] : pairs) trace.weight = 0;
  double all = 0, exact = 0;
  for (const v1::SeqPoint& point : seqpoints.seqpoints()) {
    const Lengths lengths(point.read_lengths().begin(), point.read_lengths().end());
    auto nearest = pairs.begin();
    for (auto it = pairs.begin(); it != pairs.end(); ++it) {
      if (Distance(it->first, lengths) < Distance(nearest->first, lengths)) nearest = it;
    }
    *nearest->second.weight += point.weight();
    all += point.weight();
    if (nearest->first != lengths) continue;
    exact += point.weight();
    if (point.has_mean_duration_ns()) nearest->second.usual_ms = point.mean_duration_ns() / 1e6;
  }
  if (all <= 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ", Quote(found.job), " has no SeqPoints yet; ask again later"));
  }
  if (exact < all) {
    found.note = absl::StrCat("SeqPoints of ", FormatShare(1 - exact / all),
                              " of the run were not recorded; each counts for the nearest length "
                              "that was");
  }
  for (auto& [lengths, trace] : pairs) {
    if (*trace.weight > 0) found.traces.push_back(std::move(trace));
  }
  return found;
}

absl::StatusOr<JobRecordings> FindJobRecordings(const std::string& socket, const std::string& job) {
  SEQPOINT_ASSIGN_OR_RETURN(std::unique_ptr<Connection> connection,
                            Connection::Open({.socket_path = socket, .use_environment = false}));
  SEQPOINT_ASSIGN_OR_RETURN(const v1::Job found, connection->GetJob(job));
  v1::GetSeqPointsRequest of_points;
  of_points.set_job(found.id());
  SEQPOINT_ASSIGN_OR_RETURN(const auto points,
                            connection->Call(&v1::Profiler::Stub::GetSeqPoints, of_points));
  return WeighJobRecordings(found, points);
}

}  // namespace seqpoint::client
