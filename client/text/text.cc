#include "client/text/text.h"

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/text/format.h"

namespace seqpoint::client {
namespace {

constexpr Table::Align kRight = Table::kRight;

constexpr const char* kOtherKernels = "(others)";  // the daemon's name for many in one

int64_t IterationsSoFar(const v1::Job& job) {
  // The figures may be a moment older than the job.
  return job.has_time() ? job.time().iterations_so_far() : job.iterations();
}

std::string VerdictText(const v1::Rule& rule, bool imported = false) {
  switch (rule.verdict()) {
    case v1::VERDICT_EXPLAINED:
      return absl::StrCat("explains ", FormatShare(rule.explained_share()),
                          " of the variance of time");
    case v1::VERDICT_NOT_EXPLAINED:
      return absl::StrCat("does not explain time (", FormatShare(rule.explained_share()),
                          " of its variance)", imported ? "" : ": iterations are sampled plainly");
    case v1::VERDICT_TIME_HARDLY_VARIES:
      return "time hardly varies: there is next to nothing to explain";
    default:
      return "too few iterations of which length and time are known to judge it";
  }
}

std::string RuleText(const v1::Rule& rule) {
  std::string text = Wrap("iteration: ",
                          absl::StrCat("begins at ", rule.boundary(), " (confidence ",
                                       FormatShare(rule.confidence()), ")"),
                          kTextColumns);
  text += Wrap(
      "length:    ",
      absl::StrCat(rule.length().empty() ? "none found" : rule.length(), "; ", VerdictText(rule)),
      kTextColumns);
  if (!rule.sentence().empty()) text += Wrap("note:      ", rule.sentence(), kTextColumns);
  return text;
}

// The findings of the framework's adapter in the program, of each process that found something
// else.
std::string ToldText(const v1::Job& job) {
  std::string text;
  std::set<std::string> told;
  for (const v1::Process& process : job.processes()) {
    for (const v1::Feature& feature : process.features()) {
      const bool operators = feature.name() == "operators";
      if (feature.name() != "framework" && !operators) continue;
      if (feature.state() != v1::FEATURE_STATE_READY) continue;
      if (told.insert(feature.sentence()).second) {
        text += Wrap(operators ? "operators: " : "told by:   ", feature.sentence(), kTextColumns);
      }
    }
  }
  return text;
}

// A whole number, though a projection is none: what was seen was launched at least once.
std::string FormatLaunches(double launches) {
  if (launches <= 0) return "0";
  const double whole = std::max(std::round(launches), 1.0);
  return whole < 1e6 ? FormatCount(std::llround(whole)) : FormatQuantity(whole, "1");
}

// Of a part that the process does not have it is "0".
std::string Version(const std::string& version) { return version == "0" ? "" : version; }

// "0.1609", "47.14", "24,660".
std::string FormatRate(double value) {
  if (value < 1000) return absl::StrFormat("%.4g", value);
  return FormatCount(std::llround(value));
}

}  // namespace

std::string FormatConfidence(double confidence) {
  return absl::StrFormat("%g %%", confidence * 100);
}

std::string LossesLine(const v1::Losses& losses) {
  std::string text = FormatLosses(losses);
  return text.empty() ? "" : absl::StrCat("left out: ", text, "\n");
}

std::string UncountedNote(const v1::Losses& losses) {
  return losses.uncounted_processes() == 0
             ? ""
             : Note("not all of the job was read: there may have been more iterations");
}

std::string ClockNote(v1::ClockKind kind) {
  return kind == v1::CLOCK_KIND_FOREIGN
             ? "times are not of this machine's clock (a software GPU's, or another tool's)\n"
             : "";
}

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

std::string FieldsJson(const std::map<std::string, std::string>& fields) {
  google::protobuf::Struct object;
  for (const auto& [name, value] : fields) {
    (*object.mutable_fields())[name].set_string_value(value);
  }
  return ToJson(object, /*one_line=*/false);
}

std::string ErrorJson(const absl::Status& status) {
  google::protobuf::Struct object;
  auto* error = (*object.mutable_fields())["error"].mutable_struct_value()->mutable_fields();
  (*error)["code"].set_string_value(absl::StatusCodeToString(status.code()));
  (*error)["message"].set_string_value(std::string(status.message()));
  return ToJson(object, /*one_line=*/false);
}

std::string JobsText(const v1::ListJobsReply& reply, bool all) {
  if (reply.jobs_size() == 0) return "no jobs yet; `seqpoint run -- COMMAND` makes one\n";
  const bool tagged = std::any_of(reply.jobs().begin(), reply.jobs().end(),
                                  [](const v1::Job& job) { return job.tags_size() > 0; });
  Table table({{"ID", kRight},
               {"NAME"},
               {"RUN"},
               {"STATE"},
               {"STARTED"},
               {"ITERATIONS", kRight},
               {"LENGTHS", kRight},
               {"SEQPOINTS", kRight},
               {"TIME", kRight},
               {""},
               {tagged ? "TAGS" : ""}});
  int empty = 0;
  for (const v1::Job& job : reply.jobs()) {
    if (!all && job.unused()) {
      ++empty;
      continue;
    }
    bool whole = job.time().has_total();
    bool early = EndedBefore(job) > 0;
    bool unread = job.losses().uncounted_processes() > 0;
    bool known = whole || job.time().has_so_far();
    FormattedEstimate time =
        FormatEstimate(whole && !early ? job.time().total() : job.time().so_far(), "ns");
    table.AddRow({job.id(), job.name(), job.run_id(), JobEndText(job), FormatTime(job.start_ns()),
                  FormatCount(job.iterations()), FormatCount(job.unique_lengths()),
                  // Of an imported job, and without a GPU, none is to be measured.
                  job.imported() || !job.time_only().empty()
                      ? "-"
                      : absl::StrCat(FormatCount(job.seqpoints().measured()), "/",
                                     FormatCount(job.seqpoints().seqpoints())),
                  !job.has_time() ? "-"
                  : known         ? time.value
                                  : "not known",
                  !job.has_time() || !known ? ""
                  : early                   ? "ended early"
                  : whole && unread
                      ? absl::StrCat("whole run ", time.precision, "; not read completely")
                  : whole       ? "whole run " + time.precision
                  : unread      ? "or more: not read completely"
                  : IsOver(job) ? "until its end"
                                : "so far",
                  absl::StrJoin(job.tags(), ", ")});
  }
  std::string text = table.empty() ? "" : table.ToString();
  if (empty > 0) {
    absl::StrAppend(&text, FormatCount(empty, "command"), " that did not train ",
                    empty == 1 ? "is" : "are", " left out; --all shows ",
                    empty == 1 ? "it" : "them", "\n");
  }
  return text;
}

std::string JobText(const v1::Job& job) {
  std::string early = EndedBeforeText(job);
  std::string text =
      absl::StrCat(JobTitle(job), ", ", JobEndText(job), early.empty() ? "" : ": ", early, "\n");
  if (job.tags_size() > 0) {
    text += Wrap("tags:      ", absl::StrJoin(job.tags(), ", "), kTextColumns);
  }
  const std::string iterations = absl::StrCat(FormatCount(IterationsSoFar(job), "iteration"),
                                              " of ", FormatCount(job.unique_lengths(), "length"));
  if (job.imported()) {
    // Neither a log nor a trace says what ran; they hold the iterations that there are.
    text += Wrap("from:      ", job.command(), kTextColumns);
    absl::StrAppend(&text, "imported:  ", FormatTime(job.end_ns()), "\n", "has:       ", iterations,
                    "\n", Wrap("length:    ", VerdictText(job.rule(), true), kTextColumns));
    if (!job.rule().sentence().empty()) {
      text += Wrap("note:      ", job.rule().sentence(), kTextColumns);
    }
  } else {
    absl::StrAppend(&text, "command:   ", job.command(), "\n",
                    "started:   ", FormatTime(job.start_ns()),
                    job.host().empty() ? "" : " on " + job.host(), "\n");
    if (job.end_ns() != 0) absl::StrAppend(&text, "ended:     ", FormatTime(job.end_ns()), "\n");
    const std::string told = ToldText(job);
    if (job.state() == v1::JOB_STATE_LEARNING && !job.has_rule() && job.iterations() == 0) {
      text += Wrap("so far:    ",
                   told.empty()
                       ? "not known yet, because it is still learned where an iteration begins"
                       : "not known yet, because it is still learned which of the told numbers is "
                         "the length: from 12 iterations, or 64 and more where none explains well "
                         "how long they take",
                   kTextColumns);
    } else {
      absl::StrAppend(&text, "so far:    ", iterations, "\n");
    }
    if (job.has_expected_end()) {
      absl::StrAppend(&text, "will end:  ", FormatEnd(job.expected_end()), "\n");
    }
    if (job.has_rule()) text += RuleText(job.rule());
    text += told;
  }
  const v1::SeqPointsSummary& seqpoints = job.seqpoints();
  if (seqpoints.seqpoints() > 0 && job.time_only().empty()) {
    absl::StrAppend(&text, "SeqPoints: ", FormatCount(seqpoints.seqpoints()));
    if (seqpoints.measurements_wanted() > 0) {
      absl::StrAppend(&text, ", ", FormatCount(seqpoints.measured()), " measured; ",
                      FormatCount(seqpoints.measurements()), " of ",
                      FormatCount(seqpoints.measurements_wanted()), " measurements taken");
    }
    text += "\n";
  }
  text += ApartText(job);
  if (!job.imported() && job.horizon().kind() != v1::Horizon::KIND_UNKNOWN) {
    absl::StrAppend(&text, "horizon:   ",
                    job.horizon().iterations() > 0
                        ? FormatCount(job.horizon().iterations()) + " iterations"
                        : "not known",
                    job.horizon().source().empty()   ? ""
                    : job.horizon().iterations() > 0 ? " from "
                                                     : ", from ",
                    job.horizon().source(), "\n");
  }
  if (!job.time_only().empty()) {
    if (job.time_only() != job.trouble()) {
      text += Wrap("measured:  ", job.time_only(), kTextColumns);
    }
  } else if (job.has_overhead() && job.iterations() > 0) {
    text += Wrap("measuring: ",
                 absl::StrCat("stops took ", FormatShare(job.overhead().spent_share()),
                              " of the run's time, of ", FormatShare(job.overhead().budget_share()),
                              " allowed"),
                 kTextColumns);
    std::string spent;
    for (const v1::Spent& of : job.overhead().spent()) {
      absl::StrAppend(&spent, spent.empty() ? "" : "; ", of.what(), " ",
                      of.estimated() ? "about " : "", FormatQuantity(of.duration_ns(), "ns"),
                      of.count() == 0 ? ""
                                      : absl::StrCat(" (", FormatCount(of.count()),
                                                     of.estimated() ? " calls)" : ")"));
    }
    if (!spent.empty()) text += Wrap("           ", spent, kTextColumns);
    if (!job.overhead().sentence().empty()) {
      text += Wrap("           ", job.overhead().sentence(), kTextColumns);
    }
  }
  if (std::string losses = FormatLosses(job.losses()); !losses.empty()) {
    absl::StrAppend(&text, "left out:  ", losses, "\n");
  }
  if (!job.trouble().empty()) text += Wrap("trouble:   ", job.trouble(), kTextColumns);
  if (job.has_time()) {
    absl::StrAppend(&text, "\n", ProjectionText(job.time(), job));
  } else {
    text += ClockNote(job.clock_kind());
  }
  if (job.processes_size() > 0) {
    Table table({{"RANK", kRight},
                 {"PID", kRight},
                 {"HOST"},
                 {"DEVICE"},
                 {"ITERATIONS", kRight},
                 {"LEVEL"},
                 {"CUPTI"},
                 {"DRIVER"},
                 {"STATE"}});
    std::string features;
    for (const v1::Process& process : job.processes()) {
      if (process.library_version().empty() && process.pid() == 0) continue;  // of a log
      if (process.stood_down_duration_ns() > 0) {
        absl::StrAppend(&features, "rank ", process.rank(),
                        ": CUPTI was left to other profilers for ",
                        FormatQuantity(process.stood_down_duration_ns(), "ns"), "\n");
      }
      table.AddRow({absl::StrCat(process.rank()), absl::StrCat(process.pid()), process.host(),
                    process.device(), FormatCount(process.iterations()), LevelName(process.level()),
                    Version(process.cupti_version()), Version(process.driver_version()),
                    process.end_ns() == 0                        ? "alive"
                    : process.losses().uncounted_processes() > 0 ? "not read completely"
                    : !process.lost()                            ? "ended"
                    : job.state() == v1::JOB_STATE_ENDED || job.state() == v1::JOB_STATE_FAILED
                        ? "vanished"
                        : "interrupted"});
      for (const v1::Feature& feature : process.features()) {
        if (feature.state() != v1::FEATURE_STATE_FAILED &&
            feature.state() != v1::FEATURE_STATE_IGNORED) {
          continue;
        }
        if (feature.sentence() == job.time_only()) continue;  // said above, of all
        features += Wrap("", FeatureText(process, feature), kTextColumns);
      }
    }
    if (!table.empty()) absl::StrAppend(&text, "\n", table.ToString(), features);
  }
  return text;
}

std::string SeqPointsText(const v1::GetSeqPointsReply& reply) {
  const bool imported = !reply.sentence().empty();
  Table table({{"LENGTH", kRight},
               {"STANDS FOR", kRight},
               {"SHARE", kRight},
               {"MEAN TIME", kRight},
               {"MEASURED", kRight},
               {"BY CONFIGURATION"}});
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
         seqpoint.measured() + seqpoint.wanted() > 0
             ? absl::StrCat(seqpoint.measured(), "/", seqpoint.wanted())
             : "",
         configs});
  }
  return absl::StrCat(table.ToString(), "\n", FormatCount(reply.seqpoints_size(), "SeqPoint"),
                      reply.seqpoints_size() == 1 ? " stands for " : " stand for ",
                      FormatCount(std::llround(weight), "iteration"),
                      imported ? "" : "; so far " + FormatCount(reply.iterations(), "iteration"),
                      " of ", FormatCount(reply.unique_lengths(), "length"), "\n",
                      imported ? Wrap("length:    ", VerdictText(reply.rule(), true), kTextColumns)
                      : reply.has_rule() ? RuleText(reply.rule())
                                         : "",
                      Note(reply.sentence()), LossesLine(reply.losses()));
}

