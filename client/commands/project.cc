// `seqpoint project JOB`, and `seqpoint project --playlist FILE --measured FILE`.
#include <stdio.h>

#include "client/commands/commands.h"
#include "client/commands/figures.h"
#include "client/commands/options.h"
#include "client/commands/playlist.h"
#include "client/text/help.h"
#include "client/text/projection_text.h"
#include "proto/status_macros.h"

namespace seqpoint::client {
namespace {

struct ProjectOptions {
  std::string metric;
  FigureOptions figures;
  std::string playlist;
  MeasuredOptions measured;
};

// The time that another machine took for the iterations of a playlist.
absl::StatusOr<int> ProjectPlaylist(const Context& context, const ProjectOptions& options) {
  const FigureOptions& figures = options.figures;
  if (!figures.job.empty()) return context.UsageError("give JOB or --playlist FILE, not both");
  if (options.playlist.empty()) {
    return context.UsageError("--measured FILE needs --playlist FILE");
  }
  if (options.measured.path.empty()) {
    return context.UsageError("--playlist FILE needs --measured FILE");
  }
  if (!options.metric.empty() || figures.horizon.given() || figures.horizon.epochs > 1 ||
      figures.part.given()) {
    return context.UsageError(
        "--playlist goes with neither --metric nor how long the run is, nor with a part of it");
  }
  SEQPOINT_ASSIGN_OR_RETURN(v1::ProjectPlaylistRequest request, ReadPlaylist(options.playlist));
  SEQPOINT_ASSIGN_OR_RETURN(std::string notes, ReadMeasured(options.measured, &request));
  if (!notes.empty()) fprintf(stderr, "%s\n", Printable(notes).c_str());
  request.set_confidence(figures.confidence);
  return context.Ask(&v1::Profiler::Stub::ProjectPlaylist, request, PlaylistProjectionText);
}

absl::StatusOr<int> Project(const Context& context, ProjectOptions& options) {
  if (!options.playlist.empty() || !options.measured.path.empty()) {
    return ProjectPlaylist(context, options);
  }
  if (!options.measured.time_column.empty() || !options.measured.time_unit.empty()) {
    return context.UsageError("--time and --time-unit are of --measured FILE");
  }
  if (options.figures.job.empty()) {
    return context.UsageError("JOB is missing, or --playlist FILE");
  }
  v1::ProjectRequest request;
  request.set_metric(options.metric);
  return AskFigures(context, options.figures, &v1::Profiler::Stub::Project, request, ProjectText);
}

}  // namespace

void AddProject(CLI::App* app, Context* context) {
  auto [command, options] = AddCommand<ProjectOptions>(
      app, context, "project",
      "What the whole run costs, with an interval: without the stops for measuring.", &Project);
  command->footer(kProjectHelp);
  AddJob(command, &options->figures.job);
  AddValue(command, "--metric METRIC", &options->metric,
           "a counter of `seqpoint counters`; default: time", Name());
  options->figures.AddTo(command);
  options->figures.part.AddTo(command);
  const OptionGroup group(command, "The run on another machine (without JOB)");
  AddValue(command, "--playlist FILE", &options->playlist,
           "a file of `seqpoint playlist`; needs --measured");
  AddValue(command, "--measured FILE", &options->measured.path,
           "CSV (or .gz) with a header: a row is the time of one iteration there; its "
           "columns are length (and length_2), or iteration, and a time");
  AddValue(command, "--time NAME", &options->measured.time_column,
           "column with the times; default: the one whose name ends in _ns, _us, _ms or _s",
           Name());
  AddChoice(command, "--time-unit", &options->measured.time_unit, {"ns", "us", "ms", "s"},
            "unit of the times; default: the ending of the column's name");
}

}  // namespace seqpoint::client
