#include "client/commands/metrics.h"

#include <google/protobuf/struct.pb.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/commands/commands.h"
#include "client/commands/options.h"
#include "client/text/format.h"
#include "client/text/help.h"
#include "client/text/json.h"
#include "client/text/notes.h"
#include "daemon/counters/host_library.h"
#include "daemon/counters/metric_file.h"

namespace seqpoint::client {
namespace {

using counters::Backend;
using counters::HostLibrary;
using counters::MetricSet;
using counters::OnePassConfig;

constexpr Backend kBackends[] = {Backend::kRange, Backend::kPm};

// What one backend makes of a set on the chip.
struct Offer {
  Backend backend;
  MetricSet set;
  std::vector<int> passes;            // of each configuration; 0: not known
  std::vector<std::string> problems;  // of each configuration
};

struct Described {
  std::string name, sentence;
  bool own = false;
  std::vector<Offer> offers;
};

std::vector<std::string> Names(const OnePassConfig& config) {
  std::vector<std::string> names;
  for (const counters::Metric& metric : config.metrics) names.push_back(metric.name);
  return names;
}

// Shipped configurations are one pass each: a test asks the host library for every chip. Of own
// ones it is asked here.
Offer MakeOffer(const Described& set, MetricSet resolved, Backend backend, const std::string& chip,
                const absl::StatusOr<HostLibrary>& library) {
  Offer offer{.backend = backend, .set = std::move(resolved)};
  for (const OnePassConfig& config : offer.set.configs) {
    int passes = set.own ? 0 : 1;
    std::string problem;
    if (set.own && library.ok()) {
      const absl::StatusOr<int> counted = library->Passes(chip, backend, Names(config));
      passes = counted.value_or(0);
      if (!counted.ok()) problem = std::string(counted.status().message());
      if (passes > 1) {
        problem = absl::StrCat(passes, " passes: one iteration gives one, split the configuration");
      }
    } else if (set.own) {
      problem = std::string(library.status().message());
    }
    offer.passes.push_back(passes);
    offer.problems.push_back(std::move(problem));
  }
  return offer;
}

std::string TermsText(const std::vector<counters::Term>& terms) {
  return absl::StrJoin(terms, " + ", [](std::string* out, const counters::Term& term) {
    if (term.weight != 1) absl::StrAppend(out, term.weight, " * ");
    absl::StrAppend(out, term.metric);
  });
}

// "1 pass", "4 x 1 pass", "-"
std::string PassesText(const Offer& offer) {
  if (offer.set.configs.empty()) return "-";
  bool alike = true;
  for (const int passes : offer.passes) alike &= passes == 1;
  if (alike) {
    return offer.passes.size() == 1 ? "1 pass" : absl::StrCat(offer.passes.size(), " x 1 pass");
  }
  return absl::StrJoin(offer.passes, " + ", [](std::string* out, int passes) {
    absl::StrAppend(out, passes == 0 ? "?" : absl::StrCat(passes));
  });
}

std::string ListText(const std::vector<Described>& sets, const std::string& chip) {
  Table table({{"SET"}, {"RANGE"}, {"PM"}, {"WHAT"}});
  for (const Described& set : sets) {
    table.AddRow({set.name, PassesText(set.offers[0]), PassesText(set.offers[1]), set.sentence});
  }
  std::string problems;
  for (const Described& set : sets) {
    for (const Offer& offer : set.offers) {
      for (size_t i = 0; i < offer.problems.size(); ++i) {
        if (offer.problems[i].empty()) continue;
        absl::StrAppend(&problems,
                        Wrap("",
                             absl::StrCat("! ", set.name, ", configuration ", i + 1, ", ",
                                          std::string(counters::BackendName(offer.backend)), ": ",
                                          offer.problems[i]),
                             kTextColumns));
      }
    }
  }
  return absl::StrCat(
      table.ToString(), "\n", problems.empty() ? "" : absl::StrCat(problems, "\n"),
      Wrap("",
           absl::StrCat("on ", chip, " (--chip: ", absl::StrJoin(counters::KnownChips(), ", "),
                        " and their families); each configuration of one pass is measured on "
                        "iterations of its own. `seqpoint metrics SET` lists the metrics"),
           kTextColumns));
}

std::string SetText(const Described& set, const std::string& chip) {
  std::string text = absl::StrCat(set.name, ": ", set.sentence, "\n");
  for (const Offer& offer : set.offers) {
    absl::StrAppend(&text, "\n", std::string(counters::BackendName(offer.backend)), " on ", chip,
                    ": ", PassesText(offer),
                    offer.set.missing.empty() ? "" : absl::StrCat("; ", offer.set.missing), "\n");
    for (size_t i = 0; i < offer.set.configs.size(); ++i) {
      absl::StrAppend(&text, "  configuration ", i + 1, ": ",
                      offer.passes[i] == 0   ? "passes not known"
                      : offer.passes[i] == 1 ? "1 pass"
                                             : absl::StrCat(offer.passes[i], " passes"),
                      "\n");
      if (!offer.problems[i].empty()) absl::StrAppend(&text, "    ! ", offer.problems[i], "\n");
      for (const counters::Metric& metric : offer.set.configs[i].metrics) {
        absl::StrAppend(&text, "    ", metric.name,
                        metric.unit.empty() ? "" : absl::StrCat(" (", metric.unit, ")"), "\n");
      }
    }
    if (!offer.set.ratios.empty()) absl::StrAppend(&text, "  derived from their sums:\n");
    for (const counters::Ratio& ratio : offer.set.ratios) {
      const auto side = [](const std::vector<counters::Term>& terms) {
        return terms.size() > 1 ? absl::StrCat("(", TermsText(terms), ")") : TermsText(terms);
      };
      const std::string formula =
          ratio.denominator.empty()
              ? TermsText(ratio.numerator)
              : absl::StrCat(side(ratio.numerator), " / ", side(ratio.denominator));
      absl::StrAppend(&text, "    ", ratio.name,
                      ratio.unit.empty() ? "" : absl::StrCat(" (", ratio.unit, ")"), ":\n",
                      Wrap("      ", formula, kTextColumns));
    }
  }
  return text;
}

std::string JsonOf(const std::vector<Described>& sets, const std::string& chip) {
  google::protobuf::Struct object;
  (*object.mutable_fields())["chip"].set_string_value(chip);
  auto* list = (*object.mutable_fields())["sets"].mutable_list_value();
  for (const Described& set : sets) {
    auto& fields = *list->add_values()->mutable_struct_value()->mutable_fields();
    fields["name"].set_string_value(set.name);
    fields["sentence"].set_string_value(set.sentence);
    auto* backends = fields["backends"].mutable_list_value();
    for (const Offer& offer : set.offers) {
      auto& to = *backends->add_values()->mutable_struct_value()->mutable_fields();
      to["backend"].set_string_value(std::string(counters::BackendName(offer.backend)));
      to["missing"].set_string_value(offer.set.missing);
      auto* configs = to["configurations"].mutable_list_value();
      for (size_t i = 0; i < offer.set.configs.size(); ++i) {
        auto& config = *configs->add_values()->mutable_struct_value()->mutable_fields();
        config["passes"].set_number_value(offer.passes[i]);
        config["problem"].set_string_value(offer.problems[i]);
        auto* metrics = config["metrics"].mutable_list_value();
        for (const counters::Metric& metric : offer.set.configs[i].metrics) {
          auto& entry = *metrics->add_values()->mutable_struct_value()->mutable_fields();
          entry["name"].set_string_value(metric.name);
          entry["unit"].set_string_value(metric.unit);
        }
      }
      auto* ratios = to["derived"].mutable_list_value();
      for (const counters::Ratio& ratio : offer.set.ratios) {
        auto& entry = *ratios->add_values()->mutable_struct_value()->mutable_fields();
        entry["name"].set_string_value(ratio.name);
        entry["unit"].set_string_value(ratio.unit);
        entry["numerator"].set_string_value(TermsText(ratio.numerator));
        entry["denominator"].set_string_value(TermsText(ratio.denominator));
      }
    }
  }
  return ToJson(object, /*one_line=*/false) + "\n";
}

}  // namespace

absl::StatusOr<std::vector<counters::OwnSet>> ReadMetricFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  // No more than shows that it is too long: a device has no end.
  std::string text(counters::kMaxMetricFileBytes + 1, '\0');
  if (file) file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  if (file.bad() || !file.is_open()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--metrics-file: ", Quote(path), " cannot be read"));
  }
  return counters::ParseMetricFile(text, path);
}

