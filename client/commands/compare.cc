#include "client/commands/compare.h"

#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/commands/commands.h"
#include "client/commands/options.h"
#include "client/commands/part.h"
#include "client/text/format.h"
#include "client/text/notes.h"

namespace seqpoint::client {
namespace {

constexpr int64_t kMostRows = 1'000'000;

constexpr const char* kHelp = R"(
TIME      the second job's less the first one's
INTERVAL  holds the truth with the given confidence; where it holds zero, no difference is proven
SHARE     of the whole difference; a part with the opposite sign is below zero

number of iterations    the job has more or fewer
lengths                 the lengths differ
cost at equal lengths   an iteration takes longer or shorter: by kernel, and between kernels
stalls and first iterations of a length
                        what single iterations took beyond others of their lengths)";

std::string Signed(double value, std::string_view unit) {
  const char* const sign = value == 0 ? "" : value < 0 ? "-" : "+";
  return absl::StrCat(sign, FormatQuantity(std::abs(value), unit));
}

// Sums of nanoseconds that are as good as equal differ by what doubles round off.
void RoundOffNoise(v1::Estimate* e) {
  const auto rounded = [](double ns) { return std::abs(ns) < 0.5 ? 0 : ns; };
  e->set_low(rounded(e->low()));
  e->set_value(rounded(e->value()));
  e->set_high(rounded(e->high()));
}

void RoundOffNoise(v1::DifferencePart* part) {
  RoundOffNoise(part->mutable_duration_ns());
  const v1::Estimate& e = part->duration_ns();
  if (e.low() == 0 && e.high() == 0) part->clear_share();
}

void RoundOffNoise(v1::CompareReply* reply) {
  RoundOffNoise(reply->mutable_difference_ns());
  for (v1::DifferencePart& part : *reply->mutable_parts()) RoundOffNoise(&part);
  for (v1::DifferencePart& part : *reply->mutable_cost_parts()) RoundOffNoise(&part);
}

std::string Interval(const v1::Estimate& e, std::string_view unit) {
  if (e.low() == e.high()) return "exact";
  return absl::StrCat(Signed(e.low(), unit), " to ", Signed(e.high(), unit));
}

// How many times one is the other, as a change: "+10.2 %".
std::string RelativeChange(double other, double base) {
  if (!(base > 0)) return other > 0 ? "new" : "";
  return absl::StrFormat("%+.1f %%", 100 * (other / base - 1));
}

std::string NameOf(const v1::DifferencePart& part) {
  return part.cause() == v1::DIFFERENCE_CAUSE_KERNEL ? Demangle(part.name()) : part.name();
}

void AddPart(const v1::DifferencePart& part, const std::string& indent, Table* table) {
  const bool kernel = part.has_base_duration_ns();
  table->AddRow(
      {Signed(part.duration_ns().value(), "ns"), Interval(part.duration_ns(), "ns"),
       !part.proven() && part.duration_ns().value() != 0 ? "not proven"
       : part.has_share()                                ? FormatRoundedShare(part.share().value())
                                                         : "-",
       kernel ? RelativeChange(part.other_duration_ns().value(), part.base_duration_ns().value())
              : "",
       absl::StrCat(indent, NameOf(part))});
}

std::string RunLine(const char* title, const v1::ComparedRun& run) {
  std::string text =
      absl::StrCat(title, run.name(), ", ", FormatCount(run.iterations(), "iteration"));
  if (!run.part().empty()) absl::StrAppend(&text, " (", run.part(), ")");
  if (run.batch() > 0) absl::StrAppend(&text, " of batch ", FormatCount(run.batch()));
  if (run.has_duration_ns()) {
    const FormattedEstimate time = FormatEstimate(run.duration_ns(), "ns");
    const bool bound = std::isinf(run.duration_ns().high());
    absl::StrAppend(&text, ", ", time.value, bound ? " or more" : "",
                    time.precision.empty() ? "" : " " + time.precision);
  }
  return absl::StrCat(text, run.live() ? " so far" : "", "\n");
}

std::string WhatItIs(const v1::DifferencePart& cause) {
  switch (cause.cause()) {
    case v1::DIFFERENCE_CAUSE_KERNEL:
      return absl::StrCat(
          "kernel ", NameOf(cause), ", ",
          RelativeChange(cause.other_duration_ns().value(), cause.base_duration_ns().value()),
          " at equal lengths");
    case v1::DIFFERENCE_CAUSE_BETWEEN_KERNELS:
      return "time between kernels (launches, copies, waiting)";
    default:
      return cause.name();
  }
}

std::string DifferenceLine(const v1::CompareReply& reply) {
  const v1::Estimate& difference = reply.difference_ns();
  const double base = reply.base().duration_ns().value();
  if (difference.low() <= 0 && difference.high() >= 0) {
    return Wrap("difference: ",
                absl::StrCat(Signed(difference.value(), "ns"), ", ",
                             absl::StrFormat("%+.2f %%", 100 * difference.value() / base),
                             "; no difference proven: two runs of the same work may be as far ",
                             "apart by chance (", Interval(difference, "ns"), ")"));
  }
  std::string text =
      Wrap("difference: ",
           absl::StrCat(reply.other().name(), " took ",
                        FormatQuantity(std::abs(difference.value()), "ns"), " (",
                        absl::StrFormat("%.2f %%", 100 * std::abs(difference.value()) / base), ") ",
                        difference.value() > 0 ? "longer" : "less"));
  if (!reply.has_main_cause()) {
    return absl::StrCat(text, "cause:      none of the parts is proven\n");
  }
  const v1::DifferencePart& cause = reply.main_cause();
  return absl::StrCat(
      text, Wrap("cause:      ",
                 absl::StrCat(WhatItIs(cause), ": ", Signed(cause.duration_ns().value(), "ns"),
                              ", ", FormatRoundedShare(cause.share().value()),
                              " of the difference (", FormatRoundedShare(cause.share().low()),
                              " to ", FormatRoundedShare(cause.share().high()), ")")));
}

std::string Counters(const v1::CompareReply& reply, int width) {
  if (reply.counters().empty()) return "";
  Table table({"METRIC", ">FIRST", ">SECOND", ">AT EQUAL LENGTHS",
               FormatConfidence(reply.confidence()) + " INTERVAL"});
  for (const v1::ComparedCounter& counter : reply.counters()) {
    const v1::Estimate& d = counter.difference_at_equal_lengths();
    const double base = counter.base_at_equal_lengths().value();
    const bool known = counter.has_difference_at_equal_lengths() && base > 0;
    table.AddRow({counter.metric(), FormatQuantity(counter.base().value(), counter.unit()),
                  FormatQuantity(counter.other().value(), counter.unit()),
                  !known             ? "-"
                  : counter.proven() ? absl::StrFormat("%+.2f %%", 100 * d.value() / base)
                                     : "no difference proven",
                  known ? absl::StrFormat("%+.2f %% to %+.2f %%", 100 * d.low() / base,
                                          100 * d.high() / base)
                        : ""});
  }
  return absl::StrCat("\n", table.ToString(width));
}

}  // namespace