std::string ProjectionText(const v1::Projection& projection, const v1::Job& job,
                           const std::string& part) {
  const bool over = IsOver(job);
  const bool another =
      !part.empty() || (projection.has_total() && projection.iterations_so_far() == 0);
  const bool early = EndedBefore(job) > 0;
  Table table({{projection.metric().empty() ? "time" : projection.metric()},
               {"VALUE", kRight},
               {FormatConfidence(projection.confidence()) + " INTERVAL"},
               {""}});
  const bool unread = job.losses().uncounted_processes() > 0;
  auto add = [&](const std::string& name, int64_t iterations, const v1::Estimate& estimate,
                 bool known = true) {
    FormattedEstimate text = {.value = "not known"};
    if (known) text = FormatEstimate(estimate, projection.unit());
    table.AddRow({iterations > 0
                      ? absl::StrCat(name, " (", FormatCount(iterations, "iteration"), ")")
                      : name,
                  text.value, text.interval, text.precision});
  };
  if (projection.has_total()) {
    add(!part.empty() ? part
        : another     ? "another run"
        : early       ? "whole run, had it gone on"
                      : "whole run",
        projection.iterations_total(), projection.total());
  }
  // Of a run that went to its end it would be the same once more.
  if (!another && (!over || early || unread || !projection.has_total())) {
    add(unread ? "what was read"
        : over ? "until its end"
               : "so far",
        projection.iterations_so_far(), projection.so_far(), projection.has_so_far());
  }
  if (!over && projection.remaining().value() > 0) add("remaining", 0, projection.remaining());
  add("per 1,000 iterations", 0, projection.per_1000_iterations(),
      projection.has_per_1000_iterations());
  std::string text = table.ToString();
  // Past its horizon its length was said, and the basis says that it was wrong.
  if (projection.iterations_total() == 0 && !over &&
      job.horizon().kind() == v1::Horizon::KIND_UNKNOWN) {
    text +=
        "whole run: unknown; say how long it is with --iterations N or --lengths FILE "
        "--epochs E\n";
  }
  if (!projection.basis().empty()) text += Wrap("basis: ", projection.basis(), kTextColumns);
  return text + (projection.unit() == "ns" ? ClockNote(projection.clock_kind()) : "");
}

