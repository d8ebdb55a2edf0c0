#include "client/text/job_text.h"

#include <algorithm>
#include <cstdint>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/text/format.h"
#include "client/text/notes.h"
#include "client/text/projection_text.h"

namespace seqpoint::client {
namespace {

int64_t IterationsSoFar(const v1::Job& job) {
  // The figures may be a moment older than the job.
  return job.has_time() ? job.time().iterations_so_far() : job.iterations();
}

// The findings of the framework's adapter in the program, of each process that found something
// else.
std::string AdapterText(const v1::Job& job) {
  std::string text;
  std::set<std::string> seen;
  for (const v1::Process& process : job.processes()) {
    for (const v1::Feature& feature : process.features()) {
      const bool operators = feature.name() == "operators";
      if (feature.name() != "framework" && !operators) continue;
      if (feature.state() != v1::FEATURE_STATE_READY) continue;
      if (seen.insert(feature.message()).second) {
        text += Wrap(operators ? "operators: " : "adapter:   ", feature.message());
      }
    }
  }
  return text;
}

// The version of a part that the process does not have is "0".
std::string Version(const std::string& version) { return version == "0" ? "" : version; }

}  // namespace

std::string VerdictText(const v1::Rule& rule, bool imported) {
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
  std::string text =
      Wrap("iteration: ", absl::StrCat("begins at ", rule.boundary(), " (confidence ",
                                       FormatShare(rule.confidence()), ")"));
  text += Wrap("length:    ", absl::StrCat(rule.length().empty() ? "none found" : rule.length(),
                                           "; ", VerdictText(rule)));
  if (!rule.message().empty()) text += Wrap("note:      ", rule.message());
  return text;
}

std::string JobsText(const v1::ListJobsReply& reply, bool all) {
  if (reply.jobs_size() == 0) return "no jobs yet; `seqpoint run -- COMMAND` makes one\n";
  Table table({">ID", "NAME", "RUN", "STATE", "STARTED", ">ITERATIONS", ">LENGTHS", ">SEQPOINTS",
               ">TIME", "", "TAGS"});
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
                  // Nothing is to be measured in an imported job, or without a GPU.
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
    text += Wrap("tags:      ", absl::StrJoin(job.tags(), ", "));
  }
  const std::string iterations = absl::StrCat(FormatCount(IterationsSoFar(job), "iteration"),
                                              " of ", FormatCount(job.unique_lengths(), "length"));
  if (job.imported()) {
    // Neither a log nor a trace says what ran; they hold the iterations that there are.
    text += Wrap("from:      ", job.command());
    absl::StrAppend(&text, "imported:  ", FormatTime(job.end_ns()), "\n", "has:       ", iterations,
                    "\n", Wrap("length:    ", VerdictText(job.rule(), true)));
    if (!job.rule().message().empty()) {
      text += Wrap("note:      ", job.rule().message());
    }
  } else {
    absl::StrAppend(&text, "command:   ", job.command(), "\n",
                    "started:   ", FormatTime(job.start_ns()),
                    job.host().empty() ? "" : " on " + job.host(), "\n");
    if (job.end_ns() != 0) absl::StrAppend(&text, "ended:     ", FormatTime(job.end_ns()), "\n");
    const std::string adapter = AdapterText(job);
    if (job.state() == v1::JOB_STATE_LEARNING && !job.has_rule() && job.iterations() == 0) {
      text +=
          Wrap("so far:    ",
               adapter.empty()
                   ? "not known yet, because it is still learned where an iteration begins"
                   : "not known yet, because it is still learned which of the reported numbers is "
                     "the length: from 12 iterations, or 64 and more where none explains well "
                     "how long they take");
    } else {
      absl::StrAppend(&text, IsOver(job) ? "ran:       " : "so far:    ", iterations, "\n");
    }
    if (job.has_expected_end()) {
      absl::StrAppend(&text, "will end:  ", FormatEnd(job.expected_end()), "\n");
    }
    if (job.has_rule()) text += RuleText(job.rule());
    text += adapter;
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
  text += UnprojectedText(job);
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
    if (job.time_only() != job.error()) {
      text += Wrap("measured:  ", job.time_only());
    }
  } else if (job.has_overhead() && job.iterations() > 0) {
    text +=
        Wrap("measuring: ", absl::StrCat("stops took ", FormatShare(job.overhead().spent_share()),
                                         " of the run's time, of ",
                                         FormatShare(job.overhead().budget_share()), " allowed"));
    std::string spent;
    for (const v1::Spent& of : job.overhead().spent()) {
      absl::StrAppend(&spent, spent.empty() ? "" : "; ", of.activity(), " ",
                      of.estimated() ? "about " : "", FormatQuantity(of.duration_ns(), "ns"),
                      of.count() == 0 ? ""
                                      : absl::StrCat(" (", FormatCount(of.count()),
                                                     of.estimated() ? " calls)" : ")"));
    }
    if (!spent.empty()) text += Wrap("           ", spent);
    if (!job.overhead().message().empty()) {
      text += Wrap("           ", job.overhead().message());
    }
  }
  if (std::string losses = FormatLosses(job.losses()); !losses.empty()) {
    absl::StrAppend(&text, "left out:  ", losses, "\n");
  }
  if (!job.ranks().empty()) text += Wrap("ranks:     ", job.ranks());
  if (!job.error().empty()) text += Wrap("problem:   ", job.error());
  if (job.has_time()) {
    absl::StrAppend(&text, "\n", ProjectionText(job.time(), job));
  } else {
    text += ClockNote(job.clock_kind());
  }
  if (job.processes_size() > 0) {
    Table table(
        {">RANK", ">PID", "HOST", "DEVICE", ">ITERATIONS", "LEVEL", "CUPTI", "DRIVER", "STATE"});
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
        if (feature.message() == job.time_only()) continue;  // said above, of all
        features += Wrap("", FeatureText(process, feature));
      }
    }
    if (!table.empty()) absl::StrAppend(&text, "\n", table.ToString(), features);
  }
  return text;
}

std::string UnprojectedText(const v1::Job& job) {
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
                           "either"));
}

}  // namespace seqpoint::client
