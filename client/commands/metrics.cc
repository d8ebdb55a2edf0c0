#include "client/commands/metrics.h"

#include <algorithm>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/commands/commands.h"
#include "client/commands/options.h"
#include "client/text/help.h"
#include "client/text/notes.h"
#include "proto/invalid_argument.h"
#include "proto/status_macros.h"
#include "proto/utf8.h"

namespace seqpoint::client {
namespace {

constexpr size_t kMaxMetricFileBytes = 64 << 10;  // what a daemon takes

using Terms = google::protobuf::RepeatedPtrField<v1::MetricTerm>;

std::string BackendName(const v1::MetricSetOffer& offer) {
  return offer.backend() == v1::COUNTER_BACKEND_PM ? "pm" : "range";
}

std::string TermsText(const Terms& terms) {
  return absl::StrJoin(terms, " + ", [](std::string* out, const v1::MetricTerm& term) {
    if (term.weight() != 1) absl::StrAppend(out, term.weight(), " * ");
    absl::StrAppend(out, term.metric());
  });
}

std::string SideText(const Terms& terms) {
  return terms.size() > 1 ? absl::StrCat("(", TermsText(terms), ")") : TermsText(terms);
}

// "1 pass", "4 x 1 pass", "-"
std::string PassesText(const v1::MetricSetOffer& offer) {
  const auto& configs = offer.configurations();
  if (configs.empty()) return "-";
  const bool alike =
      std::all_of(configs.begin(), configs.end(),
                  [](const v1::OfferedConfiguration& config) { return config.passes() == 1; });
  if (alike) return configs.size() == 1 ? "1 pass" : absl::StrCat(configs.size(), " x 1 pass");
  return absl::StrJoin(
      configs, " + ", [](std::string* out, const v1::OfferedConfiguration& config) {
        absl::StrAppend(out, config.passes() == 0 ? "?" : absl::StrCat(config.passes()));
      });
}

std::string ProblemsText(const v1::OfferedMetricSet& set) {
  std::string text;
  for (const v1::MetricSetOffer& offer : set.offers()) {
    for (int i = 0; i < offer.configurations_size(); ++i) {
      const std::string& problem = offer.configurations(i).problem();
      if (problem.empty()) continue;
      text += Wrap("", absl::StrCat("! ", set.name(), ", configuration ", i + 1, ", ",
                                    BackendName(offer), ": ", problem));
    }
  }
  return text;
}

std::string RatioText(const v1::MetricRatio& ratio) {
  const std::string formula =
      ratio.denominator().empty()
          ? TermsText(ratio.numerator())
          : absl::StrCat(SideText(ratio.numerator()), " / ", SideText(ratio.denominator()));
  return absl::StrCat("    ", ratio.name(),
                      ratio.unit().empty() ? "" : absl::StrCat(" (", ratio.unit(), ")"), ":\n",
                      Wrap("      ", formula));
}

struct MetricsOptions {
  std::string set, chip, file;
};

absl::StatusOr<int> ShowMetrics(const Context& context, MetricsOptions& options) {
  v1::ListMetricSetsRequest request;
  request.set_set(options.set);
  request.set_chip(options.chip);
  if (!options.file.empty()) {
    SEQPOINT_ASSIGN_OR_RETURN(*request.mutable_file(), ReadMetricFile(options.file));
  }
  return context.Ask(&v1::Profiler::Stub::ListMetricSets, request,
                     [&](const v1::ListMetricSetsReply& reply) {
                       return options.set.empty() ? MetricSetsText(reply)
                                                  : MetricSetText(reply.sets(0), reply.chip());
                     });
}

}  // namespace

absl::StatusOr<v1::MetricFile> ReadMetricFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  // No more than shows that it is too long: a device has no end.
  std::string text(kMaxMetricFileBytes + 1, '\0');
  if (file) file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  if (file.bad() || !file.is_open()) {
    return InvalidArgument("--metrics-file: ", Quote(path), " cannot be read");
  }
  std::string wrong;
  if (text.empty()) wrong = "is empty";
  if (text.size() > kMaxMetricFileBytes) {
    wrong = absl::StrCat("has more than ", kMaxMetricFileBytes, " bytes");
  }
  if (!IsUtf8(text)) wrong = "is not UTF-8";
  if (!wrong.empty()) {
    return InvalidArgument(path, " ", wrong,
                           "; docs/using/counters.md has the form of own metric sets");
  }
  v1::MetricFile read;
  read.set_name(Printable(path));
  read.set_text(text);
  return read;
}

std::string MetricSetsText(const v1::ListMetricSetsReply& reply) {
  Table table({"SET", "RANGE", "PM", "WHAT"});
  std::string problems;
  for (const v1::OfferedMetricSet& set : reply.sets()) {
    std::vector<std::string> row = {set.name()};
    for (const v1::MetricSetOffer& offer : set.offers()) row.push_back(PassesText(offer));
    row.push_back(set.description());
    table.AddRow(std::move(row));
    problems += ProblemsText(set);
  }
  return absl::StrCat(
      table.ToString(), "\n", problems.empty() ? "" : absl::StrCat(problems, "\n"),
      Wrap("",
           absl::StrCat("on ", reply.chip(), " (--chip: ", absl::StrJoin(reply.known_chips(), ", "),
                        " and their families); each configuration of one pass is measured on "
                        "iterations of its own. `seqpoint metrics SET` lists the metrics")));
}

std::string MetricSetText(const v1::OfferedMetricSet& set, const std::string& chip) {
  std::string text = absl::StrCat(set.name(), ": ", set.description(), "\n");
  for (const v1::MetricSetOffer& offer : set.offers()) {
    absl::StrAppend(&text, "\n", BackendName(offer), " on ", chip, ": ", PassesText(offer),
                    offer.missing().empty() ? "" : absl::StrCat("; ", offer.missing()), "\n");
    for (int i = 0; i < offer.configurations_size(); ++i) {
      const v1::OfferedConfiguration& config = offer.configurations(i);
      absl::StrAppend(&text, "  configuration ", i + 1, ": ",
                      config.passes() == 0   ? "passes not known"
                      : config.passes() == 1 ? "1 pass"
                                             : absl::StrCat(config.passes(), " passes"),
                      "\n");
      if (!config.problem().empty()) absl::StrAppend(&text, "    ! ", config.problem(), "\n");
      for (const v1::OfferedMetric& metric : config.metrics()) {
        absl::StrAppend(&text, "    ", metric.name(),
                        metric.unit().empty() ? "" : absl::StrCat(" (", metric.unit(), ")"), "\n");
      }
    }
    if (!offer.ratios().empty()) absl::StrAppend(&text, "  derived from their sums:\n");
    for (const v1::MetricRatio& ratio : offer.ratios()) text += RatioText(ratio);
  }
  return text;
}

void AddMetricsFile(CLI::App* command, std::string* file) {
  AddValue(command, "--metrics-file FILE", file, "metric sets of your own (docs/using/counters.md)",
           CLI::ExistingFile);
}

void AddMetrics(CLI::App* app, Context* context) {
  auto [command, options] = AddCommand<MetricsOptions>(
      app, context, "metrics", "List metric sets: what they measure, and in how many passes.",
      &ShowMetrics);
  command->footer(kMetricsHelp);
  command->add_option("SET", options->set, "show only this set, with all its metrics")
      ->check(Name());
  AddValue(command, "--chip CHIP", &options->chip,
           "chip of the GPU, as `seqpoint counters JOB` names it; default GH100", Name());
  AddMetricsFile(command, &options->file);
}

}  // namespace seqpoint::client
