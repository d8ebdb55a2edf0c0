#include "client/text.h"

#include <google/protobuf/util/json_util.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/format.h"

namespace seqpoint::client {
namespace {

constexpr Table::Align kRight = Table::kRight;

std::string Confidence(double confidence) { return absl::StrFormat("%g %%", confidence * 100); }

std::string LossesLine(const v1::Losses& losses) {
  std::string text = FormatLosses(losses);
  return text.empty() ? "" : absl::StrCat("left out: ", text, "\n");
}

std::string VerdictText(const v1::Rule& rule) {
  switch (rule.verdict()) {
    case v1::VERDICT_EXPLAINED:
      return absl::StrCat("explains ", FormatShare(rule.explained_share()),
                          " of the variance of time");
    case v1::VERDICT_NOT_EXPLAINED:
      return absl::StrCat("does not explain time (", FormatShare(rule.explained_share()),
                          " of its variance): iterations are sampled plainly");
    case v1::VERDICT_TIME_HARDLY_VARIES:
      return "time hardly varies: there is next to nothing to explain";
    default:
      return "too few iterations to judge it";
  }
}

std::string RuleText(const v1::Rule& rule) {
  std::string text = absl::StrCat(
      "iteration: begins at ", rule.boundary(), " (confidence ", FormatShare(rule.confidence()),
      ")\n", "length:    ", rule.length().empty() ? "none found" : rule.length(), "; ",
      VerdictText(rule), "\n");
  if (!rule.sentence().empty()) absl::StrAppend(&text, "           ", rule.sentence(), "\n");
  return text;
}

std::string ClockNote(v1::ClockKind kind) {
  return kind == v1::CLOCK_KIND_FOREIGN
             ? "times are of a foreign clock (a software GPU, or another tool's timestamps)\n"
             : "";
}

}  // namespace

std::string ToJson(const google::protobuf::Message& message, bool one_line) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = !one_line;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string json;
  if (!google::protobuf::util::MessageToJsonString(message, &json, options).ok()) {
    return "{}";  // only a message with bytes that are not UTF-8, which no parsed reply has
  }
  while (!json.empty() && json.back() == '\n') json.pop_back();
  return json;
}

std::string JobsText(const v1::ListJobsReply& reply) {
  if (reply.jobs_size() == 0) return "no jobs yet; `seqpoint run -- COMMAND` makes one\n";
  Table table({{"ID", kRight},
               {"NAME"},
               {"RUN"},
               {"STATE"},
               {"STARTED"},
               {"ITERATIONS", kRight},
               {"LENGTHS", kRight},
               {"SEQPOINTS", kRight},
               {"TIME", kRight},
               {""}});
  for (const v1::Job& job : reply.jobs()) {
    bool whole = job.time().has_total();
    FormattedEstimate time = FormatEstimate(whole ? job.time().total() : job.time().so_far(), "ns");
    table.AddRow({job.id(), job.name(), job.run_id(), JobStateName(job.state()),
                  FormatTime(job.start_ns()), FormatCount(job.iterations()),
                  FormatCount(job.unique_lengths()),
                  absl::StrCat(job.seqpoints().measured(), "/", job.seqpoints().seqpoints()),
                  job.has_time() ? time.value : "-",
                  !job.has_time() ? ""
                  : whole         ? "whole run " + time.precision
                                  : "so far"});
  }
  return table.ToString();
}