absl::Status CheckOffered(const std::vector<counters::OwnSet>& sets, Backend backend,
                          const std::string& path) {
  const absl::StatusOr<HostLibrary> library = HostLibrary::Open();
  if (!library.ok()) return absl::OkStatus();
  for (const counters::OwnSet& set : sets) {
    for (const std::vector<std::string>& config : set.configs) {
      for (const std::string& metric : config) {
        bool offered = false;
        for (const std::string& chip : counters::KnownChips()) {
          if (!offered) offered = library->Passes(chip, backend, {metric}).ok();
        }
        if (offered) continue;
        return absl::InvalidArgumentError(
            absl::StrCat(path, ": set \"", set.name, "\": no chip offers ", Quote(metric),
                         " to the ", std::string(counters::BackendName(backend)),
                         " backend; `ncu --query-metrics` lists what a GPU has"));
      }
    }
  }
  return absl::OkStatus();
}

v1::MetricSet ToProto(const counters::OwnSet& set) {
  v1::MetricSet to;
  to.set_name(set.name);
  to.set_sentence(set.sentence);
  for (const std::vector<std::string>& config : set.configs) {
    v1::MetricConfiguration& configuration = *to.add_configurations();
    for (const std::string& metric : config) configuration.add_metrics(metric);
  }
  const auto terms = [](const std::vector<counters::Term>& from, auto* list) {
    for (const counters::Term& term : from) {
      v1::MetricTerm& added = *list->Add();
      added.set_metric(term.metric);
      added.set_weight(term.weight);
    }
  };
  for (const counters::Ratio& ratio : set.ratios) {
    v1::MetricRatio& added = *to.add_ratios();
    added.set_name(ratio.name);
    added.set_unit(ratio.unit);
    terms(ratio.numerator, added.mutable_numerator());
    terms(ratio.denominator, added.mutable_denominator());
  }
  return to;
}