std::string Note(const std::string& text) {
  return text.empty() ? "" : Wrap("note: ", text, kTextColumns);
}

std::string ApartText(const v1::Job& job) {
  if (job.phases_size() == 0) return "";
  std::set<int32_t> ranks;
  for (const v1::Process& process : job.processes()) ranks.insert(process.rank());
  const bool several = ranks.size() > 1;
  // Phases that are apart may be most of a run (rollouts of reinforcement learning, a long
  // evaluation).
  int64_t seen_ns = job.iterations_duration_ns();
  for (const v1::PhaseSummary& phase : job.phases()) seen_ns += phase.duration_ns();
  const auto share = [&](const v1::PhaseSummary& phase) {
    constexpr double kWorthSaying = 0.01;
    const double its = static_cast<double>(phase.duration_ns()) / static_cast<double>(seen_ns);
    return job.iterations_duration_ns() > 0 && its >= kWorthSaying && !several
               ? absl::StrCat(" (", FormatShare(its), " of the time seen)")
               : "";
  };
  const std::string phases =
      absl::StrJoin(job.phases(), ", ", [&](std::string* out, const v1::PhaseSummary& phase) {
        absl::StrAppend(
            out, phase.name() == "evaluation" ? "evaluation or rollouts" : phase.name(), " ",
            phase.duration_ns() > 0
                ? FormatQuantity(static_cast<double>(phase.duration_ns()), "ns") + share(phase)
                : absl::StrCat("of ", FormatCount(phase.iterations()),
                               phase.iterations() == 1 ? " batch" : " batches",
                               ", whose time is not known"));
      });
  return Wrap("apart:     ",
              absl::StrCat(phases,
                           several ? absl::StrCat(" of ", ranks.size(),
                                                  " ranks together; in no figure of its own rank "
                                                  "(where others wait for it, it is in theirs)")
                                   : "; in no figure",
                           ". What comes before the first iteration and after the last is in none, "
                           "either"),
              kTextColumns);
}

