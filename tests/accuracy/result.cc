#include "tests/accuracy/result.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "daemon/seqpoint/interval.h"

namespace seqpoint::accuracy {
namespace {

std::string Number(double value) {
  return std::isfinite(value) ? absl::StrFormat("%.6g", value) : "null";
}

std::string Text(const std::string& text) {
  if (text.empty()) return "null";
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    if (static_cast<unsigned char>(c) >= ' ') quoted += c;
  }
  return quoted + "\"";
}

std::string Percent(double share, int digits = 3) {
  if (!std::isfinite(share)) return "–";
  return absl::StrFormat("%.*f", digits, 100 * share);
}

std::string Row(const std::vector<std::string>& cells) {
  return absl::StrCat("| ", absl::StrJoin(cells, " | "), " |\n");
}

std::string Header(const std::vector<std::string>& cells) {
  return absl::StrCat(Row(cells), "|",
                      absl::StrJoin(std::vector<std::string>(cells.size(), "---"), "|"), "|\n");
}

using Lines = std::vector<const Result*>;

// Lines that agree in what `key` says, in the order in which they first occur.
template <typename KeyOf>
std::vector<std::pair<std::string, Lines>> GroupBy(const Lines& lines, KeyOf key) {
  std::vector<std::pair<std::string, Lines>> groups;
  for (const Result* r : lines) {
    const std::string k = key(*r);
    auto it = std::find_if(groups.begin(), groups.end(), [&](auto& g) { return g.first == k; });
    if (it == groups.end()) it = groups.insert(groups.end(), {k, {}});
    it->second.push_back(r);
  }
  return groups;
}

const Result* Of(const Lines& lines, const std::string& method) {
  const auto it = std::find_if(lines.begin(), lines.end(),
                               [&](const Result* r) { return r->method == method; });
  return it == lines.end() ? nullptr : *it;
}

constexpr const char* kColumns[] = {"ours",  "seqpoint", "equal_mass", "stem", "random",
                                    "prior", "frequent", "median",     "worst"};

// Mean errors, a column per method.
std::string MethodTable(const Lines& lines, const std::string& first,
                        std::string (*key)(const Result&), bool with_interval) {
  std::vector<std::string> header = {first};
  for (const char* method : kColumns) header.push_back(method);
  if (with_interval) {
    header.insert(header.end(), {"0.8 x floor", "ours p95", "covers", "width / ideal"});
  }
  std::string text = Header(header);
  for (const auto& [name, group] : GroupBy(lines, key)) {
    std::vector<std::string> cells = {name};
    for (const char* method : kColumns) {
      const Result* r = Of(group, method);
      cells.push_back(r == nullptr ? "–" : Percent(r->mean_error));
    }
    if (const Result* ours = Of(group, "ours"); with_interval && ours != nullptr) {
      cells.insert(
          cells.end(),
          {Percent(0.8 * ours->noise_floor), Percent(ours->p95_error), Percent(ours->coverage, 1),
           std::isfinite(ours->width_ratio) ? absl::StrFormat("%.2f", ours->width_ratio) : "–"});
    }
    text += Row(cells);
  }
  return text;
}

std::string OnlineTable(const Lines& lines) {
  std::string text = Header({"data", "order", "rest's lengths", "seen", "ours", "plain mean",
                             "0.8 x limit", "bias", "p95", "covers", "half-width", ""});
  const auto key = [](const Result& r) {
    return absl::StrCat(r.file, r.order, r.lengths, r.fraction);
  };
  for (const auto& [name, group] : GroupBy(lines, key)) {
    const Result* ours = Of(group, "ours");
    const Result* plain = Of(group, "random");
    text += Row({ours->file, ours->order, ours->lengths, Percent(ours->fraction, 0),
                 Percent(ours->mean_error), Percent(plain->mean_error),
                 Percent(0.8 * ours->noise_floor), absl::StrFormat("%+.3f", 100 * ours->bias),
                 Percent(ours->p95_error), Percent(ours->coverage, 1), Percent(ours->half_width),
                 ours->note});
  }
  return text;
}

std::string ExplainedTable(const Lines& lines) {
  std::string text = Header({"data", "iterations", "order", "explained", "refused", "verdict"});
  for (const Result* r : lines) {
    text += Row({r->file, absl::StrCat(r->m), r->order, Percent(r->explained, 1),
                 Percent(r->refused, 1), r->verdict});
  }
  return text;
}

std::string WallTable(const Lines& lines) {
  std::string text = Header({"data", "estimate", "of", "bias", "mean error", "p95", ""});
  for (const Result* r : lines) {
    text += Row({r->file, r->method, r->statistic, absl::StrFormat("%+.3f", 100 * r->bias),
                 Percent(r->mean_error), Percent(r->p95_error), r->note});
  }
  return text;
}

}  // namespace

