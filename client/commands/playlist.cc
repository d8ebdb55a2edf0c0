#include "client/commands/playlist.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/commands/commands.h"
#include "client/commands/points.h"
#include "client/files/csv.h"
#include "client/files/whole_file.h"
#include "client/text/format.h"
#include "client/text/help.h"
#include "client/text/notes.h"
#include "client/text/time_unit.h"
#include "proto/invalid_argument.h"
#include "proto/status_macros.h"

namespace seqpoint::client {
namespace {

constexpr double kMostWhole = 9007199254740992;  // what a double can count
constexpr double kMost = 1e18;
constexpr double kNoWidth = 1e-9;  // of an interval, relative

constexpr const char* kIteration = "iteration";
constexpr const char* kLengths[] = {"length", "length_2"};
constexpr const char* kFigures[] = {"weight", "measurements", "expected_ns", "noise_ns"};

// The shortest decimal that is read as the same number.
std::string Exactly(double value) {
  char text[400];  // the smallest and the largest double have as many digits
  return std::string(text,
                     std::to_chars(text, std::end(text), value, std::chars_format::fixed).ptr);
}

int Find(const CsvReader& csv, const std::string& name) {  // -1: there is none
  const auto it = std::find(csv.header().begin(), csv.header().end(), name);
  return it == csv.header().end() ? -1 : static_cast<int>(it - csv.header().begin());
}

enum class Kind { kWhole, kPositiveWhole, kPositive, kFromZero };

// The fields of a row as numbers; the first that is none is told by problem().
class Row {
 public:
  explicit Row(const CsvReader& csv) : csv_(csv) {}

  bool Empty(int column) const {
    return column < static_cast<int>(csv_.fields().size()) && csv_.fields()[column].empty();
  }
  double Number(int column, Kind kind) {
    if (problem_.empty()) problem_ = csv_.ColumnProblem(static_cast<size_t>(column));
    if (!problem_.empty()) return 0;
    const bool whole = kind == Kind::kWhole || kind == Kind::kPositiveWhole;
    const bool positive = kind == Kind::kPositive || kind == Kind::kPositiveWhole;
    const std::string field(csv_.fields()[column]);
    double value = 0;
    if (!ParseCsvNumber(field, &value) || !(value >= 0 && value <= (whole ? kMostWhole : kMost)) ||
        (positive && value == 0) || (whole && value != std::floor(value))) {
      problem_ = absl::StrCat(Quote(field), " in column ", csv_.header()[column], " is not a ",
                              positive ? "positive " : "", whole ? "whole " : "", "number",
                              positive ? "" : " from 0", CommaNote(field));
      return 0;
    }
    return value;
  }
  const std::string& problem() const { return problem_; }

