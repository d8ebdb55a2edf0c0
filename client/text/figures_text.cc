#include "client/text/figures_text.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/text/format.h"
#include "client/text/job_text.h"
#include "client/text/notes.h"

namespace seqpoint::client {
namespace {

constexpr const char* kOtherKernels = "(others)";  // the daemon's name for many in one

// A whole number, though a projection is none: what was seen was launched at least once.
std::string FormatLaunches(double launches) {
  if (launches <= 0) return "0";
  const double whole = std::max(std::round(launches), 1.0);
  return whole < 1e6 ? FormatCount(std::llround(whole)) : FormatQuantity(whole, "1");
}

// "0.1609", "47.14", "24,660".
std::string FormatRate(double value) {
  if (value < 1000) return absl::StrFormat("%.4g", value);
  return FormatCount(std::llround(value));
}

std::string MeasuredText(const v1::GetCountersReply& reply) {
  Table table({">ITERATION", ">RANK", ">LENGTH", "SET", ">TIME", ">USUALLY", ">CHANGE", "NOTE"});
  for (const v1::MeasuredIteration& iteration : reply.iterations()) {
    const double usual_ns = iteration.usual_duration_ns();
    const auto duration_ns = static_cast<double>(iteration.duration_ns());
    table.AddRow({FormatCount(iteration.number()), absl::StrCat(iteration.rank()),
                  FormatLengths(iteration.lengths()), iteration.config(),
                  duration_ns > 0 ? FormatQuantity(duration_ns, "ns") : "-",
                  usual_ns > 0 ? FormatQuantity(usual_ns, "ns") : "-",
                  duration_ns > 0 && usual_ns > 0
                      ? absl::StrFormat("%+.1f %%", 100 * (duration_ns / usual_ns - 1))
                      : "-",
                  iteration.complete() ? "" : "came to nothing"});
  }
  if (table.empty()) return reply.part().empty() ? "" : "none of these iterations was measured\n\n";
  return table.ToString() + "\n";
}

// Which backend, of what, and what it cost the iterations that were measured.
std::string CountersNotes(const v1::GetCountersReply& reply) {
  std::string text;
  if (!reply.metric_sets().empty()) {
    absl::StrAppend(&text, reply.metric_sets(), ", ",
                    reply.backend() == v1::COUNTER_BACKEND_PM
                        ? "by PM sampling of the whole GPU"
                        : "by the range profiler, of the process' own work",
                    reply.chip().empty() ? "" : absl::StrCat(", on ", reply.chip()), "\n");
  }
  const bool all = reply.part().empty();
  absl::StrAppend(&text, FormatCount(reply.measured_iterations(), "iteration"), " measured",
                  all ? "" : " in the whole run");
  if (reply.has_slowdown()) {
    absl::StrAppend(&text,
                    absl::StrFormat("; those with counters%s took %.3g times as long as usual, "
                                    "which is in no projection of time",
                                    all ? "" : ", of the part,", reply.slowdown()));
  }
  return text + "\n" + Note(reply.message());
}

// Says that the figures of a job of several ranks are sums.
std::string RanksLine(const v1::Job& job) {
  std::set<int> ranks;
  for (const v1::Process& process : job.processes()) ranks.insert(process.rank());
  const auto count =
      job.working_ranks() > 0 ? static_cast<size_t>(job.working_ranks()) : ranks.size();
  if (count < 2) return "";
  return absl::StrCat("summed over ", count, " ranks, which run at the same time\n");
}

// "1,084 (950 to 1,220)"; without a range where that is the same number.
std::string LaunchesText(const v1::Kernel& kernel) {
  const std::string low = FormatLaunches(kernel.launches_low());
  const std::string high = FormatLaunches(kernel.launches_high());
  if (std::isinf(kernel.launches_high())) return absl::StrCat(low, " or more");
  const std::string value = FormatLaunches(kernel.launches());
  return kernel.launches_high() <= 0 || low == high
             ? value
             : absl::StrCat(value, " (", low, " to ", high, ")");
}

}  // namespace

std::string SeqPointsText(const v1::GetSeqPointsReply& reply) {
  const bool measured =
      std::any_of(reply.seqpoints().begin(), reply.seqpoints().end(),
                  [](const v1::SeqPoint& point) { return point.measured() + point.wanted() > 0; });
  const bool imported = !measured && !reply.message().empty();
  Table table({">LENGTH", ">STANDS FOR", ">SHARE", ">MEAN TIME", ">MEASURED", "BY METRIC SET"});
  double weight = 0;
  for (const v1::SeqPoint& seqpoint : reply.seqpoints()) {
    weight += seqpoint.weight();
    std::string configs;
    for (const v1::ConfigCount& config : seqpoint.configs()) {
      absl::StrAppend(&configs, configs.empty() ? "" : ", ", config.config(), " ",
                      config.measured(), "/", config.wanted());
    }
    table.AddRow(
        {FormatLengths(seqpoint.lengths()), FormatCount(std::llround(seqpoint.weight())),
         FormatShare(seqpoint.share()),
         seqpoint.mean_duration_ns() > 0 ? FormatQuantity(seqpoint.mean_duration_ns(), "ns") : "-",
         measured ? absl::StrCat(seqpoint.measured(), "/", seqpoint.wanted()) : "",
         measured ? configs : ""});
  }
  return absl::StrCat(table.ToString(), "\n", FormatCount(reply.seqpoints_size(), "SeqPoint"),
                      reply.seqpoints_size() == 1 ? " stands for " : " stand for ",
                      FormatCount(std::llround(weight), "iteration"),
                      imported ? "" : "; so far " + FormatCount(reply.iterations(), "iteration"),
                      " of ", FormatCount(reply.unique_lengths(), "length"), "\n",
                      imported           ? Wrap("length:    ", VerdictText(reply.rule(), true))
                      : reply.has_rule() ? RuleText(reply.rule())
                                         : "",
                      Note(reply.message()), LossesLine(reply.losses()));
}

std::string CountersText(const v1::GetCountersReply& reply, const v1::Job& job, int width,
                         bool list_measured) {
  bool whole = false;
  double confidence = 0;
  for (const v1::Counter& counter : reply.counters()) {
    if (!counter.has_projection()) continue;
    whole = counter.projection().has_total();
    confidence = counter.projection().confidence();
  }
  Table table({"METRIC",
               !reply.part().empty() ? ">PART"
               : whole               ? ">WHOLE RUN"
                                     : absl::StrCat(">", absl::AsciiStrToUpper(WhatRanText(job))),
               FormatConfidence(confidence) + " INTERVAL", "", ">PER ITERATION", ">MEASURED",
               "NOTE"});
  for (const v1::Counter& counter : reply.counters()) {
    if (!counter.has_per_iteration()) {
      table.AddRow(
          {counter.metric(), "-", "-", "", "-", "-",
           (counter.has_projection() ? "not known: " : "not measured: ") + counter.message()});
      continue;
    }
    const v1::Projection& projection = counter.projection();
    // A ratio has no total; its interval is that of the value per iteration.
    FormattedEstimate shown =
        counter.ratio()
            ? FormatEstimate(counter.per_iteration(), counter.unit())
            : FormatEstimate(projection.has_total() ? projection.total() : projection.so_far(),
                             counter.unit());
    table.AddRow({counter.metric(), counter.ratio() ? "-" : shown.value, shown.interval,
                  shown.precision, FormatQuantity(counter.per_iteration().value(), counter.unit()),
                  counter.ratio() || counter.derived() ? "derived"
                                                       : FormatCount(counter.measured_iterations()),
                  counter.complete() ? "" : "incomplete: " + counter.message()});
  }
  return absl::StrCat(PartLine(reply.part()), table.ToString(width), "\n", RanksLine(job),
                      list_measured ? MeasuredText(reply) : "", CountersNotes(reply),
                      Note(EndedBeforeText(job)), Note(job.rule().message()),
                      LossesLine(reply.losses()));
}

std::string KernelsText(const v1::GetKernelsReply& reply, const v1::Job& job, int width) {
  const bool whole = reply.horizon_kind() != v1::Horizon::KIND_UNKNOWN;
  Table table({">OF KERNEL TIME",
               !reply.part().empty() ? ">TIME, PART"
               : whole               ? ">TIME, WHOLE RUN"
                       : absl::StrCat(">TIME, ", absl::AsciiStrToUpper(WhatRanText(job))),
               FormatConfidence(reply.confidence()) + " INTERVAL", ">LAUNCHES", "KERNEL"});
  std::string rare;
  for (const v1::Kernel& kernel : reply.kernels()) {
    FormattedEstimate time = FormatEstimate(kernel.duration_ns(), "ns");
    table.AddRow({FormatShare(kernel.share()), time.value, time.interval, LaunchesText(kernel),
                  Demangle(kernel.name())});
    if (0 < kernel.measured_iterations() &&
        kernel.measured_iterations() < reply.measured_iterations()) {
      rare += Wrap(
          "", absl::StrCat(Demangle(kernel.name()), ": seen in ", kernel.measured_iterations(),
                           " of the ", FormatCount(reply.measured_iterations(), "traced iteration"),
                           "; which of the others have it is an estimate"));
    }
  }
  std::string more;
  const bool all = reply.kernels(reply.kernels_size() - 1).name() == kOtherKernels;
  if (!all && reply.kernel_names() > reply.kernels_size()) {
    more = absl::StrCat(FormatCount(reply.kernel_names() - reply.kernels_size()),
                        " more kernels; --all shows them\n");
  }
  return absl::StrCat(PartLine(reply.part()), table.ToString(width), more, "\n", RanksLine(job),
                      FormatCount(reply.measured_iterations(), "iteration"), " traced\n", rare,
                      Note(reply.message()), Note(EndedBeforeText(job)), Note(job.rule().message()),
                      LossesLine(reply.losses()));
}

std::string RooflineText(const v1::GetRooflineReply& reply, int width) {
  Table table({">OF KERNEL TIME", ">LAUNCHES", ">FLOP/BYTE", ">GFLOP/S", ">GB/S", "BOUND BY",
               ">OF ROOF", "NOTE", "KERNEL"});
  for (const v1::RooflineKernel& kernel : reply.kernels()) {
    const auto number = [&](double value) { return kernel.complete() ? FormatRate(value) : "-"; };
    const std::string intensity =
        kernel.has_operations_per_byte() ? number(kernel.operations_per_byte()) : "-";
    const std::string bound = kernel.bound() == v1::BOUND_MEMORY    ? "memory"
                              : kernel.bound() == v1::BOUND_COMPUTE ? "compute"
                              : kernel.bound() == v1::BOUND_LATENCY ? "latency"
                                                                    : "-";
    table.AddRow({FormatShare(kernel.share()), FormatLaunches(kernel.launches()), intensity,
                  number(kernel.operations_per_s() * 1e-9), number(kernel.bytes_per_s() * 1e-9),
                  bound, kernel.has_roof_share() ? FormatShare(kernel.roof_share()) : "-",
                  kernel.message(), Demangle(kernel.name())});
  }
  std::string text = table.ToString(width);
  if (reply.kernel_names() > reply.kernels_size()) {
    absl::StrAppend(&text, FormatCount(reply.kernel_names() - reply.kernels_size()),
                    " more kernels; --all shows them\n");
  }
  std::vector<std::string> lengths, roofs;
  int32_t measured = 0, wanted = 0;
  for (const v1::RooflineLength& length : reply.lengths()) {
    lengths.push_back(FormatLengths(length.lengths()));
    measured += length.measured_iterations();
    wanted += length.wanted_iterations();
  }
  for (const v1::Roof& roof : reply.roofs()) {
    roofs.push_back(
        absl::StrCat(roof.name(), " ", FormatRate(roof.per_s() * 1e-9), " G", roof.unit()));
  }
  absl::StrAppend(&text, "\n", reply.chip(), ", lengths ", absl::StrJoin(lengths, ", "), ": ",
                  measured, " of ", FormatCount(wanted, "iteration"), " measured\n");
  if (!roofs.empty()) absl::StrAppend(&text, "roofs  ", absl::StrJoin(roofs, ", "), "\n");
  if (reply.missing_launches() > 0) {
    absl::StrAppend(&text, "the last ", FormatCount(reply.missing_launches()),
                    " launches of an iteration found no room and are in no figure\n");
  }
  return absl::StrCat(text, Note(reply.message()), LossesLine(reply.losses()));
}

std::string IterationsText(const google::protobuf::RepeatedPtrField<v1::Iteration>& iterations,
                           bool all) {
  Table table({">ITERATION", ">RANK", ">LENGTH", ">TIME", "LEVEL", "MEASURED", "NOTE"});
  const v1::Iteration* before = nullptr;
  for (const v1::Iteration& iteration : iterations) {
    // Between two that were measured there are others.
    const int64_t lost = all && before != nullptr ? iteration.number() - before->number() - 1 : 0;
    before = &iteration;
    std::string note;
    auto add = [&](bool condition, const std::string& word) {
      if (condition) absl::StrAppend(&note, note.empty() ? "" : ", ", word);
    };
    add(iteration.first_occurrence(), "first of its length");
    add(iteration.distorted(), "distorted");
    add(iteration.redone(), "redone");
    add(iteration.concurrent(), "ran at the same time as another process, in no figure");
    add(!iteration.phase().empty(), iteration.phase());
    add(iteration.rest_ns() > 0,
        absl::StrCat("its end is not known: up to ",
                     FormatQuantity(static_cast<double>(iteration.rest_ns()), "ns"), " more"));
    add(lost > 0, absl::StrCat("the records of ", FormatCount(lost), " before it were lost"));
    table.AddRow({FormatCount(iteration.number()), absl::StrCat(iteration.rank()),
                  FormatLengths(iteration.lengths()),
                  iteration.duration_ns() > 0 ? FormatQuantity(iteration.duration_ns(), "ns") : "-",
                  LevelName(iteration.level()), iteration.config(), note});
  }
  return table.ToString();
}

}  // namespace seqpoint::client