std::string CompareText(v1::CompareReply reply, int width) {
  RoundOffNoise(&reply);
  std::string text =
      absl::StrCat(RunLine("first:      ", reply.base()), RunLine("second:     ", reply.other()));
  if (!reply.not_known().empty()) {
    return absl::StrCat(
        text, Wrap("difference: ", absl::StrCat("not known, because ", reply.not_known())));
  }
  absl::StrAppend(&text, DifferenceLine(reply), "\n");
  Table table({">TIME", FormatConfidence(reply.confidence()) + " INTERVAL", ">SHARE",
               ">KERNEL TIME", "PART"});
  for (const v1::DifferencePart& part : reply.parts()) {
    AddPart(part, "", &table);
    if (part.cause() != v1::DIFFERENCE_CAUSE_COST) continue;
    for (const v1::DifferencePart& of_cost : reply.cost_parts()) AddPart(of_cost, "  ", &table);
  }
  absl::StrAppend(&text, table.ToString(width));
  absl::StrAppend(&text, Counters(reply, width), "\n");
  const auto note = [&](const std::string& message) {
    if (!message.empty()) text += Wrap("note: ", message);
  };
  if (!reply.not_comparable().empty()) {
    note(absl::StrCat("lengths and cost are not told apart, because ", reply.not_comparable()));
  }
  if (reply.not_comparable().empty() && !reply.no_kernels().empty()) {
    note(absl::StrCat("kernels are not known: ", reply.no_kernels()));
  }
  if (!reply.no_counters().empty()) {
    note(absl::StrCat("counters are not known: ", reply.no_counters()));
  }
  for (const std::string& message : reply.messages()) note(message);
  return text;
}

namespace {

struct CompareOptions {
  std::string base, other;
  double confidence = 0;
  int limit = 10;
  bool all = false;
  PartOptions part;
};

absl::StatusOr<int> Compare(const Context& context, CompareOptions& options) {
  v1::CompareRequest request;
  request.set_base(options.base);
  request.set_other(options.other);
  request.set_confidence(options.confidence);
  request.set_limit(options.all ? 0 : options.limit);
  options.part.SetIn(&request);
  return context.Ask(&v1::Profiler::Stub::Compare, request, [](const v1::CompareReply& reply) {
    return CompareText(reply, Context::Width());
  });
}

}  // namespace

void AddCompare(CLI::App* app, Context* context) {
  auto [command, options] = AddCommand<CompareOptions>(
      app, context, "compare", "Why one job took longer than another.", &Compare);
  command->footer(kHelp);
  command
      ->add_option("JOB", options->base,
                   "the first one: its id, name@run_id or name (the latest run)")
      ->check(Name())
      ->required();
  command->add_option("OTHER", options->other, "the second job")->check(Name())->required();
  AddValue(command, "--confidence SHARE", &options->confidence,
           "probability that the interval holds the truth; default 95%", Share());
  AddValue(command, "--limit N", &options->limit, "how many kernels; default 10",
           WholeNumber(1, kMostRows));
  command->add_flag("--all", options->all, "all kernels");
  options->part.AddTo(command);
}

}  // namespace seqpoint::client