std::string ProjectText(const v1::ProjectReply& reply, const v1::Job& job) {
  const bool ends = job.has_expected_end() && reply.projection().metric() == "time";
  return absl::StrCat(ProjectionText(reply.projection(), job, reply.part()),
                      ends ? absl::StrCat("will end: ", FormatEnd(job.expected_end()), "\n") : "",
                      Note(job.rule().sentence()), LossesLine(reply.losses()));
}

std::string NothingIn(const v1::GetSeqPointsReply& reply) {
  if (reply.seqpoints_size() > 0) return "";
  return absl::StrCat("no SeqPoints yet: ", FormatCount(reply.iterations(), "iteration"),
                      " so far; ask again later");
}

std::string NothingIn(const v1::GetCountersReply& reply) {
  std::string why;
  for (const v1::Counter& counter : reply.counters()) {
    if (counter.has_per_iteration()) return "";
    if (why.empty()) why = counter.sentence();
  }
  if (why.empty()) why = reply.sentence();
  return absl::StrCat("no counter was measured", why.empty() ? "" : ": ", why);
}

std::string NothingIn(const v1::GetKernelsReply& reply) {
  return reply.kernels_size() > 0 ? "" : "no iteration was traced";
}

std::string NothingIn(const v1::GetRooflineReply& reply) {
  return reply.kernels_size() > 0 ? "" : "no kernel was measured by itself";
}

