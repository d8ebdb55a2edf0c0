#include "client/files/log_file.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/text/format.h"
#include "client/text/time_unit.h"
#include "proto/invalid_argument.h"
#include "proto/status_macros.h"

namespace seqpoint::client {
namespace {

constexpr double kMaxLogLength = 1e12;
constexpr double kMaxTime = 1e15;
constexpr double kMaxTimeNs = 1e18;

// Names that logs give to the length and the time of an iteration, the most telling first.
constexpr const char* kKeyNames[] = {"length",      "seq_len",    "sequence_length",
                                     "lenpair_est", "max_frames", "rnn_timesteps",
                                     "num_tokens",  "len_total"};
constexpr const char* kTimeNames[] = {"duration_ns", "time_ns", "time_us", "time_ms", "time_s",
                                      "dt_us",       "dt_ms",   "span_ms", "time",    "duration"};

// Names of columns that tell runs and epochs apart, and of counters within them; in small letters.
constexpr const char* kGroupNames[] = {"run", "epoch", "run_id", "session"};
constexpr const char* kCountNames[] = {"iter",  "iteration", "step",
                                       "batch", "batch_idx", "global_step"};

bool Has(const std::vector<std::string>& header, const std::string& name) {
  return std::find(header.begin(), header.end(), name) != header.end();
}

absl::StatusOr<std::vector<std::string>> KeyColumns(const LogOptions& options,
                                                    const std::vector<std::string>& header) {
  if (options.key_columns.size() > 2) {
    return InvalidArgument(options.key_columns.size(),
                           " length columns are named; one or two are possible");
  }
  if (!options.key_columns.empty()) return options.key_columns;
  for (const char* name : kKeyNames) {
    if (!Has(header, name)) continue;
    for (const char* suffix : {"_2", "2"}) {
      const std::string second = absl::StrCat(name, suffix);
      if (Has(header, second)) return std::vector<std::string>{name, second};
    }
    return std::vector<std::string>{name};
  }
  std::vector<std::string> found;
  for (const std::string& name : header) {
    if (absl::StartsWith(name, "len_") && found.size() < 2) found.push_back(name);
  }
  if (!found.empty()) return found;
  return InvalidArgument(options.path, ": which column is the length? Name one or two of ",
                         absl::StrJoin(header, ", "), " with --key");
}

absl::StatusOr<std::string> TimeColumn(const LogOptions& options,
                                       const std::vector<std::string>& header) {
  if (!options.time_column.empty()) return options.time_column;
  for (const char* name : kTimeNames) {
    if (Has(header, name)) return std::string(name);
  }
  if (options.lengths_only) return std::string();
  return InvalidArgument(options.path, ": which column is the time of an iteration? Name one of ",
                         absl::StrJoin(header, ", "), " with --time");
}

// A number in [0, most]; else what is wrong with it.
std::string ParseNumber(absl::string_view text, const std::string& column, double most,
                        double* value) {
  if (text.empty()) return absl::StrCat(column, " is empty");
  if (!ParseCsvNumber(text, value)) {
    return absl::StrCat("\"", text, "\" in column ", column, " is not a number from 0",
                        CommaNote(text));
  }
  if (!(*value >= 0 && *value <= most)) {
    return absl::StrCat("\"", text, "\" in column ", column, " is not a number from 0 up to ",
                        most);
  }
  return "";
}

// Whether a log without group columns looks as if it had several groups: a column that tells them
// apart by its name, or one that counts iterations and starts again.
class GroupHint {
 public:
  explicit GroupHint(const std::vector<std::string>& header) {
    for (size_t i = 0; i < header.size(); ++i) {
      const std::string name = absl::AsciiStrToLower(header[i]);
      const auto is_one_of = [&](const auto& names) {
        return std::find(std::begin(names), std::end(names), name) != std::end(names);
      };
      if (is_one_of(kGroupNames)) groups_.push_back({.name = header[i], .column = i});
      if (is_one_of(kCountNames)) counts_.push_back({.name = header[i], .column = i});
    }
  }

  void See(int64_t line, const std::vector<absl::string_view>& fields) {
    for (Column& group : groups_) {
      if (group.column >= fields.size()) continue;
      if (group.seen++ > 0 && fields[group.column] != group.first) group.several = true;
      if (group.seen == 1) group.first = std::string(fields[group.column]);
    }
    for (Column& count : counts_) {
      double value = 0;
      if (count.column >= fields.size() || !absl::SimpleAtod(fields[count.column], &value)) {
        continue;
      }
      if (count.seen++ == 0) count.start = value;
      if (count.seen > 2 && value <= count.start && value < count.last) {
        if (!count.several) count.line = line;
        count.several = true;
      }
      count.last = value;
    }
  }