std::string JobText(const v1::Job& job) {
  std::string text = absl::StrCat(JobTitle(job), ", ", JobStateName(job.state()), "\n");
  absl::StrAppend(&text, "command:   ", job.command(), "\n",
                  "started:   ", FormatTime(job.start_ns()),
                  job.host().empty() ? "" : " on " + job.host(), "\n");
  if (job.end_ns() != 0) absl::StrAppend(&text, "ended:     ", FormatTime(job.end_ns()), "\n");
  absl::StrAppend(&text, "seen:      ", FormatCount(job.iterations()), " iterations, ",
                  FormatCount(job.unique_lengths()), " unique lengths, ",
                  FormatQuantity(job.iterations_duration_ns(), "ns"), "\n");
  if (job.has_rule()) text += RuleText(job.rule());
  const v1::SeqPointsSummary& seqpoints = job.seqpoints();
  absl::StrAppend(&text, "SeqPoints: ", seqpoints.seqpoints(), ", ", seqpoints.measured(),
                  " measured; ", seqpoints.measurements(), " of ", seqpoints.measurements_wanted(),
                  " measurements taken\n");
  for (const v1::PhaseSummary& phase : job.phases()) {
    absl::StrAppend(&text, "apart:     ", FormatCount(phase.iterations()),
                    phase.iterations() == 1 ? " iteration of " : " iterations of ", phase.name(),
                    ", ", FormatQuantity(phase.duration_ns(), "ns"), "\n");
  }
  if (job.has_horizon() && job.horizon().kind() != v1::Horizon::KIND_UNKNOWN) {
    absl::StrAppend(&text, "horizon:   ",
                    job.time().iterations_total() > 0
                        ? FormatCount(job.time().iterations_total()) + " iterations"
                        : "",
                    job.horizon().source().empty() ? "" : " from " + job.horizon().source(), "\n");
  }
  if (job.has_overhead()) {
    absl::StrAppend(&text, "overhead:  ", FormatShare(job.overhead().spent_share()),
                    " of the run's time, of ", FormatShare(job.overhead().budget_share()),
                    " allowed\n");
    if (!job.overhead().sentence().empty()) {
      absl::StrAppend(&text, "           ", job.overhead().sentence(), "\n");
    }
  }
  if (std::string losses = FormatLosses(job.losses()); !losses.empty()) {
    absl::StrAppend(&text, "left out:  ", losses, "\n");
  }
  if (!job.trouble().empty()) absl::StrAppend(&text, "trouble:   ", job.trouble(), "\n");
  text += ClockNote(job.clock_kind());
  if (job.has_time()) absl::StrAppend(&text, "\n", ProjectionText(job.time(), ""));
  if (job.processes_size() > 0) {
    Table table({{"RANK", kRight},
                 {"PID", kRight},
                 {"HOST"},
                 {"DEVICE"},
                 {"LEVEL"},
                 {"CUPTI"},
                 {"DRIVER"},
                 {"STATE"}});
    std::string features;
    for (const v1::Process& process : job.processes()) {
      table.AddRow({absl::StrCat(process.rank()), absl::StrCat(process.pid()), process.host(),
                    process.device(), LevelName(process.level()), process.cupti_version(),
                    process.driver_version(),
                    process.end_ns() == 0 ? "alive"
                    : process.lost()      ? "lost"
                                          : "ended"});
      for (const v1::Feature& feature : process.features()) {
        if (feature.state() != v1::FEATURE_STATE_FAILED &&
            feature.state() != v1::FEATURE_STATE_IGNORED) {
          continue;
        }
        absl::StrAppend(&features, "rank ", process.rank(), ": ", feature.name(), " ",
                        FeatureStateName(feature.state()), ": ", feature.sentence(),
                        feature.code() != 0 ? absl::StrCat(" (code ", feature.code(), ")") : "",
                        "\n");
      }
    }
    absl::StrAppend(&text, "\n", table.ToString(), features);
  }
  return text;
}

std::string SeqPointsText(const v1::GetSeqPointsReply& reply) {
  if (reply.seqpoints_size() == 0) {
    return absl::StrCat("no SeqPoints yet: ", FormatCount(reply.iterations()),
                        " iterations seen\n");
  }
  Table table({{"LENGTH", kRight},
               {"STANDS FOR", kRight},
               {"SHARE", kRight},
               {"MEAN TIME", kRight},
               {"MEASURED", kRight},
               {"CONFIGURATIONS"}});
  double weight = 0;
  for (const v1::SeqPoint& seqpoint : reply.seqpoints()) {
    weight += seqpoint.weight();
    std::string configs;
    for (const v1::ConfigCount& config : seqpoint.configs()) {
      absl::StrAppend(&configs, configs.empty() ? "" : ", ", config.config(), " ",
                      config.measured(), "/", config.wanted());
    }
    table.AddRow(
        {FormatLengths(seqpoint.lengths()), absl::StrFormat("%.1f", seqpoint.weight()),
         FormatShare(seqpoint.share()),
         seqpoint.mean_duration_ns() > 0 ? FormatQuantity(seqpoint.mean_duration_ns(), "ns") : "-",
         absl::StrCat(seqpoint.measured(), "/", seqpoint.wanted()), configs});
  }
  return absl::StrCat(table.ToString(), "\n", reply.seqpoints_size(), " SeqPoints stand for ",
                      FormatCount(static_cast<int64_t>(weight + 0.5)), " iterations; ",
                      FormatCount(reply.iterations()), " iterations of ",
                      FormatCount(reply.unique_lengths()), " lengths seen so far\n",
                      reply.has_rule() ? RuleText(reply.rule()) : "", LossesLine(reply.losses()));
}

std::string ProjectionText(const v1::Projection& projection, const std::string& indent) {
  Table table({{projection.metric().empty() ? "time" : projection.metric()},
               {"VALUE", kRight},
               {Confidence(projection.confidence()) + " INTERVAL"},
               {""}});
  auto add = [&](const std::string& name, const v1::Estimate& estimate) {
    FormattedEstimate text = FormatEstimate(estimate, projection.unit());
    table.AddRow({name, text.value, text.interval, text.precision});
  };
  if (projection.has_total()) {
    add(projection.iterations_total() > 0
            ? absl::StrCat("whole run (", FormatCount(projection.iterations_total()),
                           " iterations)")
            : "whole run",
        projection.total());
  }
  add(absl::StrCat("so far (", FormatCount(projection.iterations_so_far()), " iterations)"),
      projection.so_far());
  if (projection.remaining().value() > 0) add("remaining", projection.remaining());
  add("per 1,000 iterations", projection.per_1000_iterations());
  std::string text = table.ToString();
  if (!projection.has_total()) {
    text +=
        "whole run: unknown; say how long it is with --iterations N or --lengths FILE "
        "--epochs E\n";
  }
  if (!projection.basis().empty()) absl::StrAppend(&text, "basis: ", projection.basis(), "\n");
  text += ClockNote(projection.clock_kind());
  std::string indented;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = text.find('\n', begin) + 1;
    absl::StrAppend(&indented, indent, text.substr(begin, end - begin));
    begin = end;
  }
  return indented;
}

