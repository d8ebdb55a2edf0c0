#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tests/whatif/judge.h"

namespace seqpoint::whatif {
namespace {

std::string Number(double value) {
  return std::isfinite(value) ? absl::StrFormat("%.9g", value) : "null";
}
std::string Count(int64_t value) { return value < 0 ? "null" : absl::StrCat(value); }

std::string Text(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    if (static_cast<unsigned char>(c) >= ' ') quoted += c;
  }
  return quoted + "\"";
}

std::string Percent(double share) {
  return std::isfinite(share) ? absl::StrFormat("%+.3f", 100 * share) : "–";
}
std::string Fixed(double value, int digits) {
  return std::isfinite(value) ? absl::StrFormat("%.*f", digits, value) : "–";
}

std::string Row(const std::vector<std::string>& cells) {
  return absl::StrCat("| ", absl::StrJoin(cells, " | "), " |\n");
}
std::string Header(const std::string& title, const std::vector<std::string>& cells) {
  return absl::StrCat("\n", title, "\n\n", Row(cells), "|",
                      absl::StrJoin(std::vector<std::string>(cells.size(), "---"), "|"), "|\n");
}

std::string Judged(const Verdict& v) {
  if (!std::isfinite(v.target) || !std::isfinite(v.error)) return "";
  return v.reached() ? "reached" : "MISSED";
}

// Errors of replays without change.
struct Errors {
  double sum = 0, worst = 0;
  int count = 0;

  void Add(double error) {
    sum += std::abs(error);
    worst = std::max(worst, std::abs(error));
    ++count;
  }
  std::string ToString() const {
    if (count == 0) return "";
    return absl::StrFormat(
        "\nMean |error| %.3f %% (to reach: %.1f %%, %s), worst %.3f %% (%.1f %%, "
        "%s), %d traces\n",
        100 * sum / count, 100 * kReplayMean, sum / count <= kReplayMean ? "reached" : "MISSED",
        100 * worst, 100 * kReplayWorst, worst <= kReplayWorst ? "reached" : "MISSED", count);
  }
};

}  // namespace

std::string ToJson(absl::Span<const Verdict> verdicts) {
  std::vector<std::string> rows;
  for (const Verdict& v : verdicts) {
    const std::vector<std::string> fields = {
        absl::StrCat("\"file\": ", Text(v.file)),
        absl::StrCat("\"check\": ", Text(v.check)),
        absl::StrCat("\"iterations_true\": ", Count(v.iterations_true)),
        absl::StrCat("\"iterations_detected\": ", Count(v.iterations_detected)),
        absl::StrCat("\"measured_ms\": ", Number(v.measured_ms)),
        absl::StrCat("\"predicted_ms\": ", Number(v.predicted_ms)),
        absl::StrCat("\"error\": ", Number(v.error)),
        absl::StrCat("\"low_ms\": ", Number(v.low_ms)),
        absl::StrCat("\"high_ms\": ", Number(v.high_ms)),
        absl::StrCat("\"covered\": ", !v.whole_run() ? "null"
                                      : v.covered()  ? "true"
                                                     : "false"),
        absl::StrCat("\"target\": ", Number(v.target)),
        absl::StrCat("\"tasks\": ", Count(v.tasks)),
        absl::StrCat("\"edges\": ", Count(v.edges)),
        absl::StrCat("\"left_out\": ", Count(v.left_out)),
        absl::StrCat("\"import_mb_s\": ", Number(v.import_mb_s)),
        absl::StrCat("\"import_gzip_mb_s\": ", Number(v.import_gzip_mb_s)),
        absl::StrCat("\"graph_tasks_s\": ", Number(v.graph_tasks_s)),
        absl::StrCat("\"replay_tasks_s\": ", Number(v.replay_tasks_s)),
        absl::StrCat("\"mean_us\": ", Number(v.mean_us)),
        absl::StrCat("\"worst_us\": ", Number(v.worst_us)),
        absl::StrCat("\"worst_error\": ", Number(v.worst_error)),
        absl::StrCat("\"note\": ", Text(v.note))};
    rows.push_back(absl::StrCat("{", absl::StrJoin(fields, ", "), "}"));
  }
  return absl::StrCat("[\n", absl::StrJoin(rows, ",\n"), "\n]\n");
}

