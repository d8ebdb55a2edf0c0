#include "client/place/recordings.h"

#include <errno.h>
#include <string.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/files/csv.h"
#include "client/files/whole_file.h"
#include "client/text/plain_text.h"
#include "daemon/base/json_string.h"
#include "daemon/placement/judge.h"
#include "daemon/traces/execution_trace.h"
#include "daemon/traces/gunzip.h"
#include "daemon/traces/trace_reader.h"
#include "proto/status_macros.h"

namespace seqpoint::client {
namespace {

using placement::MeasuredRun;
using placement::Placement;
using placement::RecordingFacts;
using placement::WeightedProblem;

constexpr char kGzip[] = "\x1f\x8b";
constexpr size_t kPieceBytes = size_t{1} << 18;

std::string Ms(double ms) { return absl::StrFormat("%.6g", ms); }

absl::StatusOr<traces::ExecutionTrace> ReadGraph(const std::string& path) {
  SEQPOINT_ASSIGN_OR_RETURN(std::string text, ReadWhole(path));
  if (absl::StartsWith(text, kGzip)) {
    traces::Gunzip gunzip;
    std::string unpacked;
    gunzip.Add(text, [&](std::string_view piece) { unpacked += piece; });
    if (!gunzip.complete()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": the gzip file is cut or damaged; copy it again"));
    }
    text = std::move(unpacked);
  }
  return traces::ReadExecutionTrace(text, path);
}

absl::StatusOr<trace::Trace> ReadTimes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return absl::InvalidArgumentError(absl::StrCat("cannot read ", path, ": ", strerror(errno)));
  }
  traces::TraceReader reader({.name = path, .operators = true});
  std::vector<char> piece(kPieceBytes);
  while (file.read(piece.data(), static_cast<std::streamsize>(piece.size())) || file.gcount() > 0) {
    const std::string_view bytes(piece.data(), static_cast<size_t>(file.gcount()));
    SEQPOINT_RETURN_IF_ERROR(reader.Add(bytes));
  }
  return reader.Finish();
}

// The column of the lengths: the only one, or the first whose name has "len" in it.
absl::StatusOr<size_t> LengthColumn(const CsvReader& csv, const std::string& path) {
  const std::vector<std::string>& header = csv.header();
  for (size_t i = 0; i < header.size(); ++i) {
    if (header.size() == 1 || absl::StrContains(absl::AsciiStrToLower(header[i]), "len")) return i;
  }
  return absl::InvalidArgumentError(
      absl::StrCat(path, ":1: no column has \"len\" in its name: ", absl::StrJoin(header, ", ")));
}

absl::Status Weigh(const std::string& path, const std::vector<TraceArgument>& arguments,
                   std::vector<placement::Recording>* recordings) {
  SEQPOINT_ASSIGN_OR_RETURN(CsvReader csv, CsvReader::Open(path));
  SEQPOINT_ASSIGN_OR_RETURN(const size_t column, LengthColumn(csv, path));
  for (placement::Recording& recording : *recordings) recording.weight = 0;
  while (csv.Next()) {
    double length = 0;
    const bool fits = csv.Fits(column);
    if (!fits || !ParseCsvNumber(csv.fields()[column], &length) || !(length > 0)) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, ":", csv.number(), ": ",
          fits ? Quote(std::string(csv.fields()[column])) : "the row", " is no length above 0"));
    }
    size_t nearest = 0;
    for (size_t r = 1; r < arguments.size(); ++r) {
      const auto away = [&](size_t i) {
        return std::abs(static_cast<double>(*arguments[i].length) - length);
      };
      if (away(r) < away(nearest)) nearest = r;
    }
    ++(*recordings)[nearest].weight;
  }
  SEQPOINT_RETURN_IF_ERROR(csv.status());
  for (size_t r = 0; r < arguments.size(); ++r) {
    if ((*recordings)[r].weight > 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(path, ": no length of the run is near ",
                                                   *arguments[r].length, "; leave out ",
                                                   arguments[r].graph));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TraceArgument> ParseTraceArgument(const std::string& argument) {
  TraceArgument trace;
  std::string files = argument;
  if (const size_t at = files.rfind('@'); at != files.npos) {
    int64_t length = 0;
    if (absl::SimpleAtoi(files.substr(at + 1), &length) && length > 0) {
      trace.length = length;
      files.resize(at);
    }
  }
  const std::vector<std::string> parts = absl::StrSplit(files, ',');
  if (parts.size() != 2 || parts[0].empty() || parts[1].empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--trace ", Quote(argument),
        ": two files are needed, ET,TIMES or ET,TIMES@LENGTH: an execution trace and the times of "
        "torch.profiler"));
  }
  trace.graph = parts[0];
  trace.times = parts[1];
  return trace;
}