std::string MeasuredText(const v1::GetCountersReply& reply) {
  Table table({{"ITERATION", kRight},
               {"RANK", kRight},
               {"LENGTH", kRight},
               {"SET"},
               {"TIME", kRight},
               {"USUALLY", kRight},
               {"SLOWER", kRight},
               {"NOTE"}});
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
  return text + "\n" + Note(reply.sentence());
}

std::string PartLine(const std::string& part) {
  return part.empty() ? "" : absl::StrCat("of ", part, "\n");
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
  Table table({{"METRIC"},
               {!reply.part().empty() ? "PART"
                : whole               ? "WHOLE RUN"
                                      : "SO FAR",
                kRight},
               {FormatConfidence(confidence) + " INTERVAL"},
               {""},
               {"PER ITERATION", kRight},
               {"MEASURED", kRight},
               {"NOTE"}});
  for (const v1::Counter& counter : reply.counters()) {
    if (!counter.has_per_iteration()) {
      table.AddRow(
          {counter.metric(), "-", "-", "", "-", "-",
           (counter.has_projection() ? "not known: " : "not measured: ") + counter.sentence()});
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
                  counter.complete() ? "" : "incomplete: " + counter.sentence()});
  }
  return absl::StrCat(PartLine(reply.part()), table.ToString(width), "\n",
                      list_measured ? MeasuredText(reply) : "", CountersNotes(reply),
                      Note(EndedBeforeText(job)), Note(job.rule().sentence()),
                      LossesLine(reply.losses()));
}