absl::Status CheckNames(const std::vector<std::string>& names,
                        const std::vector<counters::OwnSet>& own) {
  std::vector<std::string> known;
  for (const counters::OwnSet& set : own) known.push_back(set.name);
  for (const MetricSet& set : counters::MetricSets("", Backend::kRange)) known.push_back(set.name);
  for (const std::string& name : names) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("no metric set ", Quote(name), "; there are: ", absl::StrJoin(known, ", ")));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> DescribeMetrics(const MetricsOptions& asked, bool json) {
  MetricsOptions options = asked;
  // Chips are written in capitals, and people do not always.
  if (const std::string upper = absl::AsciiStrToUpper(options.chip); counters::IsKnownChip(upper)) {
    options.chip = upper;
  }
  if (!counters::IsKnownChip(options.chip)) {
    return absl::InvalidArgumentError(absl::StrCat("--chip: ", Quote(options.chip), " is none of ",
                                                   absl::StrJoin(counters::KnownChips(), ", "),
                                                   " and their families"));
  }
  std::vector<counters::OwnSet> own;
  if (!options.file.empty()) {
    auto read = ReadMetricFile(options.file);
    if (!read.ok()) return read.status();
    own = *std::move(read);
  }
  std::vector<Described> sets;
  for (const counters::OwnSet& set : own) sets.push_back({set.name, set.sentence, true, {}});
  for (const MetricSet& set : counters::MetricSets(options.chip, Backend::kRange)) {
    sets.push_back({set.name, set.sentence, false, {}});
  }
  if (!options.set.empty()) {
    if (absl::Status status = CheckNames({options.set}, own); !status.ok()) return status;
    std::erase_if(sets, [&](const Described& set) { return set.name != options.set; });
  }
  const absl::StatusOr<HostLibrary> library =
      own.empty() ? absl::StatusOr<HostLibrary>(absl::NotFoundError("")) : HostLibrary::Open();
  for (Described& set : sets) {
    for (const Backend backend : kBackends) {
      auto resolved = counters::CombineMetricSets({set.name}, own, options.chip, backend);
      if (!resolved.ok()) return resolved.status();
      // It names its set, being made for several.
      if (!set.own) {
        resolved->missing = counters::FindMetricSet(set.name, options.chip, backend)->missing;
      }
      set.offers.push_back(MakeOffer(set, *std::move(resolved), backend, options.chip, library));
    }
  }
  if (json) return JsonOf(sets, options.chip);
  return options.set.empty() ? ListText(sets, options.chip) : SetText(sets[0], options.chip);
}

namespace {

int ShowMetrics(const Context& context, MetricsOptions& options) {
  const auto text = DescribeMetrics(options, context.json());
  if (!text.ok()) return context.Fail(text.status());
  Context::Print(*text);
  return kExitOk;
}

}  // namespace

void AddMetricsFile(CLI::App* command, std::string* file) {
  command->add_option("--metrics-file", *file, "own metric sets (docs/counters.md)")
      ->check(CLI::ExistingFile)
      ->type_name("FILE");
}

void AddMetrics(CLI::App* app, Context* context) {
  auto [command, options] = AddCommand<MetricsOptions>(
      app, context, "metrics", "List metric sets: what they measure, and in how many passes.",
      &ShowMetrics);
  options->chip = "GH100";
  command->footer(kMetricsHelp);
  command->add_option("SET", options->set, "only this, with all its metrics")->check(Name());
  command
      ->add_option("--chip", options->chip,
                   "of the GPU, as `seqpoint counters JOB` names it; default GH100")
      ->check(Name())
      ->type_name("CHIP");
  AddMetricsFile(command, &options->file);
}

}  // namespace seqpoint::client