std::string ToTables(absl::Span<const Verdict> verdicts) {
  std::string boundaries, training, cut, others, pairs, runs, collectives, speed;
  Errors whole_errors, cut_errors;
  for (const Verdict& v : verdicts) {
    if (v.check == "boundaries") {
      absl::StrAppend(&boundaries, Row({v.file, Count(v.iterations_true),
                                        Count(v.iterations_detected), Judged(v), v.note}));
    } else if (v.check == "replay" || v.check == "cut") {
      const bool whole = v.check == "replay";
      absl::StrAppend(
          !v.training() ? &others
          : whole       ? &training
                        : &cut,
          Row({v.file, Count(v.iterations_true), Fixed(v.measured_ms, 3), Fixed(v.predicted_ms, 3),
               Percent(v.error), Percent(v.worst_error), Fixed(v.mean_us, 1), Fixed(v.worst_us, 0),
               Count(v.tasks), Count(v.edges), Judged(v), v.note}));
      if (v.training() && std::isfinite(v.error)) (whole ? whole_errors : cut_errors).Add(v.error);
    } else if (v.whole_run()) {
      absl::StrAppend(&runs,
                      Row({v.file, Count(v.iterations_true), Fixed(v.measured_ms, 0),
                           Fixed(v.predicted_ms, 0), Percent(v.error),
                           absl::StrFormat("%+.2f to %+.2f%s", 100 * (v.low_ms / v.measured_ms - 1),
                                           100 * (v.high_ms / v.measured_ms - 1),
                                           v.covered() ? "" : ", MISSED"),
                           Judged(v), v.note}));
    } else if (v.check == "pair") {
      absl::StrAppend(&pairs, Row({v.file, Fixed(v.measured_ms, 3), Fixed(v.predicted_ms, 3),
                                   Percent(v.error), Judged(v), v.note}));
    } else if (v.check == "collective") {
      absl::StrAppend(&collectives, Row({v.file, Fixed(v.measured_ms, 3), Fixed(v.predicted_ms, 3),
                                         Percent(v.error), Fixed(v.mean_us, 1),
                                         Fixed(v.worst_us, 1), Judged(v), v.note}));
    } else if (v.check == "speed") {
      const auto millions = [](double n) { return Fixed(n / 1e6, 1); };
      absl::StrAppend(&speed, Row({v.file, Count(v.tasks), Fixed(v.import_mb_s, 0),
                                   Fixed(v.import_gzip_mb_s, 0), millions(v.graph_tasks_s),
                                   millions(v.replay_tasks_s), v.note}));
    }
  }
  std::string text;
  const auto add = [&](const std::string& title, const std::vector<std::string>& head,
                       const std::string& rows) {
    if (!rows.empty()) absl::StrAppend(&text, Header(title, head), rows);
  };
  add("Boundaries, the marks hidden", {"trace", "steps", "found", "", "begins with"}, boundaries);
  const std::vector<std::string> replay = {"trace",
                                           "iterations",
                                           "measured ms",
                                           "replayed ms",
                                           "error %",
                                           "worst iteration %",
                                           "starts off by us",
                                           "worst",
                                           "tasks",
                                           "edges",
                                           "",
                                           "left out"};
  add("Replay without change: mean GPU period", replay, training);
  text += whole_errors.ToString();
  add("The same of traces whose first third is cut off", replay, cut);
  text += cut_errors.ToString();
  add("Replay without change, traces of fewer than two iterations: first GPU start to last end",
      replay, others);
  add("Before and after: median iteration",
      {"pair", "measured ms", "predicted ms", "error %", "", "what-if"}, pairs);
  add("Whole runs: the changed job in full",
      {"run", "iterations", "measured ms", "predicted ms", "error %", "interval %", "", "what-if"},
      runs);
  add("Ends of collectives, all ranks replayed together: error relative to the iteration",
      {"ranks", "last end ms", "replayed ms", "error %", "mean us", "worst us", "", "matched"},
      collectives);
  add("Speed, on one core",
      {"trace", "tasks", "import MB/s", "of gzip", "graph M tasks/s", "replay M tasks/s", ""},
      speed);
  return text;
}

}  // namespace seqpoint::whatif