  std::string Text() const {
    std::vector<std::string> names;
    for (const Column& group : groups_) {
      if (group.several) names.push_back(group.name);
    }
    if (!names.empty()) {
      const std::string columns = absl::StrJoin(names, ",");
      return absl::StrCat("it seems to have several runs or epochs; --group ", columns,
                          " tells them apart, as the first iteration of each may be start-up");
    }
    for (const Column& count : counts_) {
      if (!count.several) continue;
      return absl::StrCat("column ", count.name, " starts again in line ", count.line,
                          ", as if another run or epoch began there; a column that counts these, "
                          "named with --group, tells their first iterations, which may be "
                          "start-up, from the others");
    }
    return "";
  }

 private:
  struct Column {
    std::string name;
    size_t column = 0;
    int64_t seen = 0, line = 0;
    std::string first = "";
    double start = 0, last = 0;
    bool several = false;
  };
  std::vector<Column> groups_, counts_;
};

// The flags and the rest that a log gives for its rows, beside lengths and times.
class RowKinds {
 public:
  RowKinds(const LogOptions& options, const std::vector<std::string>& header)
      : path_(options.path) {
    for (size_t i = 0; i < header.size(); ++i) {
      if (absl::AsciiStrToLower(header[i]) == "rank" && !Has(options.group_columns, header[i])) {
        rank_ = i;
      }
      if (header[i] == "iteration") iteration_ = i;
      if (header[i] == "redone") redone_ = i;
      if (header[i] == "concurrent") concurrent_ = i;
      if (header[i] == "distorted") distorted_ = i;
      if (header[i] == "rest_ns") rest_ = i;
    }
    // Another tool may mean something else by these words.
    const bool ours = Has(header, "incarnation") && iteration_ && redone_;
    if (!ours) iteration_ = redone_ = concurrent_ = distorted_ = rest_ = std::nullopt;
  }

  // False: the row is in no figure.
  bool Take(const std::vector<absl::string_view>& fields, LogFile* log) const {
    const bool redone = Marked(redone_, fields), concurrent = Marked(concurrent_, fields);
    if (redone) ++log->redone;
    if (concurrent) ++log->concurrent;
    return !redone && !concurrent;
  }
  // The end of the last iteration of a process is not known.
  bool Ends(const std::vector<absl::string_view>& fields) const {
    return !rest_ || *rest_ >= fields.size() || fields[*rest_].empty() || fields[*rest_] == "0";
  }
  bool Distorted(const std::vector<absl::string_view>& fields) const {
    return Marked(distorted_, fields);
  }

  // Ranks run at the same time: their times are no run's.
  absl::Status See(int64_t line, const std::vector<absl::string_view>& fields, LogFile* log) {
    int64_t number = 0;
    if (iteration_ && *iteration_ < fields.size() &&
        absl::SimpleAtoi(fields[*iteration_], &number)) {
      if (number > next_ && next_ >= 0) log->missing += number - next_;
      next_ = number + 1;
    }
    if (!rank_ || *rank_ >= fields.size()) return absl::OkStatus();
    if (first_rank_.empty()) first_rank_ = std::string(fields[*rank_]);
    if (fields[*rank_] == first_rank_) return absl::OkStatus();
    return InvalidArgument(
        path_, ":", line, ": column rank has ", Quote(first_rank_), " and ",
        Quote(std::string(fields[*rank_])),
        ": ranks run at the same time, so their times do not add up to a run's; keep the rows of ",
        "one rank, or take each rank for a run of its own with --group rank");
  }

 private:
  static bool Marked(const std::optional<size_t>& column,
                     const std::vector<absl::string_view>& fields) {
    return column && *column < fields.size() && fields[*column] == "1";
  }