void Tally::Add(double error) { errors_.push_back(error); }

void Tally::Add(double error, double low, double high) {
  Add(error);
  covered_ += low <= 0 && 0 <= high;
  width_ += (high - low) / 2;
  intervals_ += 1;
}

double Tally::mean_error() const {
  double sum = 0;
  for (double e : errors_) sum += std::abs(e);
  return sum / static_cast<double>(errors_.size());
}

void Tally::Fill(Result* result) const {
  if (errors_.empty()) return;
  const auto n = static_cast<double>(errors_.size());
  std::vector<double> absolute;
  for (double e : errors_) absolute.push_back(std::abs(e));
  std::sort(absolute.begin(), absolute.end());
  result->mean_error = mean_error();
  result->p95_error =
      absolute[std::min(absolute.size() - 1, static_cast<size_t>(0.95 * static_cast<double>(n)))];
  result->bias = std::accumulate(errors_.begin(), errors_.end(), 0.0) / n;
  if (intervals_ == 0) return;
  double square = 0;
  for (double e : errors_) square += std::pow(e - result->bias, 2);
  const double deviation = std::sqrt(square / n);
  result->coverage = covered_ / intervals_;
  result->half_width = width_ / intervals_;
  if (deviation > 1e-9 && n > 1) {
    result->width_ratio = result->half_width / (NormalQuantile(0.95) * deviation);
  }
}

std::string ToJson(absl::Span<const Result> results) {
  std::string json = "[";
  for (const Result& r : results) {
    absl::StrAppend(&json, json.size() > 1 ? ",\n " : "", "{\"file\": ", Text(r.file),
                    ", \"protocol\": ", Text(r.protocol), ", \"method\": ", Text(r.method),
                    ", \"statistic\": ", Text(r.statistic),
                    ", \"m\": ", r.m > 0 ? absl::StrCat(r.m) : "null",
                    ", \"fraction\": ", Number(r.fraction), ", \"order\": ", Text(r.order),
                    ", \"lengths\": ", Text(r.lengths));
    absl::StrAppend(
        &json, ", \"mean_error\": ", Number(r.mean_error), ", \"p95_error\": ", Number(r.p95_error),
        ", \"bias\": ", Number(r.bias), ", \"noise_floor\": ", Number(r.noise_floor),
        ", \"coverage\": ", Number(r.coverage), ", \"width_ratio\": ", Number(r.width_ratio),
        ", \"half_width\": ", Number(r.half_width), ", \"unique_keys\": ", r.unique_keys,
        ", \"iterations\": ", r.iterations, ", \"explained\": ", Number(r.explained),
        ", \"refused\": ", Number(r.refused), ", \"verdict\": ", Text(r.verdict),
        ", \"note\": ", Text(r.note), "}");
  }
  return json + "]\n";
}

std::string ToTables(absl::Span<const Result> results) {
  std::map<std::string, Lines> by_protocol;
  for (const Result& r : results) by_protocol[r.protocol].push_back(&r);
  std::string text;
  const auto section = [&](const char* protocol, const char* title, auto table) {
    if (!by_protocol.contains(protocol)) return;
    absl::StrAppend(&text, text.empty() ? "" : "\n", "## ", title, "\n\n",
                    table(by_protocol[protocol]));
  };
  section("paper", "At most 10 lengths, chosen on one half, judged on the other; mean error, %",
          [](const Lines& lines) {
            return MethodTable(
                lines, "data", [](const Result& r) { return r.file; }, false);
          });
  section("sampled", "m single measurements of the log that chose them; mean error, %",
          [](const Lines& lines) {
            return MethodTable(
                lines, "data, m", [](const Result& r) { return absl::StrCat(r.file, ", ", r.m); },
                true);
          });
  section("speedup", "m single measurements elsewhere, the speedup; mean error, %",
          [](const Lines& lines) {
            return MethodTable(
                lines, "from -> to, m",
                [](const Result& r) { return absl::StrCat(r.file, ", ", r.m, ", ", r.note); },
                true);
          });
  section("online", "The whole run, when a part of it ran; %", OnlineTable);
  section("explained", "Does the length explain time? %", ExplainedTable);
  section("walls", "Wall time of epochs, of which every tenth iteration is logged; %", WallTable);
  return text;
}

}  // namespace seqpoint::accuracy