absl::StatusOr<MeasuredRun> ReadRecordings(const RecordingsAsked& asked) {
  std::vector<placement::Recording> recordings;
  for (const TraceArgument& trace : asked.traces) {
    if (trace.name.empty() && !trace.length &&
        (!asked.lengths.empty() || asked.traces.size() > 1)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--trace ", trace.graph, ",", trace.times,
                       " has no length; with several recordings, or --lengths, add @LENGTH"));
    }
    placement::Recording& recording = recordings.emplace_back();
    recording.name = !trace.name.empty() ? trace.name
                     : trace.length      ? absl::StrCat("length ", *trace.length)
                                         : trace.graph;
    recording.weight = trace.weight.value_or(1);
    SEQPOINT_ASSIGN_OR_RETURN(recording.graph, ReadGraph(trace.graph));
    SEQPOINT_ASSIGN_OR_RETURN(recording.times, ReadTimes(trace.times));
  }
  if (!asked.lengths.empty()) {
    SEQPOINT_RETURN_IF_ERROR(Weigh(asked.lengths, asked.traces, &recordings));
  }
  SEQPOINT_ASSIGN_OR_RETURN(MeasuredRun run, placement::MakeMeasuredRun(recordings, asked.devices));
  if (asked.memory_said) return run;
  double whole = 0;
  for (const placement::Operator& op : placement::AverageProblem(run.problems).operators) {
    whole += op.memory_bytes;
  }
  // Whole bytes, so that the order of a sum makes no difference.
  for (WeightedProblem& weighted : run.problems) {
    weighted.problem.memory_bytes = std::ceil(whole) + 1;
  }
  return run;
}

std::string UnusualRecordings(const std::vector<TraceArgument>& traces, const MeasuredRun& run) {
  // A tenth: iterations of one length on a CPU differ by so much anyhow.
  constexpr double kUsual = 0.1;
  std::vector<std::string> unusual;
  for (size_t i = 0; i < traces.size() && i < run.recordings.size(); ++i) {
    if (!traces[i].usual_ms || run.gpu_times) continue;
    const double change = run.recordings[i].iteration / *traces[i].usual_ms - 1;
    if (std::abs(change) <= kUsual) continue;
    unusual.push_back(absl::StrFormat("%s: %+.0f %%", run.recordings[i].name, 100 * change));
  }
  if (unusual.empty()) return "";
  return absl::StrCat(
      "each length was recorded once, and took more or less time than its other "
      "iterations in the run (",
      absl::StrJoin(unusual, ", "),
      "), which last to the next forward pass; the placement is best for the recorded "
      "times");
}

double PipelineTime(const MeasuredRun& run, const Placement& placement, Pipeline pipeline) {
  const placement::WholeRunTime time = placement::TimeOfWholeRun(run.problems, placement);
  return pipeline == Pipeline::kLockStep ? time.lock_step : time.decoupled;
}