 private:
  const CsvReader& csv_;
  std::string problem_;
};

// The identity of a point in a file: its lengths, or its iteration.
using Id = std::vector<int64_t>;

Id IdOf(const v1::PlaylistPoint& point, bool by_length) {
  if (!by_length) return {point.iteration()};
  return Id(point.lengths().begin(), point.lengths().end());
}

std::string IdText(const Id& id, bool by_length) {
  return by_length ? absl::StrCat("length ", absl::StrJoin(id, " x "))
                   : absl::StrCat("iteration ", id[0]);
}

absl::Status Error(const std::string& path, const std::string& what) {
  return InvalidArgument(path, ": ", what);
}

absl::Status End(const CsvReader& csv, const std::string& path, const BadRows& bad, bool any) {
  SEQPOINT_RETURN_IF_ERROR(csv.status());
  if (bad.count() > 0) return absl::InvalidArgumentError(bad.text());
  if (!any) return Error(path, "there is a header, but no row below it");
  return absl::OkStatus();
}

// Which column holds the time.
absl::StatusOr<int> TimeColumn(const MeasuredOptions& options, const CsvReader& csv) {
  if (!options.time_column.empty()) {
    SEQPOINT_ASSIGN_OR_RETURN(std::vector<size_t> found, csv.Find({options.time_column}));
    return static_cast<int>(found.front());
  }
  std::vector<int> columns;
  for (size_t i = 0; i < csv.header().size(); ++i) {
    const std::string& name = csv.header()[i];
    if (std::find(std::begin(kFigures), std::end(kFigures), name) != std::end(kFigures)) continue;
    if (TimeUnitOfColumn(name) > 0) columns.push_back(static_cast<int>(i));
  }
  if (columns.size() == 1) return columns[0];
  return Error(options.path,
               absl::StrCat(columns.empty() ? "no column's name ends in _ns, _us, _ms or _s"
                                            : "several columns' names end in a unit",
                            "; name the times with --time: ", absl::StrJoin(csv.header(), ", ")));
}

absl::StatusOr<double> UnitNs(const MeasuredOptions& options, const std::string& column) {
  const double ns =
      options.time_unit.empty() ? TimeUnitOfColumn(column) : TimeUnitNs(options.time_unit);
  if (ns > 0) return ns;
  return Error(options.path,
               absl::StrCat("column ", Quote(column),
                            " does not say its unit; give --time-unit ns, us, ms or s"));
}

}  // namespace

std::string PlaylistCsv(const v1::GetPlaylistReply& reply) {
  const int dimensions = reply.points_size() > 0 ? reply.points(0).lengths_size() : 0;
  std::vector<std::string> header = {kIteration};
  header.insert(header.end(), kLengths, kLengths + std::min(dimensions, 2));
  header.insert(header.end(), std::begin(kFigures), std::end(kFigures));
  std::string text = absl::StrCat(absl::StrJoin(header, ","), "\n");
  for (const v1::PlaylistPoint& point : reply.points()) {
    if (point.iteration() >= 0) absl::StrAppend(&text, point.iteration());
    for (const int64_t length : point.lengths()) absl::StrAppend(&text, ",", length);
    absl::StrAppend(&text, ",", Exactly(point.weight()), ",", point.measurements(), ",",
                    Exactly(point.expected_duration_ns()), ",", Exactly(point.noise_duration_ns()),
                    "\n");
  }
  return text;
}

std::string PlaylistNotes(const v1::GetPlaylistReply& reply) {
  int64_t measurements = 0;
  for (const v1::PlaylistPoint& point : reply.points()) measurements += point.measurements();
  return absl::StrCat(
      FormatCount(measurements, "measurement"), " of ", FormatCount(reply.points_size(), "length"),
      " for ", FormatCount(reply.iterations(), "iteration"),
      reply.relative_error() > 0
          ? absl::StrFormat("; on a run like this one they give the total to "
                            "%s (%g %% interval)",
                            FormatReach(reply.relative_error()), 100 * reply.confidence())
          : "",
      "\n", Note(reply.message()));
}

absl::StatusOr<v1::ProjectPlaylistRequest> ReadPlaylist(const std::string& path) {
  SEQPOINT_ASSIGN_OR_RETURN(CsvReader csv, CsvReader::Open(path));
  SEQPOINT_ASSIGN_OR_RETURN(std::vector<size_t> figures,
                            csv.Find({std::begin(kFigures), std::end(kFigures)}));
  const int iteration = Find(csv, kIteration);
  std::vector<int> lengths;
  for (const char* name : kLengths) {
    if (const int column = Find(csv, name); column >= 0) lengths.push_back(column);
  }
  if (Find(csv, kLengths[0]) < 0 && (!lengths.empty() || iteration < 0)) {
    return Error(path,
                 absl::StrCat("no column \"length\"; there are ", absl::StrJoin(csv.header(), ", "),
                              ". `seqpoint playlist` writes such files"));
  }
  v1::ProjectPlaylistRequest request;
  BadRows bad;
  std::map<Id, int64_t> lines;
  while (csv.Next()) {
    Row row(csv);
    v1::PlaylistPoint point;
    point.set_iteration(-1);
    if (iteration >= 0 && !(row.Empty(iteration) && !lengths.empty())) {
      point.set_iteration(static_cast<int64_t>(row.Number(iteration, Kind::kWhole)));
    }
    for (const int column : lengths) {
      point.add_lengths(static_cast<int64_t>(row.Number(column, Kind::kWhole)));
    }
    point.set_weight(row.Number(static_cast<int>(figures[0]), Kind::kPositive));
    const double measurements = row.Number(static_cast<int>(figures[1]), Kind::kPositiveWhole);
    point.set_measurements(static_cast<int32_t>(std::min<double>(measurements, INT32_MAX)));
    point.set_expected_duration_ns(row.Number(static_cast<int>(figures[2]), Kind::kPositive));
    point.set_noise_duration_ns(row.Number(static_cast<int>(figures[3]), Kind::kFromZero));
    if (!row.problem().empty()) {
      bad.Add(path, csv.number(), row.problem());
      continue;
    }
    const Id id = IdOf(point, !lengths.empty());
    const auto [it, added] = lines.try_emplace(id, csv.number());
    if (!added) {
      bad.Add(path, csv.number(),
              absl::StrCat(IdText(id, !lengths.empty()), " is in line ", it->second, " already"));
      continue;
    }
    *request.add_points() = point;
  }
  SEQPOINT_RETURN_IF_ERROR(End(csv, path, bad, request.points_size() > 0));
  return request;
}

absl::StatusOr<std::string> ReadMeasured(const MeasuredOptions& options,
                                         v1::ProjectPlaylistRequest* request) {
  SEQPOINT_ASSIGN_OR_RETURN(CsvReader csv, CsvReader::Open(options.path));
  std::vector<int> ids;
  for (int i = 0; i < request->points(0).lengths_size(); ++i) ids.push_back(Find(csv, kLengths[i]));
  const bool by_length = !ids.empty() && std::find(ids.begin(), ids.end(), -1) == ids.end();
  if (!by_length) ids = {Find(csv, kIteration)};
  if (ids[0] < 0) {
    return Error(
        options.path,
        absl::StrCat("no column says which point a row belongs to: \"length\" (and "
                     "\"length_2\" where the playlist has it) or \"iteration\"; there are ",
                     absl::StrJoin(csv.header(), ", ")));
  }
  SEQPOINT_ASSIGN_OR_RETURN(int time, TimeColumn(options, csv));
  SEQPOINT_ASSIGN_OR_RETURN(double unit_ns, UnitNs(options, csv.header()[time]));

  struct Sum {
    int32_t count = 0;
    double ns = 0;
  };
  std::map<Id, Sum> sums;
  for (const v1::PlaylistPoint& point : request->points()) sums[IdOf(point, by_length)];
  BadRows bad, strangers;
  bool any = false;
  while (csv.Next()) {
    Row row(csv);
    Id id;
    for (const int column : ids) id.push_back(std::llround(row.Number(column, Kind::kWhole)));
    const double value = row.Number(time, Kind::kPositive);
    if (!row.problem().empty()) {
      bad.Add(options.path, csv.number(), row.problem());
      continue;
    }
    const auto sum = sums.find(id);
    if (sum == sums.end()) {
      strangers.Add(options.path, csv.number(),
                    absl::StrCat(IdText(id, by_length), " is not in the playlist; left out"));
      continue;
    }
    any = true;
    ++sum->second.count;
    sum->second.ns += value * unit_ns;
  }
  SEQPOINT_RETURN_IF_ERROR(End(csv, options.path, bad, any || strangers.count() > 0));
  if (!any) {
    return Error(options.path,
                 absl::StrCat("no row belongs to a point of the playlist\n", strangers.text()));
  }
  for (const v1::PlaylistPoint& point : request->points()) {
    const Sum& sum = sums[IdOf(point, by_length)];
    request->add_measured(sum.count);
    request->add_durations_ns(sum.count > 0 ? sum.ns / sum.count : 0);
  }
  return strangers.text();
}

std::string PlaylistProjectionText(const v1::ProjectPlaylistReply& reply) {
  const v1::Projection& projection = reply.projection();
  Table table(
      {projection.metric(), ">VALUE", FormatConfidence(projection.confidence()) + " INTERVAL", ""});
  bool any_without_width = false;
  const auto add = [&](const std::string& name, const v1::Estimate& estimate,
                       const std::string& unit) {
    FormattedEstimate text = FormatEstimate(estimate, unit);
    // Rounding apart: of other times an interval is never so narrow.
    const bool no_width =
        estimate.value() > 0 && estimate.high() - estimate.low() <= kNoWidth * estimate.value();
    if (no_width) text = {.value = text.value, .interval = "no width"};
    any_without_width |= no_width;
    table.AddRow({name, text.value, text.interval, text.precision});
  };
  add(absl::StrCat("whole run there (", FormatCount(projection.iterations_total(), "iteration"),
                   ")"),
      projection.total(), projection.unit());
  add("per 1,000 iterations", projection.per_1000_iterations(), projection.unit());
  if (reply.has_speedup()) add("speedup", reply.speedup(), "x");
  return table.ToString() + Wrap("basis: ", projection.basis()) +
         Note(any_without_width
                  ? "the interval has no width, as all measured times are in one proportion to the "
                    "playlist's (made by a model, or copied?): no noise was seen, which is no "
                    "promise that the run there has none"
                  : "");
}

namespace {

struct PlaylistOptions {
  std::string job, output;
  PointOptions points;
};

absl::StatusOr<int> WritePlaylist(const Context& context, PlaylistOptions& options) {
  v1::GetPlaylistRequest request;
  request.set_job(options.job);
  request.set_points(options.points.points);
  request.set_target_error(options.points.target_error);
  request.set_confidence(options.points.confidence);
  SEQPOINT_ASSIGN_OR_RETURN(v1::GetPlaylistReply reply,
                            context.Call(&v1::Profiler::Stub::GetPlaylist, request));
  const bool to_file = !options.output.empty() && options.output != "-";
  if (to_file) {
    SEQPOINT_RETURN_IF_ERROR(WriteWhole(options.output, PlaylistCsv(reply)));
  }
  if (context.json()) {
    return context.PrintReply(&reply, PlaylistCsv);
  }
  if (!to_file) Context::Print(PlaylistCsv(reply));
  // Not on standard output, which may be the file.
  MakePrintable(&reply);
  fputs(PlaylistNotes(reply).c_str(), stderr);
  return kExitOk;
}

}  // namespace

void AddPlaylist(CLI::App* app, Context* context) {
  auto [command, options] = AddCommand<PlaylistOptions>(
      app, context, "playlist",
      "The iterations that stand for all others, for another machine to run.", &WritePlaylist);
  command->footer(kPlaylistHelp);
  AddJob(command, &options->job)->required();
  options->points.AddTo(command);
  AddValue(command, "--output FILE", &options->output,
           "where to write it; default: standard output");
}

}  // namespace seqpoint::client