std::string ProjectText(const v1::ProjectReply& reply) {
  return ProjectionText(reply.projection(), "") + LossesLine(reply.losses());
}

std::string CountersText(const v1::GetCountersReply& reply, int width) {
  if (reply.counters_size() == 0) return "no counters were measured; `seqpoint doctor` says why\n";
  bool whole = reply.counters(0).projection().has_total();
  double confidence = reply.counters(0).projection().confidence();
  Table table({{"METRIC"},
               {whole ? "WHOLE RUN" : "SO FAR", kRight},
               {Confidence(confidence) + " INTERVAL"},
               {""},
               {"PER ITERATION", kRight},
               {"MEASURED", kRight},
               {"NOTE"}});
  for (const v1::Counter& counter : reply.counters()) {
    const v1::Projection& projection = counter.projection();
    FormattedEstimate total = FormatEstimate(
        projection.has_total() ? projection.total() : projection.so_far(), counter.unit());
    std::string per_iteration = FormatQuantity(counter.per_iteration().value(), counter.unit());
    table.AddRow({counter.metric(), counter.ratio() ? "-" : total.value,
                  counter.ratio() ? FormatEstimate(counter.per_iteration(), counter.unit()).interval
                                  : total.interval,
                  counter.ratio() ? "" : total.precision, per_iteration,
                  absl::StrCat(counter.measured_iterations()),
                  counter.complete() ? "" : absl::StrCat("incomplete: ", counter.sentence())});
  }
  return absl::StrCat(table.ToString(width), "\n", FormatCount(reply.measured_iterations()),
                      " iterations measured\n", LossesLine(reply.losses()));
}

std::string KernelsText(const v1::GetKernelsReply& reply, int width) {
  if (reply.kernels_size() == 0) return "no iteration was traced yet\n";
  bool so_far = reply.horizon_kind() == v1::Horizon::KIND_UNKNOWN;
  Table table({{"SHARE", kRight},
               {so_far ? "TIME SO FAR" : "TIME, WHOLE RUN", kRight},
               {Confidence(reply.confidence()) + " INTERVAL"},
               {"LAUNCHES", kRight},
               {"KERNEL"}});
  for (const v1::Kernel& kernel : reply.kernels()) {
    FormattedEstimate time = FormatEstimate(kernel.duration_ns(), "ns");
    table.AddRow({FormatShare(kernel.share()), time.value, time.interval,
                  FormatQuantity(kernel.launches(), "1"), Demangle(kernel.name())});
  }
  std::string more;
  if (reply.kernel_names() > reply.kernels_size()) {
    more = absl::StrCat(reply.kernel_names() - reply.kernels_size(),
                        " more kernels; --all shows them\n");
  }
  return absl::StrCat(table.ToString(width), more, "\n", FormatCount(reply.measured_iterations()),
                      " iterations traced\n", LossesLine(reply.losses()));
}

std::string IterationsText(const google::protobuf::RepeatedPtrField<v1::Iteration>& iterations) {
  Table table({{"ITERATION", kRight},
               {"RANK", kRight},
               {"LENGTH", kRight},
               {"TIME", kRight},
               {"LEVEL"},
               {"MEASURED"},
               {"NOTE"}});
  for (const v1::Iteration& iteration : iterations) {
    std::string note;
    auto add = [&](bool condition, const std::string& word) {
      if (condition) absl::StrAppend(&note, note.empty() ? "" : ", ", word);
    };
    add(iteration.first_occurrence(), "first of its length");
    add(iteration.distorted(), "distorted");
    add(iteration.redone(), "redone");
    add(!iteration.phase().empty(), iteration.phase());
    table.AddRow({FormatCount(iteration.number()), absl::StrCat(iteration.rank()),
                  FormatLengths(iteration.lengths()),
                  iteration.duration_ns() > 0 ? FormatQuantity(iteration.duration_ns(), "ns") : "-",
                  LevelName(iteration.level()), iteration.config(), note});
  }
  return table.ToString();
}

std::string DaemonText(const v1::GetDaemonReply& reply) {
  std::string text =
      absl::StrCat("seqpointd ", reply.version(), ", process ", reply.pid(), " on ", reply.host(),
                   ", since ", FormatTime(reply.start_ns()),
                   reply.private_daemon() ? ", private" : "", "\n", "store  ", reply.store_path(),
                   ", ", FormatQuantity(reply.store_bytes(), "B"), ", ", reply.jobs(), " jobs\n");
  if (!reply.trouble().empty()) absl::StrAppend(&text, "trouble: ", reply.trouble(), "\n");
  return text;
}

}  // namespace seqpoint::client