  const std::string& path_;
  std::optional<size_t> rank_, iteration_, redone_, concurrent_, distorted_, rest_;
  int64_t next_ = -1;  // number of an iteration
  std::string first_rank_;
};

// The step in which fractional lengths are counted.
double StepOf(const std::vector<std::array<double, 2>>& rows, int dimension, bool* fractions) {
  double low = INFINITY, high = -INFINITY;
  bool whole = true;
  for (const auto& row : rows) {
    low = std::min(low, row[dimension]);
    high = std::max(high, row[dimension]);
    whole = whole && row[dimension] == std::floor(row[dimension]);
  }
  *fractions = !whole;
  double step = 1;
  while (!whole && high > low && (high - low) / step < kEnoughSteps) step /= 10;
  return step;
}

// `problem`: with its columns. Where it has none, as plain text, that is said instead.
absl::Status ColumnsProblem(const LogOptions& options, const absl::Status& problem,
                            CsvReader* csv) {
  const std::vector<std::string>& header = csv->header();
  const std::string first(csv->line());
  bool table = header.size() > 1 || options.lengths_only;
  if (table && csv->Next()) {
    double number = 0;
    table = std::any_of(csv->fields().begin(), csv->fields().end(),
                        [&](absl::string_view field) { return absl::SimpleAtod(field, &number); });
  }
  if (table) return problem;
  return InvalidArgument(
      options.path, options.or_trace ? " is neither a trace nor" : " is not", " a CSV with a ",
      "header of columns, parted by commas, semicolons or tabs; it begins with ", Quote(first));
}

// Rows that have one length where others have two.
void LeaveOut(const std::vector<std::pair<size_t, int64_t>>& lacking_second,
              const std::string& path, std::vector<std::array<double, 2>>* rows, LogFile* log) {
  if (lacking_second.empty()) return;
  size_t kept = 0;
  auto next = lacking_second.begin();
  for (size_t i = 0; i < rows->size(); ++i) {
    if (next != lacking_second.end() && next->first == i) {
      log->bad.Add(path, next->second, absl::StrCat(log->key_columns[1], " is empty"));
      ++next;
      continue;
    }
    (*rows)[kept] = (*rows)[i];
    log->groups[kept] = log->groups[i];
    if (!log->times.empty()) log->times[kept] = log->times[i];
    ++kept;
  }
  rows->resize(kept);
  log->groups.resize(kept);
  if (!log->times.empty()) log->times.resize(kept);
}

}  // namespace

absl::StatusOr<LogFile> ReadLogFile(const LogOptions& options) {
  SEQPOINT_ASSIGN_OR_RETURN(CsvReader csv, CsvReader::Open(options.path));
  LogFile log;
  absl::StatusOr<std::vector<std::string>> keys = KeyColumns(options, csv.header());
  if (!keys.ok()) return ColumnsProblem(options, keys.status(), &csv);
  log.key_columns = *keys;
  absl::StatusOr<std::string> time = TimeColumn(options, csv.header());
  if (!time.ok()) return ColumnsProblem(options, time.status(), &csv);
  log.time_column = *time;
  log.time_unit_ns =
      options.time_unit.empty() ? TimeUnitOfColumn(log.time_column) : TimeUnitNs(options.time_unit);
  const double most = log.time_unit_ns > 0 ? kMaxTimeNs / log.time_unit_ns : kMaxTime;
  std::vector<std::string> names = log.key_columns;
  if (!log.time_column.empty()) names.push_back(log.time_column);
  names.insert(names.end(), options.group_columns.begin(), options.group_columns.end());
  absl::StatusOr<std::vector<size_t>> columns = csv.Find(names);
  if (!columns.ok()) return ColumnsProblem(options, columns.status(), &csv);

  size_t dimensions = log.key_columns.size();
  const size_t first_group = dimensions + (log.time_column.empty() ? 0 : 1);
  std::vector<std::array<double, 2>> rows;
  // A second length that nobody named may have its column and no values.
  const bool may_lack_second = options.key_columns.empty() && dimensions == 2;
  std::vector<std::pair<size_t, int64_t>> lacking_second;  // index of the row, line
  std::map<std::vector<std::string>, int32_t> groups;
  GroupHint hint(csv.header());
  RowKinds kinds(options, csv.header());
  log.kept_untimed = options.keep_untimed;
  while (csv.Next()) {
    const std::vector<absl::string_view>& fields = csv.fields();
    if (!kinds.Take(fields, &log)) continue;
    absl::Status ranks = kinds.See(csv.number(), fields, &log);
    if (!ranks.ok()) return ranks;
    if (options.group_columns.empty()) hint.See(csv.number(), fields);
    std::array<double, 2> row = {};
    double duration = 0;
    std::string problem;
    std::vector<std::string> group;
    bool timed = true, second = true;
    for (size_t i = 0; i < columns->size() && problem.empty(); ++i) {
      const size_t column = (*columns)[i];
      problem = csv.ColumnProblem(column);
      if (!problem.empty()) break;
      if (i == 1 && may_lack_second && fields[column].empty()) {
        second = false;
      } else if (i < dimensions) {
        problem = ParseNumber(fields[column], names[i], kMaxLogLength, &row[i]);
      } else if (i < first_group) {
        timed = !fields[column].empty();
        if (timed) problem = ParseNumber(fields[column], names[i], most, &duration);
        timed = timed && duration != 0 && kinds.Ends(fields);
      } else {
        group.emplace_back(fields[column]);
      }
    }
    if (!problem.empty()) {
      log.bad.Add(options.path, csv.number(), problem);
      continue;
    }
    log.last_untimed = !timed;
    const bool distorted = timed && kinds.Distorted(fields);
    if (!timed) ++log.untimed;
    if (distorted) ++log.distorted;
    if (!timed || distorted) {
      if (!options.keep_untimed) continue;
      duration = 0;
    }
    if (!second) lacking_second.emplace_back(rows.size(), csv.number());
    const auto [it, added] = groups.try_emplace(group, static_cast<int32_t>(groups.size()));
    log.groups_scattered |= !added && it->second != log.groups.back();
    rows.push_back(row);
    log.groups.push_back(it->second);
    if (!log.time_column.empty()) log.times.push_back(duration);
  }
  SEQPOINT_RETURN_IF_ERROR(csv.status());
  if (!lacking_second.empty() && lacking_second.size() == rows.size()) {
    dimensions = 1;
    log.key_columns.resize(1);
  } else {
    LeaveOut(lacking_second, options.path, &rows, &log);
  }
  const int64_t in_no_figure = log.redone + log.concurrent + log.distorted;
  if (rows.empty() && log.bad.count() == 0 && log.untimed == 0 && in_no_figure == 0) {
    return InvalidArgument(options.path, ": there is a header, but no row below it");
  }
  const int64_t left_out = log.bad.count() + log.untimed;
  const int64_t usable =
      static_cast<int64_t>(rows.size()) - (log.kept_untimed ? log.untimed + log.distorted : 0);
  if (usable == 0 && left_out == 0) {
    return InvalidArgument(
        options.path, ": each of its ", in_no_figure,
        " rows was disturbed by a measurement, done again, or ran at the same time as "
        "another process");
  }
  if (left_out > usable) {
    return InvalidArgument(
        log.bad.text(), log.bad.count() > 0 ? "\n" : absl::StrCat(options.path, ": "), "only ",
        usable, " of ", left_out + usable, " rows can be used",
        log.untimed > 0 ? absl::StrCat(", ", log.untimed, " have no time") : "", "; is ",
        absl::StrJoin(log.key_columns, ", "), " the length and ", log.time_column, " the time?",
        usable == 0 && log.untimed > 0
            ? " An export has none where iterations were not timed one by one (seqpoint jobs JOB)."
            : "");
  }
  log.groups_hint = hint.Text();
  for (int d = 0; d < static_cast<int>(dimensions); ++d) {
    bool fractions = false;
    log.length_step[d] = StepOf(rows, d, &fractions);
    if (options.length_step[d] > 0) log.length_step[d] = options.length_step[d];
    log.rounded |= fractions;
  }
  for (const auto& row : rows) {
    log.lengths.push_back(
        {std::llround(row[0] / log.length_step[0]), std::llround(row[1] / log.length_step[1])});
  }
  return log;
}

absl::Status CheckTimeUnit(const std::string& path, const LogFile& log) {
  if (log.time_unit_ns > 0) return absl::OkStatus();
  return InvalidArgument(path, ": the name of column ", log.time_column,
                         " does not end in a unit (_ns, _us, _ms, _s); say it with --time-unit");
}

std::string ReadingNotes(const std::string& path, const LogFile& log) {
  std::string notes;
  if (log.bad.count() > 0) {
    absl::StrAppend(&notes, log.bad.text(), "\n", path, ": ", FormatCount(log.bad.count(), "row"),
                    " left out, ", FormatCount(static_cast<int64_t>(log.lengths.size())),
                    " can be used\n");
  }
  if (log.untimed > (log.last_untimed ? 1 : 0)) {
    absl::StrAppend(&notes, path, ": ", FormatCount(log.untimed, "row"), " without a time",
                    log.kept_untimed ? ", taken for what their lengths take" : " left out", "\n");
  }
  if (log.distorted > 0) {
    absl::StrAppend(&notes, path, ": ", FormatCount(log.distorted, "row"),
                    " whose time a measurement disturbed",
                    log.kept_untimed ? ", taken for what their lengths take" : " left out", "\n");
  }
  for (const auto& [count, what] :
       {std::pair(log.redone, " that were done again after a restart"),
        std::pair(log.concurrent, " of a process that ran at the same time as another one")}) {
    if (count == 0) continue;
    absl::StrAppend(&notes, path, ": ", FormatCount(count, "row"), what, " left out\n");
  }
  if (log.missing > 0) {
    absl::StrAppend(&notes, path, ": ", FormatCount(log.missing, "iteration"),
                    " between its rows are missing, as their records were lost: they are in no ",
                    "figure here\n");
  }
  if (log.rounded) {
    const double step = std::min(log.length_step[0], log.length_step[1]);
    absl::StrAppend(&notes, path, ": fractions in ", absl::StrJoin(log.key_columns, ", "), " are ",
                    step < 1 ? absl::StrCat("counted in steps of ", step)
                             : std::string("rounded to whole lengths"),
                    "\n");
  }
  if (log.groups_scattered) {
    absl::StrAppend(&notes, path,
                    ": the rows of a group do not stand together; they count in the order of the "
                    "file\n");
  }
  if (!log.groups_hint.empty()) absl::StrAppend(&notes, path, ": ", log.groups_hint, "\n");
  return notes;
}

}  // namespace seqpoint::client
