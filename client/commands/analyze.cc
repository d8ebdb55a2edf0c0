#include "client/commands/analyze.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/commands/commands.h"
#include "client/commands/log_options.h"
#include "client/commands/playlist.h"
#include "client/commands/send_log.h"
#include "client/files/whole_file.h"
#include "client/text/format.h"
#include "client/text/help.h"
#include "client/text/notes.h"
#include "proto/status_macros.h"

namespace seqpoint::client {
namespace {

// The file's unit, where its column has none.
std::string UnitOf(const LogFile& log) { return log.time_unit_ns > 0 ? "ns" : ""; }

std::string Precision(const v1::Estimate& e) {
  // The upper half: the lower one ends at zero. What is left by rounding is nothing.
  return FormatReach(e.high() / e.value() - 1);
}

// "1/31 of the iterations".
std::string ShareOfIterations(int64_t measurements, int64_t iterations) {
  if (measurements >= iterations) return "all iterations";
  const int64_t times = iterations / std::max<int64_t>(1, measurements);
  return absl::StrCat(
      times > 1 ? absl::StrCat("1/", FormatCount(times))
                : FormatShare(static_cast<double>(measurements) / static_cast<double>(iterations)),
      " of the iterations");
}

std::string SpeedupText(const v1::Estimate& e) {
  const double reach = (e.high() - e.low()) / 2;
  // As many as tell the interval's ends apart; an exact one has none.
  const int digits =
      reach > 0 ? static_cast<int>(std::clamp(1 - std::floor(std::log10(reach)), 2.0, 6.0)) : 4;
  return absl::StrFormat("%.*f x (%.*f to %.*f)", digits, e.value(), digits, e.low(), digits,
                         e.high());
}

// One way in which the run's cost can be known, and how well.
std::string PointsText(const v1::AnalyzeReply& reply, const std::string& unit) {
  Table table({">LENGTH", ">MEASURE", ">ITERATIONS", ">SHARE", ">TIME", ">NOISE"});
  for (const v1::AnalyzedPoint& p : reply.points()) {
    table.AddRow({FormatLengths(p.lengths()), absl::StrCat(p.measurements(), "x"),
                  absl::StrFormat("%.1f", p.weight()),
                  FormatShare(p.weight() / static_cast<double>(reply.iterations())),
                  FormatQuantity(p.expected(), unit), FormatShare(p.noise() / p.expected())});
  }
  return table.ToString();
}

}  // namespace

std::string AnalysisText(const Analysis& analysis, const AnalyzeOptions& options) {
  const v1::AnalyzeReply& reply = analysis.reply;
  const std::string unit = UnitOf(analysis.log);
  std::string text = absl::StrCat(
      options.log.path, ": ", FormatCount(reply.iterations(), "iteration"), " of ",
      FormatCount(reply.unique_lengths(), "length"), " (",
      absl::StrJoin(analysis.log.key_columns, " x "), "), ", FormatQuantity(reply.total(), unit),
      unit.empty() ? absl::StrCat(" ", analysis.log.time_column) : "", " in all\n");
  if (reply.start_up_iterations() > 0) {
    absl::StrAppend(
        &text, "start-up:   ", FormatCount(reply.start_up_iterations(), "first iteration"),
        " left out, which took ", FormatQuantity(reply.start_up_duration(), unit), "\n");
  }
  if (reply.verdict() == v1::VERDICT_EXPLAINED) {
    absl::StrAppend(&text, "length:     explains ", FormatShare(reply.explained_share()),
                    " of the variance of time\n");
  }
  for (const std::string& message : reply.messages()) {
    text += Wrap("note:       ", message);
  }
  if (reply.points_size() > 0) {
    int measurements = 0;
    for (const v1::AnalyzedPoint& p : reply.points()) measurements += p.measurements();
    absl::StrAppend(
        &text, "\n", FormatCount(reply.points_size(), "SeqPoint"), ", ",
        FormatCount(measurements, "measurement"), ": the total to ", Precision(reply.projection()),
        " (", absl::StrFormat("%g", 100 * reply.confidence()), " % interval",
        options.points.target_error > 0
            ? absl::StrFormat(", asked for +-%g %%", 100 * options.points.target_error)
            : "",
        "), ", ShareOfIterations(measurements, reply.iterations()), "\n", PointsText(reply, unit));
    // All iterations, drawn at random, are the log itself: nothing to compare with.
    if (measurements < reply.iterations()) {
      absl::StrAppend(&text, "as many iterations at random: ", Precision(reply.random()),
                      "; the paper's rule would choose ",
                      FormatCount(reply.paper_points_size(), "length"), "\n");
    }
  }
  if (reply.has_horizon_projection()) {
    const FormattedEstimate e = FormatEstimate(reply.horizon_projection(), unit);
    absl::StrAppend(&text, "\n",
                    options.horizon.source().empty() ? "another run" : options.horizon.source(),
                    ": ", FormatCount(reply.horizon_iterations(), "iteration"), ", ", e.value,
                    e.precision.empty() ? absl::StrCat(", ", e.interval)
                                        : absl::StrCat(" (", e.interval, ", ", e.precision, ")"),
                    "\n");
  }
  if (reply.has_speedup_all()) {
    absl::StrAppend(&text, "\n", options.against, ": ",
                    FormatCount(reply.against_iterations(), "iteration"), ", ",
                    FormatQuantity(reply.against_total(), unit), "\n");
    text += "speedup:    ";
    if (reply.has_speedup()) {
      absl::StrAppend(&text, SpeedupText(reply.speedup()),
                      " from the SeqPoints alone\n            ");
    }
    absl::StrAppend(&text, SpeedupText(reply.speedup_all()),
                    " from all iterations, at equal lengths\n            ",
                    absl::StrFormat("%.4g x", reply.speedup_means()),
                    " is the quotient of the mean times, whatever their lengths\n");
    if (reply.against_unknown_lengths() > 0) {
      absl::StrAppend(&text, "            ", FormatCount(reply.against_unknown_lengths(), "length"),
                      " not in the other log: taken to change as the nearest does\n");
    }
  }
  return text;
}

namespace {

// The daemon's answer; `notes` are lines for standard error: rows left out, and the like.
absl::StatusOr<Analysis> Analyze(const Context& context, const AnalyzeOptions& options,
                                 std::string* notes) {
  SEQPOINT_ASSIGN_OR_RETURN(LogFile log, ReadLogFile(options.log));
  *notes = ReadingNotes(options.log.path, log);
  if (!options.playlist.empty()) {
    SEQPOINT_RETURN_IF_ERROR(CheckTimeUnit(options.log.path, log));
  }
  LogFile against;
  if (!options.against.empty()) {
    LogOptions same = options.log;
    same.path = options.against;
    same.key_columns = log.key_columns;
    same.time_column = log.time_column;
    same.length_step = log.length_step;
    SEQPOINT_ASSIGN_OR_RETURN(against, ReadLogFile(same));
    absl::StrAppend(notes, ReadingNotes(options.against, against));
  }
  v1::AnalyzeRequest question;
  question.set_points(options.points.points);
  question.set_target_error(options.points.target_error);
  question.set_confidence(options.points.confidence);
  question.set_playlist(!options.playlist.empty());
  *question.mutable_horizon() = options.horizon;
  for (v1::LengthCount& entry : *question.mutable_horizon()->mutable_histogram()) {
    for (int d = 0; d < entry.lengths_size(); ++d) {
      entry.set_lengths(
          d, std::llround(static_cast<double>(entry.lengths(d)) / log.length_step[std::min(d, 1)]));
    }
  }
  SEQPOINT_ASSIGN_OR_RETURN(v1::AnalyzeReply reply, SendLog(context, &v1::Profiler::Stub::Analyze,
                                                            std::move(question), log, &against));
  return Analysis{std::move(reply), std::move(log)};
}

absl::StatusOr<int> AnalyzeLog(const Context& context, AnalyzeOptions& options) {
  if (options.run.data_parallel > 0) {
    return context.UsageError(
        "--data-parallel: a log's iterations are those of one rank, or of all together; import it "
        "and ask `seqpoint project JOB --lengths FILE --data-parallel N`");
  }
  SEQPOINT_ASSIGN_OR_RETURN(options.horizon, options.run.Read());
  const bool to_output = options.playlist == "-";
  std::optional<WholeFile> file;
  if (!options.playlist.empty() && !to_output) {
    SEQPOINT_ASSIGN_OR_RETURN(WholeFile opened, WholeFile::Open(options.playlist));
    file.emplace(std::move(opened));
  }
  std::string notes;
  SEQPOINT_ASSIGN_OR_RETURN(Analysis analysis, Analyze(context, options, &notes));
  fprintf(stderr, "%s", Printable(notes).c_str());
  v1::GetPlaylistReply& playlist = *analysis.reply.mutable_playlist();
  const std::string csv = PlaylistCsv(playlist);
  if (file) {
    SEQPOINT_RETURN_IF_ERROR(file->Write(csv));
    SEQPOINT_RETURN_IF_ERROR(file->Close());
  }
  if (!options.playlist.empty() && !context.json()) {
    MakePrintable(&playlist);
    fprintf(stderr, "%s%s", file ? absl::StrCat(Printable(options.playlist), ": ").c_str() : "",
            PlaylistNotes(playlist).c_str());
  }
  if (to_output && !context.json()) {
    Context::Print(csv);
    return kExitOk;
  }
  if (options.playlist.empty()) analysis.reply.clear_playlist();
  return context.PrintReply(&analysis.reply, [&](const v1::AnalyzeReply&) {
    return Printable(AnalysisText(analysis, options));
  });
}

}  // namespace

void AddAnalyze(CLI::App* app, Context* context) {
  auto [command, options] =
      AddCommand<AnalyzeOptions>(app, context, "analyze",
                                 "Analyze a log of iterations that any tool wrote: which "
                                 "lengths stand for all others, and how well.",
                                 &AnalyzeLog);
  LogOptions* log = &options->log;
  AddValue(command, "LOG FILE", &log->path, "CSV (or .gz) with a header; a row is an iteration")
      ->required();
  AddLogColumns(command, log, "Options");
  options->points.AddTo(command);
  AddValue(command, "--playlist FILE", &options->playlist,
           "write the points to this file, as `seqpoint playlist` does; \"-\": to standard "
           "output, instead of the answer");
  AddValue(command, "--against FILE", &options->against,
           "a log of the same work on another machine, with the same columns; shows the speedup");
  options->run.AddTo(command);
  command->footer(kAnalyzeHelp);
}

}  // namespace seqpoint::client