// "1,084 (950 to 1,220)"; without a range where that is the same number.
std::string LaunchesText(const v1::Kernel& kernel) {
  const std::string low = FormatLaunches(kernel.launches_low());
  const std::string high = FormatLaunches(kernel.launches_high());
  const std::string value = FormatLaunches(kernel.launches());
  return kernel.launches_high() <= 0 || low == high
             ? value
             : absl::StrCat(value, " (", low, " to ", high, ")");
}

std::string KernelsText(const v1::GetKernelsReply& reply, const v1::Job& job, int width) {
  bool so_far = reply.horizon_kind() == v1::Horizon::KIND_UNKNOWN;
  Table table({{"OF KERNEL TIME", kRight},
               {!reply.part().empty() ? "TIME, PART"
                : so_far              ? "TIME SO FAR"
                                      : "TIME, WHOLE RUN",
                kRight},
               {FormatConfidence(reply.confidence()) + " INTERVAL"},
               {"LAUNCHES", kRight},
               {"KERNEL"}});
  std::string rare;
  for (const v1::Kernel& kernel : reply.kernels()) {
    FormattedEstimate time = FormatEstimate(kernel.duration_ns(), "ns");
    table.AddRow({FormatShare(kernel.share()), time.value, time.interval, LaunchesText(kernel),
                  Demangle(kernel.name())});
    if (0 < kernel.measured_iterations() &&
        kernel.measured_iterations() < reply.measured_iterations()) {
      rare += Wrap(
          "",
          absl::StrCat(Demangle(kernel.name()), ": seen in ", kernel.measured_iterations(),
                       " of the ", FormatCount(reply.measured_iterations(), "traced iteration"),
                       "; which of the others have it is an estimate"),
          kTextColumns);
    }
  }
  std::string more;
  const bool all = reply.kernels(reply.kernels_size() - 1).name() == kOtherKernels;
  if (!all && reply.kernel_names() > reply.kernels_size()) {
    more = absl::StrCat(FormatCount(reply.kernel_names() - reply.kernels_size()),
                        " more kernels; --all shows them\n");
  }
  return absl::StrCat(PartLine(reply.part()), table.ToString(width), more, "\n",
                      FormatCount(reply.measured_iterations(), "iteration"), " traced\n", rare,
                      Note(EndedBeforeText(job)), Note(job.rule().sentence()),
                      LossesLine(reply.losses()));
}

std::string RooflineText(const v1::GetRooflineReply& reply, int width) {
  Table table({{"OF KERNEL TIME", kRight},
               {"LAUNCHES", kRight},
               {"FLOP/BYTE", kRight},
               {"GFLOP/S", kRight},
               {"GB/S", kRight},
               {"BOUND BY"},
               {"OF ROOF", kRight},
               {"NOTE"},
               {"KERNEL"}});
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
                  kernel.sentence(), Demangle(kernel.name())});
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
  return absl::StrCat(text, Note(reply.sentence()), LossesLine(reply.losses()));
}

std::string IterationsText(const google::protobuf::RepeatedPtrField<v1::Iteration>& iterations,
                           bool all) {
  Table table({{"ITERATION", kRight},
               {"RANK", kRight},
               {"LENGTH", kRight},
               {"TIME", kRight},
               {"LEVEL"},
               {"MEASURED"},
               {"NOTE"}});
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
    add(iteration.beside(), "ran beside another process, in no figure");
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

std::string DaemonText(const v1::GetDaemonReply& reply) {
  std::string text = absl::StrCat(
      "seqpointd ", reply.version(), ", process ", reply.pid(), " on ", reply.host(), ", since ",
      FormatTime(reply.start_ns()), reply.private_daemon() ? ", private" : "", "\n", "store  ",
      reply.store_path(), ", ", FormatQuantity(reply.store_bytes(), "B"), ", ",
      FormatCount(reply.jobs(), "job"), "\n");
  if (!reply.trouble().empty()) absl::StrAppend(&text, "trouble: ", reply.trouble(), "\n");
  return text;
}

}  // namespace seqpoint::client