std::string RecordingsText(const MeasuredRun& run, const Placement& placement,
                           const std::string& more) {
  Table table({"RECORDING", ">SHARE OF RUN", ">CALLS", ">ITERATION", ">LOADS", ">OPTIMIZER",
               run.gpu_times ? ">NO OPERATOR" : ">BETWEEN", ">SLOWEST DEVICE"});
  double weights = 0;
  for (const WeightedProblem& problem : run.problems) weights += problem.weight;
  int without_time = 0;
  for (size_t r = 0; r < run.problems.size(); ++r) {
    const RecordingFacts& facts = run.recordings[r];
    const placement::Judgement judgement = placement::Judge(run.problems[r].problem, placement);
    const double rest = run.gpu_times ? facts.without_operator : facts.between;
    table.AddRow({facts.name, FormatShare(run.problems[r].weight / weights),
                  FormatCount(facts.operators), Ms(facts.iteration), Ms(facts.loads),
                  Ms(facts.update), Ms(rest), Ms(judgement.max_load)});
    without_time += facts.without_time;
  }
  const placement::WholeRunTime time = placement::TimeOfWholeRun(run.problems, placement);
  std::string text = absl::StrCat("\n", table.ToString());
  if (run.problems.size() > 1) {
    absl::StrAppend(&text, Wrap("", absl::StrCat("Over the run: ", Ms(time.decoupled),
                                                 " ms per micro-batch decoupled, ",
                                                 Ms(time.lock_step), " ms in lock-step.")));
  }
  const auto note = [&](const std::string& message) {
    absl::StrAppend(&text, Wrap("note: ", message));
  };
  note(run.gpu_times
           ? "times are those of the GPU work that operators launched"
           : "times are those of the recorded CPU, with the time between operators; every device "
             "is taken to be like it");
  note(absl::StrFormat("an output moves at %.4g GB/s%s", run.bytes_per_second / 1e9,
                       run.bandwidth_measured ? ", as the recorded copies did"
                       : run.bytes_per_second == placement::kDefaultBytesPerSecond
                           ? ", which is assumed (PCI Express 3.0 x16); --bandwidth says otherwise"
                           : ", as was asked for"));
  if (run.folded) {
    note(
        "the lengths have different operators: those that use the same parameters, and those "
        "between the same parameters, are one");
  }
  if (!more.empty()) note(more);
  if (without_time > 0) {
    note(absl::StrCat(FormatCount(without_time, "call"),
                      " of the execution traces are not in the times, and take 0"));
  }
  return text;
}

std::string RecordingsJson(const MeasuredRun& run, const Placement& placement) {
  std::vector<std::string> recordings, operators;
  for (size_t r = 0; r < run.problems.size(); ++r) {
    const RecordingFacts& facts = run.recordings[r];
    const placement::Judgement judgement = placement::Judge(run.problems[r].problem, placement);
    recordings.push_back(absl::StrCat(
        "{\"name\": ", JsonString(Printable(facts.name)),
        ", \"weight\": ", JsonNumber(run.problems[r].weight), ", \"calls\": ", facts.operators,
        ", \"without_time\": ", facts.without_time,
        ", \"iteration\": ", JsonNumber(facts.iteration), ", \"loads\": ", JsonNumber(facts.loads),
        ", \"optimizer\": ", JsonNumber(facts.update),
        ", \"between\": ", JsonNumber(facts.between)));
    absl::StrAppend(&recordings.back(),
                    ", \"without_operator\": ", JsonNumber(facts.without_operator),
                    ", \"joined_by_id\": ", facts.joined_by_id ? "true" : "false",
                    ", \"max_load\": ", JsonNumber(judgement.max_load), "}");
  }
  const placement::Problem& problem = run.problems[0].problem;
  for (size_t i = 0; i < problem.operators.size(); ++i) {
    operators.push_back(
        absl::StrCat("{\"id\": ", problem.operators[i].id,
                     ", \"name\": ", JsonString(Printable(problem.operators[i].name)),
                     ", \"trace_ids\": [", absl::StrJoin(run.trace_ids[i], ", "), "]}"));
  }
  const placement::WholeRunTime time = placement::TimeOfWholeRun(run.problems, placement);
  return absl::StrCat("\"recordings\": [", absl::StrJoin(recordings, ", "),
                      "], \"pipelines\": {\"decoupled\": ", JsonNumber(time.decoupled),
                      ", \"lockstep\": ", JsonNumber(time.lock_step), "}, \"times_of\": \"",
                      run.gpu_times ? "gpu" : "cpu",
                      "\", \"bytes_per_second\": ", JsonNumber(run.bytes_per_second),
                      ", \"bandwidth_measured\": ", run.bandwidth_measured ? "true" : "false",
                      ", \"folded\": ", run.folded ? "true" : "false", ", \"operators\": [",
                      absl::StrJoin(operators, ", "), "]");
}

}  // namespace seqpoint::client
