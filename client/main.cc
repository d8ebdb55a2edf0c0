// `seqpoint`, the command line. Each command is one question to the daemon; what it prints is made
// in text.cc.
#include <errno.h>
#include <fcntl.h>
#include <grpc/support/log.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <functional>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/commands/analyze.h"
#include "client/commands/compare.h"
#include "client/commands/completion.h"
#include "client/commands/doctor.h"
#include "client/commands/import.h"
#include "client/commands/jobs.h"
#include "client/commands/metrics.h"
#include "client/commands/options.h"
#include "client/commands/part.h"
#include "client/commands/planners.h"
#include "client/commands/playlist.h"
#include "client/commands/run.h"
#include "client/commands/trace_import.h"
#include "client/commands/whatif.h"
#include "client/connection.h"
#include "client/files/lengths.h"
#include "client/files/whole_file.h"
#include "client/text/format.h"
#include "client/text/help.h"
#include "client/text/progress.h"
#include "client/text/text.h"
#include "client/text/whatif_text.h"

namespace seqpoint::client {
namespace {

constexpr int64_t kMaxCount = 1'000'000'000'000'000;
constexpr int64_t kMaxRanks = 1 << 16;
constexpr int64_t kMaxRows = 1'000'000'000;
constexpr int64_t kMaxPoints = 1'000'000;
constexpr const char* kCommands = "Commands";

constexpr const char* kDescription =
    "What a whole training run costs and why, from the few iterations that represent all others.";

// How long the run is: the same options wherever it can be said.
struct HorizonFlags {
  LengthsOptions lengths;
  int32_t data_parallel = 0;
  std::string order = "shuffle";
  int64_t iterations = 0;
  int64_t epochs = 0;  // 0: not said, as 1

  void AddTo(CLI::App* app) {
    const std::string group = "How long the run is";
    auto* file =
        app->add_option("--lengths", lengths.path,
                        "CSV (or .gz) with a header; a row is an iteration of one epoch, or an "
                        "example when --batch is given")
            ->type_name("FILE")
            ->group(group);
    app->add_option("--length-column", lengths.columns,
                    "its length column, or two; default: len_total, else the first two with "
                    "\"len\" in their names, else all of a file with one or two")
        ->delimiter(',')
        ->expected(1, 2)
        ->type_name("NAME[,NAME]")
        ->needs(file)
        ->group(group);
    app->add_option("--epochs", epochs, "how often the data is gone through")
        ->transform(WholeNumber(1, kMaxCount))
        ->type_name("E")
        ->group(group);
    app->add_option("--batch", lengths.batch,
                    "examples in a forward pass (of one rank); with gradient accumulation several "
                    "of them are one iteration")
        ->transform(WholeNumber(1, kMaxCount))
        ->type_name("N")
        ->needs(file)
        ->group(group);
    app->add_option("--data-parallel", data_parallel,
                    "ranks with batches of their own, which share the forward passes out; default: "
                    "all ranks of the run")
        ->transform(WholeNumber(1, kMaxRanks))
        ->type_name("N")
        ->needs(file)
        ->group(group);
    AddChoice(app, "--order", &order, {"shuffle", "bucket", "sorted", "file"},
              "in which examples come: shuffle (default), bucket (sorted within 100 random "
              "batches), sorted, file (as they stand there)")
        ->needs(file)
        ->group(group);
    app->add_option("--pad-to", lengths.pad_to, "lengths are padded to a multiple of N")
        ->transform(WholeNumber(1, kMaxCount))
        ->type_name("N")
        ->needs(file)
        ->group(group);
    app->add_flag("--drop-last", lengths.drop_last, "leave an incomplete last batch out")
        ->needs(file)
        ->group(group);
    app->add_option("--iterations", iterations,
                    "iterations of the run (of one epoch, with --epochs), lengths unknown")
        ->transform(WholeNumber(1, kMaxCount))
        ->type_name("N")
        ->excludes(file)
        ->group(group);
  }

  bool given() const { return iterations > 0 || !lengths.path.empty(); }

  absl::StatusOr<v1::Horizon> Read() {
    lengths.order = order == "bucket"   ? ExampleOrder::kBucket
                    : order == "sorted" ? ExampleOrder::kSorted
                    : order == "file"   ? ExampleOrder::kFile
                                        : ExampleOrder::kShuffle;
    lengths.epochs = std::max<int64_t>(epochs, 1);
    v1::Horizon horizon;
    if (!lengths.path.empty()) {
      absl::StatusOr<v1::Horizon> read = ReadLengths(lengths);
      if (read.ok()) read->set_data_parallel(data_parallel);
      return read;
    }
    if (iterations == 0) {
      if (epochs <= 1) return horizon;
      return absl::InvalidArgumentError("--epochs needs --lengths FILE or --iterations N");
    }
    if (iterations > kMaxCount / lengths.epochs) {
      return absl::InvalidArgumentError(
          absl::StrCat(FormatCount(iterations), " iterations x ", FormatCount(lengths.epochs),
                       " epochs are more than ", FormatCount(kMaxCount), " iterations"));
    }
    horizon.set_kind(v1::Horizon::KIND_ITERATIONS);
    horizon.set_iterations(iterations * lengths.epochs);
    horizon.set_epochs(epochs);
    if (lengths.epochs > 1) {
      horizon.set_source(
          absl::StrCat(FormatCount(lengths.epochs), " epochs of ", FormatCount(iterations)));
    }
    return horizon;
  }
};

class Cli {
 public:
  Cli() : app_(kDescription, "seqpoint") {
    app_.require_subcommand(1);
    app_.formatter(std::make_shared<HelpFormatter>());
    app_.set_help_flag("-h,--help", "print this help");
    app_.set_version_flag("--version", SEQPOINT_VERSION, "print the version");
    app_.add_flag("--json", json_, "print the reply as protobuf JSON");
    app_.add_option("--socket", connect_.socket_path, "the daemon's api.sock")->type_name("PATH");
    app_.add_flag_callback(
        "--no-start", [this] { connect_.start_private = false; },
        "do not start a private daemon when none answers");
    auto* server =
        app_.add_option("--server", connect_.server, "host:port of a daemon elsewhere, over TLS")
            ->type_name("ADDRESS");
    app_.add_option("--ca", connect_.ca_file, "PEM of the authority to trust")
        ->type_name("FILE")
        ->needs(server);
    auto* certificate = app_.add_option("--cert", connect_.certificate_file, "own certificate")
                            ->type_name("FILE")
                            ->needs(server);
    app_.add_option("--key", connect_.key_file, "own key")->type_name("FILE")->needs(certificate);
    AddRun();
    AddJobs();
    AddJobChanges();
    AddWatch();
    AddSeqPoints();
    AddProject();
    AddPlaylist();
    AddMetrics();
    AddCounters();
    AddKernels();
    AddRoofline();
    AddCompare();
    AddIterations();
    AddExport();
    AddAnalyze();
    AddImport();
    AddReplay();
    AddWhatIf();
    AddPlanners();
    AddControl();
    AddDoctor();
    AddCompletion();
    AddVersion();
    app_.footer(kSeqpointHelp);  // last: commands would inherit it
  }

  int Main(std::vector<std::string> arguments) {
    if (arguments.size() > 1 && arguments[0] == "complete" && arguments[1] == "--") {
      arguments.erase(arguments.begin(), arguments.begin() + 2);
      Print(Complete(app_, arguments, [this] { return Jobs(); }));
      return kExitOk;
    }
    // `seqpoint --json place` is `seqpoint place --json`; other options are about a daemon.
    const auto first = std::find_if(arguments.begin(), arguments.end(),
                                    [](const auto& word) { return !absl::StartsWith(word, "-"); });
    if (first != arguments.end() && IsPlanner(*first)) {
      const std::string planner = *first;
      const auto other =
          std::find_if(arguments.begin(), first, [](const auto& word) { return word != "--json"; });
      if (other != first) {
        return Fail(absl::InvalidArgumentError(
            absl::StrCat(*other, " does not belong to seqpoint ", planner)));
      }
      arguments.erase(first);
      return Fail(StartPlanner(planner, arguments));
    }
    if (!arguments.empty() && arguments[0] == "help") {
      arguments.erase(arguments.begin());
      if (!arguments.empty() && IsPlanner(arguments[0])) {
        return Fail(StartPlanner(arguments[0], {"--help"}));
      }
      return Help(arguments);
    }
    // What follows "--" is the command of `run`, whatever it looks like.
    auto separator = std::find(arguments.begin(), arguments.end(), "--");
    if (std::find(arguments.begin(), separator, "run") != separator &&
        separator != arguments.end()) {
      run_.command.assign(separator + 1, arguments.end());
      arguments.erase(separator, arguments.end());
    }
    JoinPercent(&arguments);
    const bool wants_json =
        std::find(arguments.begin(), arguments.end(), "--json") != arguments.end();
    const std::vector<std::string> words = arguments;
    std::reverse(arguments.begin(), arguments.end());  // as CLI11 wants them
    try {
      app_.parse(arguments);
    } catch (const CLI::ParseError& error) {
      if (error.get_exit_code() == 0) return app_.exit(error);  // --help, --version
      json_ = wants_json;
      return FailUsage(UsageSentence(app_, error, !run_.command.empty(), words));
    }
    return command_();
  }

 private:
  int Help(const std::vector<std::string>& words) {
    const CLI::App* command = &app_;
    std::string name = "seqpoint";
    for (const std::string& word : words) {
      if (word == "--json") continue;  // help is text for people
      command = FindCommand(*command, word);
      if (command == nullptr) {
        std::vector<std::string> names;
        for (const CLI::App* known : Commands(app_)) names.push_back(known->get_name());
        return FailUsage(
            absl::StrCat("there is no command ", Quote(word), DidYouMean(word, names)));
      }
      absl::StrAppend(&name, " ", word);
    }
    Print(app_.get_formatter()->make_help(command, name, CLI::AppFormatMode::Normal));
    return kExitOk;
  }

  // The sentence for a person and, where JSON was asked for, the object for a program.
  int Fail(const absl::Status& status) {
    fprintf(stderr, "seqpoint: %s\n", Printable(std::string(status.message())).c_str());
    if (json_) Print(ErrorJson(status) + "\n");
    return ExitCodeFor(status);
  }

  int FailUsage(const std::string& sentence) {
    std::vector<CLI::App*> parsed = app_.get_subcommands();
    std::string command = parsed.empty() ? "" : parsed[0]->get_name() + " ";
    return Fail(
        absl::InvalidArgumentError(absl::StrCat(sentence, "; see seqpoint ", command, "--help")));
  }

  CLI::App* Add(const std::string& name, const std::string& help, std::function<int()> run) {
    CLI::App* command = app_.add_subcommand(name, help);
    command->fallthrough();
    command->group(kCommands);
    command->callback([this, run = std::move(run)] { command_ = run; });
    return command;
  }

  CLI::Option* AddJobName(CLI::App* command) {
    return command->add_option("JOB", job_, "its id, name@run_id or name (the latest run)")
        ->check(Name());
  }

  CLI::App* AddForJob(const std::string& name, const std::string& help, std::function<int()> run) {
    CLI::App* command = Add(name, help, std::move(run));
    AddJobName(command)->required();
    return command;
  }

  absl::StatusOr<std::unique_ptr<Connection>> Connect() { return Connection::Open(connect_); }

  // Asks one question and prints its answer.
  template <typename Request, typename Reply, typename ToText>
  int Ask(grpc::Status (v1::Profiler::Stub::*call)(grpc::ClientContext*, const Request&, Reply*),
          const Request& request, ToText to_text) {
    absl::StatusOr<std::unique_ptr<Connection>> connection = Connect();
    if (!connection.ok()) return Fail(connection.status());
    absl::StatusOr<Reply> reply = (*connection)->Call(call, request);
    if (!reply.ok()) return Fail(reply.status());
    if (std::string why = NothingIn(*reply); !why.empty()) {
      return Fail(absl::FailedPreconditionError(why));
    }
    PrintReply(&*reply, to_text);
    return kExitOk;
  }

  template <typename Reply, typename ToText>
  void PrintReply(Reply* reply, ToText to_text) {
    if (json_) {
      Print(ToJson(*reply, /*one_line=*/false) + "\n");
    } else {
      MakePrintable(reply);
      Print(to_text(*reply));
    }
  }

  static void Print(const std::string& text) { fwrite(text.data(), 1, text.size(), stdout); }
  static int Width() { return TerminalWidth(STDOUT_FILENO); }

  void AddRun() {
    CLI::App* command =
        Add("run",
            "Run a training program and learn what it costs. It keeps terminal, signals and "
            "exit status.",
            [this] { return RunCommand(); });
    command->prefix_command();
    command->add_option("--job", run_.job, "name of the job; default: the program's")
        ->check(Name())
        ->type_name("NAME");
    command
        ->add_option("--run-id", run_.run_id,
                     "ranks and resumed runs with the same id are one job; default: that of "
                     "torchrun or Slurm, else a new one")
        ->check(Name())
        ->type_name("ID");
    command
        ->add_option(
            "--overhead-budget", run_.overhead_budget_share,
            "what the stops for measuring may take, as a share of the run's time; default 1%")
        ->transform(Share())
        ->type_name("SHARE");
    command
        ->add_option("--metrics", run_.metric_sets,
                     "metric sets to collect, which share the measurements; default: utilisation. "
                     "`seqpoint metrics` lists them")
        ->delimiter(',')
        ->check(Name())
        ->type_name("SET[,SET]");
    AddMetricsFile(command);
    AddChoice(command, "--counter-backend", &backend_, {"range", "pm"},
              "range (default): the process' own work, exactly, the GPU waits at both ends of a "
              "measured iteration; pm: samples of the whole GPU, nothing waits");
    command->add_flag("--roofline", run_.roofline,
                      "measure single kernels, too, which run one after the other for it: at most "
                      "4 lengths, once with each configuration (`seqpoint roofline`)");
    command->add_flag("--operators", run_.operators,
                      "PyTorch: record the operators of two iterations of each SeqPoint's length, "
                      "which take several times as long (`seqpoint place JOB`)");
    command->add_flag_callback(
        "--no-progress", [this] { run_.progress = false; }, "no progress line on the terminal");
    command->add_flag("--quiet", run_.quiet, "no summary at the end either");
    horizon_.AddTo(command);
  }

  int RunCommand() {
    // CLI11 leaves here what it does not know, with or without a "--" behind it.
    std::vector<std::string> words = app_.get_subcommand("run")->remaining();
    if (!words.empty() && (absl::StartsWith(words[0], "-") || !run_.command.empty())) {
      return FailUsage(absl::StartsWith(words[0], "-")
                           ? NoSuchOption(*app_.get_subcommand("run"), words[0])
                           : absl::StrCat(Quote(words[0]), " stands before the --"));
    }
    if (run_.command.empty()) run_.command = words;
    if (run_.command.empty()) return FailUsage("there is no command to run");
    if (absl::StrContains(run_.job, "@")) {
      return FailUsage(
          absl::StrCat("--job: ", Quote(run_.job), " contains \"@\", which parts name and run id"));
    }
    horizon_.lengths.show_progress = run_.progress && !run_.quiet;
    absl::StatusOr<v1::Horizon> horizon = horizon_.Read();
    if (!horizon.ok()) return Fail(horizon.status());
    run_.horizon = *std::move(horizon);
    run_.counter_backend = backend_ == "pm"      ? v1::COUNTER_BACKEND_PM
                           : backend_ == "range" ? v1::COUNTER_BACKEND_RANGE
                                                 : v1::COUNTER_BACKEND_UNSPECIFIED;
    std::vector<counters::OwnSet> own_sets;
    if (!metrics_file_.empty()) {
      const auto own = ReadMetricFile(metrics_file_);
      if (!own.ok()) return Fail(own.status());
      own_sets = *own;
      const absl::Status offered =
          CheckOffered(*own, backend_ == "pm" ? counters::Backend::kPm : counters::Backend::kRange,
                       metrics_file_);
      if (!offered.ok()) return Fail(offered);
      for (const counters::OwnSet& set : *own) run_.own_metric_sets.push_back(ToProto(set));
    }
    const absl::Status known = CheckNames(run_.metric_sets, own_sets);
    if (!known.ok()) {
      return Fail(
          absl::InvalidArgumentError(absl::StrCat("--metrics: ", std::string(known.message()))));
    }
    run_.connect = connect_;
    run_.json = json_;
    return Run(run_);
  }

  void AddJobs() {
    CLI::App* command = Add("jobs", "List jobs, or tell everything about one.", [this]() -> int {
      if (!job_.empty()) {
        if (jobs_.narrowed())
          return FailUsage(
              "what narrows the list (--state, --since, --tag, --limit, --live) goes without JOB");
        v1::GetJobRequest request;
        request.set_job(job_);
        return Ask(&v1::Profiler::Stub::GetJob, request,
                   [](const v1::GetJobReply& reply) { return JobText(reply.job()); });
      }
      const absl::StatusOr<v1::ListJobsRequest> request = jobs_.Request(absl::Now());
      if (!request.ok()) return FailUsage(std::string(request.status().message()));
      absl::StatusOr<std::unique_ptr<Connection>> connection = Connect();
      if (!connection.ok()) return Fail(connection.status());
      absl::StatusOr<v1::ListJobsReply> jobs = (*connection)->ListJobs(*request);
      if (!jobs.ok()) return Fail(jobs.status());
      const int left_out = KeepLatest(jobs_, &*jobs);
      PrintReply(&*jobs, [&](const v1::ListJobsReply& reply) {
        return JobListText(reply, left_out, jobs_);
      });
      return kExitOk;
    });
    command->footer(kJobsHelp);
    AddJobName(command);
    jobs_.AddTo(command);
  }

  void AddJobChanges() {
    AddForJob("delete", "Remove a job that is over, with all that is stored of it.", [this] {
      v1::DeleteJobRequest request;
      request.set_job(job_);
      return Ask(&v1::Profiler::Stub::DeleteJob, request, [](const v1::DeleteJobReply& reply) {
        return absl::StrCat(reply.name(), "@", reply.run_id(), " (job ", reply.job_id(),
                            ") is deleted\n");
      });
    });
    AddForJob("rename", "Give a job that is over another name.",
              [this] {
                v1::UpdateJobRequest request;
                request.set_job(job_);
                request.set_name(new_name_);
                return Ask(
                    &v1::Profiler::Stub::UpdateJob, request,
                    [](const v1::UpdateJobReply& reply) { return JobTitle(reply.job()) + "\n"; });
              })
        ->add_option("NAME", new_name_, "the new name")
        ->required()
        ->check(Name());
    tag_.AddTo(AddForJob("tag", "Tag a job, to find it by `seqpoint jobs --tag`.", [this] {
      return Ask(&v1::Profiler::Stub::UpdateJob, tag_.Request(job_),
                 [](const v1::UpdateJobReply& reply) { return UpdatedText(reply.job()); });
    }));
  }

  void AddWatch() {
    AddForJob("watch", "Follow a job until it ends.", [this] { return Watch(); });
  }

  int Watch() {
    absl::StatusOr<std::unique_ptr<Connection>> connection = Connect();
    if (!connection.ok()) return Fail(connection.status());
    v1::WatchJobRequest request;
    request.set_job(job_);
    bool in_place = !json_ && Width() > 0;
    if (!in_place && !json_) request.set_min_interval_ms(1000);
    grpc::ClientContext context;
    auto reader = (*connection)->stub().WatchJob(&context, request);
    v1::WatchJobReply reply;
    while (reader->Read(&reply)) {
      if (!json_) MakePrintable(&reply);
      if (json_) {
        Print(ToJson(reply, /*one_line=*/true) + "\n");
      } else if (in_place) {
        Print("\r\033[K" + ProgressLine(reply.job(), Width() - 1));
      } else {
        Print(ProgressLine(reply.job(), 1'000) + "\n");
      }
      fflush(stdout);
    }
    if (in_place) Print("\r\033[K");
    absl::Status status = Connection::FromGrpc(reader->Finish());
    if (!status.ok()) return Fail(status);
    if (!json_) Print(JobText(reply.job()));
    return kExitOk;
  }

  void AddSeqPoints() {
    AddForJob("seqpoints", "The iterations that represent all others, and their weights.", [this] {
      v1::GetSeqPointsRequest request;
      request.set_job(job_);
      return Ask(&v1::Profiler::Stub::GetSeqPoints, request, SeqPointsText);
    })->footer(kSeqPointsHelp);
  }

  void AddProject() {
    CLI::App* command =
        Add("project",
            "What the whole run costs, with an interval: without the stops for measuring.", [this] {
              if (!playlist_path_.empty() || !measured_times_.path.empty())
                return ProjectPlaylist();
              if (!measured_times_.time_column.empty() || !measured_times_.time_unit.empty()) {
                return FailUsage("--time and --time-unit are of --measured FILE");
              }
              if (job_.empty()) return FailUsage("JOB is missing, or --playlist FILE");
              v1::ProjectRequest request;
              request.set_metric(metric_);
              return AskFigures(&v1::Profiler::Stub::Project, request, ProjectText);
            });
    command->footer(kProjectHelp);
    AddJobName(command);
    command->add_option("--metric", metric_, "a counter of `seqpoint counters`; default: time")
        ->check(Name())
        ->type_name("METRIC");
    AddFigureFlags(command);
    part_.AddTo(command);
    const std::string group = "The run on another machine (without JOB)";
    command
        ->add_option("--playlist", playlist_path_,
                     "what `seqpoint playlist` wrote; needs --measured")
        ->type_name("FILE")
        ->group(group);
    command
        ->add_option("--measured", measured_times_.path,
                     "CSV (or .gz) with a header: a row is the time of one iteration there; its "
                     "columns are length (and length_2), or iteration, and a time")
        ->type_name("FILE")
        ->group(group);
    command
        ->add_option("--time", measured_times_.time_column,
                     "its time column; default: the one whose name ends in _ns, _us, _ms or _s")
        ->check(Name())
        ->type_name("NAME")
        ->group(group);
    AddChoice(command, "--time-unit", &measured_times_.time_unit, {"ns", "us", "ms", "s"},
              "of the times; default: as the column's name ends")
        ->group(group);
  }

  // What another machine took for the iterations of a playlist.
  int ProjectPlaylist() {
    if (!job_.empty()) return FailUsage("give JOB or --playlist FILE, not both");
    if (playlist_path_.empty()) return FailUsage("--measured FILE needs --playlist FILE");
    if (measured_times_.path.empty()) return FailUsage("--playlist FILE needs --measured FILE");
    if (!metric_.empty() || horizon_.given() || horizon_.epochs > 1 || part_.given()) {
      return FailUsage(
          "--playlist goes with neither --metric nor how long the run is, nor with a part of it");
    }
    absl::StatusOr<v1::ProjectPlaylistRequest> request = ReadPlaylist(playlist_path_);
    if (!request.ok()) return Fail(request.status());
    absl::StatusOr<std::string> notes = ReadMeasured(measured_times_, &*request);
    if (!notes.ok()) return Fail(notes.status());
    if (!notes->empty()) fprintf(stderr, "%s\n", Printable(*notes).c_str());
    request->set_confidence(confidence_);
    return Ask(&v1::Profiler::Stub::ProjectPlaylist, *request, PlaylistProjectionText);
  }

  void AddPlaylist() {
    CLI::App* command = AddForJob(
        "playlist", "The iterations that stand for all others, for another machine to run.",
        [this] { return Playlist(); });
    command->footer(kPlaylistHelp);
    AddPoints(command, &points_, &target_error_, &confidence_);
    command->add_option("--output", output_path_, "where to write it; default: standard output")
        ->type_name("FILE");
  }

  // How many measurements.
  static void AddPoints(CLI::App* command, int* points, double* target_error, double* confidence) {
    auto* number =
        command->add_option("--points", *points, "how many iterations to measure; default 16")
            ->transform(WholeNumber(1, kMaxPoints))
            ->type_name("K");
    command
        ->add_option("--target-error", *target_error,
                     "as many measurements as give the total to +-E: 0.5% or 0.005")
        ->transform(Share())
        ->excludes(number)
        ->type_name("E");
    command->add_option("--confidence", *confidence, "of the intervals; default 95%")
        ->transform(Confidence())
        ->type_name("C");
  }

  int Playlist() {
    absl::StatusOr<std::unique_ptr<Connection>> connection = Connect();
    if (!connection.ok()) return Fail(connection.status());
    v1::GetPlaylistRequest request;
    request.set_job(job_);
    request.set_points(points_);
    request.set_target_error(target_error_);
    request.set_confidence(confidence_);
    absl::StatusOr<v1::GetPlaylistReply> reply =
        (*connection)->Call(&v1::Profiler::Stub::GetPlaylist, request);
    if (!reply.ok()) return Fail(reply.status());
    const bool to_file = !output_path_.empty() && output_path_ != "-";
    if (to_file) {
      absl::Status status = WriteWhole(output_path_, PlaylistCsv(*reply));
      if (!status.ok()) return Fail(status);
    }
    if (json_) {
      PrintReply(&*reply, PlaylistCsv);
      return kExitOk;
    }
    if (!to_file) Print(PlaylistCsv(*reply));
    // Not on standard output, which may be the file.
    MakePrintable(&*reply);
    fputs(PlaylistNotes(*reply).c_str(), stderr);
    return kExitOk;
  }

  void AddMetricsFile(CLI::App* command) {
    command->add_option("--metrics-file", metrics_file_, "own metric sets (docs/counters.md)")
        ->check(CLI::ExistingFile)
        ->type_name("FILE");
  }

  void AddMetrics() {
    CLI::App* command = Add(
        "metrics", "List metric sets: what they measure, and in how many passes.", [this]() -> int {
          const auto text =
              DescribeMetrics({.set = set_, .chip = chip_, .file = metrics_file_}, json_);
          if (!text.ok()) return Fail(text.status());
          Print(*text);
          return kExitOk;
        });
    command->footer(kMetricsHelp);
    command->add_option("SET", set_, "only this, with all its metrics")->check(Name());
    command
        ->add_option("--chip", chip_,
                     "of the GPU, as `seqpoint counters JOB` names it; default GH100")
        ->check(Name())
        ->type_name("CHIP");
    AddMetricsFile(command);
  }

  void AddCounters() {
    CLI::App* command =
        AddForJob("counters", "Hardware counters of the whole run, with intervals.", [this] {
          v1::GetCountersRequest request;
          for (const std::string& metric : metrics_) request.add_metrics(metric);
          return AskFigures(&v1::Profiler::Stub::GetCounters, request,
                            [this](const v1::GetCountersReply& reply, const v1::Job& job) {
                              return CountersText(reply, job, Width(), measured_list_);
                            });
        });
    command->footer(kCountersHelp);
    command->add_option("METRIC", metrics_, "only these")->check(Name());
    command->add_flag("--measured", measured_list_,
                      "list the measured iterations, and how much longer each took for it");
    AddFigureFlags(command);
    part_.AddTo(command);
  }

  void AddKernels() {
    CLI::App* command = AddForJob("kernels", "Kernels by their share of kernel time.", [this] {
      v1::GetKernelsRequest request;
      request.set_limit(all_ ? 0 : limit_);
      return AskFigures(&v1::Profiler::Stub::GetKernels, request,
                        [](const v1::GetKernelsReply& reply, const v1::Job& job) {
                          return KernelsText(reply, job, Width());
                        });
    });
    command->footer(kKernelsHelp);
    AddLimit(command);
    AddFigureFlags(command);
    part_.AddTo(command);
  }

  void AddRoofline() {
    CLI::App* command =
        AddForJob("roofline", "Which kernels memory bounds, and which arithmetic.", [this] {
          v1::GetRooflineRequest request;
          request.set_job(job_);
          request.set_limit(all_ ? 0 : limit_);
          return Ask(
              &v1::Profiler::Stub::GetRoofline, request,
              [](const v1::GetRooflineReply& reply) { return RooflineText(reply, Width()); });
        });
    command->footer(kRooflineHelp);
    AddLimit(command);
  }

  void AddCompare() {
    compare_.AddTo(Add("compare", "Why one job took longer than another.", [this] {
      return Ask(&v1::Profiler::Stub::Compare, compare_.Request(),
                 [](const v1::CompareReply& reply) { return CompareText(reply, Width()); });
    }));
  }

  void AddLimit(CLI::App* command) {
    command->add_option("--limit", limit_, "how many rows; default 20")
        ->transform(WholeNumber(1, kMaxRows))
        ->type_name("N");
    command->add_flag("--all", all_, "all rows");
  }

  void AddFigureFlags(CLI::App* command) {
    command
        ->add_option("--confidence", confidence_, "that the interval holds the truth; default 95%")
        ->transform(Confidence())
        ->type_name("C");
    horizon_.AddTo(command);
  }

  template <typename Request, typename Reply, typename ToText>
  int AskFigures(grpc::Status (v1::Profiler::Stub::*call)(grpc::ClientContext*, const Request&,
                                                          Reply*),
                 Request request, ToText to_text) {
    request.set_job(job_);
    request.set_confidence(confidence_);
    absl::StatusOr<v1::Horizon> horizon = horizon_.Read();
    if (!horizon.ok()) return Fail(horizon.status());
    if (horizon_.given() && part_.given()) {
      return FailUsage(
          "--from, --to and --epoch ask about this run, --lengths and --iterations "
          "about another one; give one of the two");
    }
    if (horizon_.given()) *request.mutable_horizon() = *std::move(horizon);
    if constexpr (requires { request.has_part(); }) part_.SetIn(&request);
    absl::StatusOr<std::unique_ptr<Connection>> connection = Connect();
    if (!connection.ok()) return Fail(connection.status());
    absl::StatusOr<Reply> reply = (*connection)->Call(call, request);
    if (!reply.ok()) return Fail(reply.status());
    // What one must know of the job beside its figures.
    v1::GetJobRequest job_request;
    job_request.set_job(reply->job_id());
    absl::StatusOr<v1::GetJobReply> job =
        (*connection)->Call(&v1::Profiler::Stub::GetJob, job_request);
    if (!job.ok()) return Fail(job.status());
    if (std::string why = NothingIn(*reply); !why.empty()) {
      const std::string& reason =
          job->job().trouble().empty() ? job->job().overhead().sentence() : job->job().trouble();
      return Fail(absl::FailedPreconditionError(absl::StrCat(
          why, "; ", reason.empty() ? "`seqpoint doctor` says what stands in the way" : reason)));
    }
    // The notes are of the run as it is, not of another one that was asked about.
    if (horizon_.given() || part_.given()) job->Clear();
    MakePrintable(&*job);
    PrintReply(&*reply, [&](const Reply& shown) { return to_text(shown, job->job()); });
    return kExitOk;
  }

  void AddIterations() {
    CLI::App* command =
        AddForJob("iterations", "The log of iterations.", [this] { return Iterations(); });
    command->footer(kIterationsHelp);
    command->add_flag("--measured", measured_, "only those that were measured");
    command->add_option("--rank", rank_, "of this rank; default: the lowest")
        ->transform(WholeNumber(0, INT32_MAX))
        ->type_name("R");
    AddLimit(command);
    part_.AddTo(command);
  }

  int Iterations() {
    absl::StatusOr<std::unique_ptr<Connection>> connection = Connect();
    if (!connection.ok()) return Fail(connection.status());
    v1::ListIterationsRequest request;
    request.set_job(job_);
    request.set_measured_only(measured_);
    part_.SetIn(&request);
    if (rank_.has_value()) request.set_rank(*rank_);
    v1::ListIterationsReply all;
    int64_t left = all_ ? INT64_MAX : limit_;
    do {
      request.set_page_size(static_cast<int>(std::min<int64_t>(left, 10'000)));
      absl::StatusOr<v1::ListIterationsReply> page =
          (*connection)->Call(&v1::Profiler::Stub::ListIterations, request);
      if (!page.ok()) return Fail(page.status());
      left -= page->iterations_size();
      request.set_page_token(page->next_page_token());
      all.MergeFrom(*page);
    } while (left > 0 && !request.page_token().empty());
    all.set_next_page_token(request.page_token());
    if (all.iterations_size() == 0) {
      absl::StatusOr<std::string> why = WhyNoIterations(connection->get(), all.total());
      return Fail(why.ok() ? absl::FailedPreconditionError(*why) : why.status());
    }
    if (!all.sentence().empty() && !json_) {
      fprintf(stderr, "seqpoint: %s\n", Printable(all.sentence()).c_str());
    }
    PrintReply(&all, [&](const v1::ListIterationsReply& reply) {
      std::string text =
          IterationsText(reply.iterations(), !measured_) + UncountedNote(reply.losses());
      if (reply.next_page_token().empty()) return text;
      return absl::StrCat(text, "\nthere are more", measured_ ? " that were measured" : "", "; of ",
                          FormatCount(reply.total()), " iterations in all; --all shows them, ",
                          "`seqpoint export ", job_, " --csv FILE` writes them\n");
    });
    return kExitOk;
  }

  // A sentence; InvalidArgument when the job has no such rank.
  absl::StatusOr<std::string> WhyNoIterations(Connection* connection, int64_t total) {
    v1::GetJobRequest request;
    request.set_job(job_);
    absl::StatusOr<v1::GetJobReply> reply = connection->Call(&v1::Profiler::Stub::GetJob, request);
    if (!reply.ok()) return reply.status();
    std::set<int> ranks;
    for (const v1::Process& process : reply->job().processes()) ranks.insert(process.rank());
    if (rank_.has_value() && !ranks.empty() && ranks.count(*rank_) == 0) {
      return absl::InvalidArgumentError(absl::StrCat("--rank: job ", Quote(job_), " has no rank ",
                                                     *rank_, "; there are ",
                                                     absl::StrJoin(ranks, ", ")));
    }
    if (measured_ && total > 0) {
      return absl::StrCat("none of ", part_.given() ? "these of " : "", FormatCount(total),
                          " iterations was measured", IsOver(reply->job()) ? "" : " yet");
    }
    if (total > 0) {
      return absl::StrCat("there is none of these iterations", IsOver(reply->job()) ? "" : " yet",
                          ": the ", rank_.has_value() ? "rank" : "run", " has ",
                          FormatCount(total, "iteration"), ", which are counted from 0");
    }
    const std::string& trouble = reply->job().trouble();
    return absl::StrCat("no iteration was found", IsOver(reply->job()) ? "" : " yet",
                        trouble.empty() ? "" : ": ", trouble);
  }

  void AddExport() {
    CLI::App* command = AddForJob("export", "Write a job to a file, in one of two formats.",
                                  [this] { return Export(); });
    command
        ->add_option("--chrome", chrome_path_,
                     "traced iterations as trace events in JSON, for Perfetto, HTA and "
                     "TensorBoard; \"-\": standard output")
        ->type_name("FILE");
    command->add_option("--csv", csv_path_, "one row per iteration; \"-\": standard output")
        ->type_name("FILE");
  }

  int Export() {
    bool csv = !csv_path_.empty();
    if (csv == !chrome_path_.empty()) return FailUsage("give either --chrome FILE or --csv FILE");
    std::string path = csv ? csv_path_ : chrome_path_;
    const absl::StatusOr<int64_t> bytes =
        WriteExport(csv ? v1::ExportRequest::FORMAT_CSV : v1::ExportRequest::FORMAT_CHROME, path);
    if (path == "-") json_ = false;  // standard output is the file
    if (!bytes.ok()) return Fail(bytes.status());
    SayUnread();
    if (path == "-") return kExitOk;
    if (json_) {
      Print(FieldsJson({{"path", path}, {"bytes", absl::StrCat(*bytes)}}) + "\n");
    } else {
      SayWritten(path, *bytes);
    }
    return kExitOk;
  }

  // A file of rows has no place for it.
  void SayUnread() {
    absl::StatusOr<std::unique_ptr<Connection>> connection = Connect();
    if (!connection.ok()) return;
    v1::GetJobRequest request;
    request.set_job(job_);
    const auto reply = (*connection)->Call(&v1::Profiler::Stub::GetJob, request);
    if (reply.ok()) fputs(UncountedNote(reply->job().losses()).c_str(), stderr);
  }

  static void SayWritten(const std::string& path, int64_t bytes) {
    fprintf(stderr, "%s: %s\n", path.c_str(), FormatQuantity(double(bytes), "B").c_str());
  }

  // Returns its bytes.
  absl::StatusOr<int64_t> WriteExport(v1::ExportRequest::Format format, const std::string& path) {
    if (std::error_code error; std::filesystem::is_directory(path, error)) {
      return absl::InvalidArgumentError(
          absl::StrCat("cannot write ", path, ": it is a folder; name a file in it"));
    }
    absl::StatusOr<std::unique_ptr<Connection>> connection = Connect();
    if (!connection.ok()) return connection.status();
    v1::ExportRequest request;
    request.set_job(job_);
    request.set_format(format);
    absl::StatusOr<WholeFile> file = WholeFile::Open(path);
    if (!file.ok()) return file.status();
    grpc::ClientContext context;
    auto reader = (*connection)->stub().Export(&context, request);
    v1::ExportReply reply;
    int64_t bytes = 0;
    while (reader->Read(&reply)) {
      bytes += static_cast<int64_t>(reply.data().size());
      if (absl::Status status = file->Write(reply.data()); !status.ok()) {
        context.TryCancel();
        return status;
      }
    }
    if (absl::Status status = Connection::FromGrpc(reader->Finish()); !status.ok()) return status;
    if (absl::Status status = file->Close(); !status.ok()) return status;
    return bytes;
  }

  void AddAnalyze() {
    CLI::App* command =
        Add("analyze",
            "What a log of iterations, written by any tool, says: the lengths that stand for all "
            "others, and how well.",
            [this] { return AnalyzeLog(); });
    AddLog(command, &analyze_.log);
    AddPoints(command, &analyze_.points, &analyze_.target_error, &analyze_.confidence);
    command
        ->add_option("--playlist", output_path_,
                     "write the points there, as `seqpoint playlist` does; \"-\": on standard "
                     "output, instead of the answer")
        ->type_name("FILE");
    command
        ->add_option("--against", analyze_.against,
                     "the same work on another machine, with the same columns: the speedup")
        ->type_name("FILE");
    horizon_.AddTo(command);
    command->footer(kAnalyzeHelp);
  }

  int AnalyzeLog() {
    if (horizon_.data_parallel > 0) {
      return FailUsage(
          "--data-parallel: a log's iterations are those of one rank, or of all together; import "
          "it "
          "and ask `seqpoint project JOB --lengths FILE --data-parallel N`");
    }
    absl::StatusOr<v1::Horizon> horizon = horizon_.Read();
    if (!horizon.ok()) return Fail(horizon.status());
    analyze_.horizon = *std::move(horizon);
    analyze_.playlist = !output_path_.empty();
    std::unique_ptr<WholeFile> file;
    if (analyze_.playlist && output_path_ != "-") {
      absl::StatusOr<WholeFile> opened = WholeFile::Open(output_path_);
      if (!opened.ok()) return Fail(opened.status());
      file = std::make_unique<WholeFile>(*std::move(opened));
    }
    absl::StatusOr<std::unique_ptr<Connection>> connection = Connect();
    if (!connection.ok()) return Fail(connection.status());
    absl::StatusOr<Analysis> analysis = Analyze(connection->get(), analyze_);
    if (!analysis.ok()) return Fail(analysis.status());
    fprintf(stderr, "%s", Printable(analysis->notes).c_str());
    v1::GetPlaylistReply& playlist = *analysis->reply.mutable_playlist();
    const std::string csv = PlaylistCsv(playlist);
    if (file) {
      absl::Status status = file->Write(csv);
      if (status.ok()) status = file->Close();
      if (!status.ok()) return Fail(status);
    }
    if (analyze_.playlist && !json_) {
      MakePrintable(&playlist);
      fprintf(stderr, "%s%s", file ? absl::StrCat(Printable(output_path_), ": ").c_str() : "",
              PlaylistNotes(playlist).c_str());
    }
    if (output_path_ == "-" && !json_) {
      Print(csv);
      return kExitOk;
    }
    if (!analyze_.playlist) analysis->reply.clear_playlist();
    PrintReply(&analysis->reply, [&](const v1::AnalyzeReply&) {
      return Printable(AnalysisText(*analysis, analyze_));
    });
    return kExitOk;
  }

  void AddImport() {
    CLI::App* command = Add("import",
                            "Make a job of what another tool wrote, so that all other commands "
                            "know it: a log of iterations, or traces of a profiler.",
                            [this] { return ImportFiles(); });
    command->footer(kImportHelp);
    command
        ->add_option("FILE", import_files_,
                     "a log: CSV (or .gz) with a header, a row is an iteration; or traces, one of "
                     "each rank: JSON of torch.profiler or `seqpoint export --chrome`")
        ->required()
        ->type_name("FILE");
    AddLogColumns(command, &import_.log, "Of a log");
    command
        ->add_option("--marker", marker_,
                     "RE2 of the annotations at which iterations begin; its groups, one or two, "
                     "are their lengths; default: ProfilerStep#N, else they are found")
        ->check(Name())
        ->type_name("REGEX")
        ->group("Of traces");
    command->add_option("--name", import_.name, "of the job; default: the (first) file's")
        ->check(Name())
        ->type_name("NAME");
    command->add_option("--run-id", import_.run_id, "of the job; default: a new one")
        ->check(Name())
        ->type_name("ID");
  }

  int ImportFiles() {
    if (absl::StrContains(import_.name, "@")) {
      return FailUsage(absl::StrCat("--name: ", Quote(import_.name),
                                    " contains \"@\", which parts name and run id"));
    }
    const std::string log_option = !import_.log.key_columns.empty()     ? "--key"
                                   : !import_.log.time_column.empty()   ? "--time"
                                   : !import_.log.time_unit.empty()     ? "--time-unit"
                                   : !import_.log.group_columns.empty() ? "--group"
                                                                        : "";
    for (const std::string& path : import_files_) {
      const absl::StatusOr<bool> is_trace = IsTrace(path);
      if (!is_trace.ok()) return Fail(is_trace.status());
      if (*is_trace && !log_option.empty()) {
        return FailUsage(absl::StrCat(log_option, " is of a log; ", path, " is none"));
      }
      if (*is_trace) continue;
      if (import_files_.size() > 1) {
        return FailUsage(
            absl::StrCat("several files must be traces, one of each rank; ", path, " is none"));
      }
      if (!marker_.empty()) {
        return FailUsage(absl::StrCat("--marker is of traces; ", path, " is none"));
      }
      return ImportLog();
    }
    absl::StatusOr<std::unique_ptr<Connection>> connection = Connect();
    if (!connection.ok()) return Fail(connection.status());
    absl::StatusOr<v1::ImportTraceReply> reply =
        ImportTraces(connection->get(),
                     {.files = import_files_,
                      .marker = marker_,
                      .name = import_.name.empty() ? JobNameOfFile(import_files_[0]) : import_.name,
                      .run_id = import_.run_id});
    if (!reply.ok()) return Fail(reply.status());
    PrintReply(&*reply,
               [](const v1::ImportTraceReply& shown) { return TraceImportText(shown, Width()); });
    return kExitOk;
  }

  int ImportLog() {
    import_.log.path = import_files_[0];
    std::string notes;
    absl::StatusOr<LogFile> log = ReadLogToImport(import_, &notes);
    fprintf(stderr, "%s", Printable(notes).c_str());
    if (!log.ok()) return Fail(log.status());
    absl::StatusOr<std::unique_ptr<Connection>> connection = Connect();
    if (!connection.ok()) return Fail(connection.status());
    absl::StatusOr<v1::ImportJobReply> reply = Import(connection->get(), import_, *log);
    if (!reply.ok()) return Fail(reply.status());
    PrintReply(&*reply, ImportText);
    return kExitOk;
  }

  void AddReplay() {
    CLI::App* command =
        AddForJob("replay", "Run a job's traces again as they are: how well they are understood.",
                  [this] { return Replay(); });
    command->footer(kReplayHelp);
    command
        ->add_option("--chrome", chrome_path_,
                     "write the replayed timelines below the measured ones, as trace events in "
                     "JSON for Perfetto; \"-\": on standard output, instead of the answer")
        ->type_name("FILE");
    command->add_flag("--all", all_, "all iterations");
  }

  int Replay() {
    if (!chrome_path_.empty()) {
      const absl::StatusOr<int64_t> bytes =
          WriteExport(v1::ExportRequest::FORMAT_REPLAY, chrome_path_);
      if (chrome_path_ == "-") json_ = false;  // standard output is the file
      if (!bytes.ok()) return Fail(bytes.status());
      if (chrome_path_ == "-") return kExitOk;
      if (!json_) SayWritten(chrome_path_, *bytes);
    }
    v1::ReplayRequest request;
    request.set_job(job_);
    return Ask(&v1::Profiler::Stub::Replay, request,
               [this](const v1::ReplayReply& reply) { return ReplayText(reply, all_); });
  }

  void AddWhatIf() {
    CLI::App* command = Add("whatif", "What a change would do to the time of the whole run.",
                            [this] { return WhatIf(); });
    command->footer(kWhatIfHelp);
    AddJobName(command);
    const std::string group = "What is asked";
    apply_option_ =
        command
            ->add_option("--apply", applied_,
                         "a preset or a file, with parameters behind commas: amp,compute=4. "
                         "Several are done one after the other")
            ->allow_extra_args(false)
            ->type_name("CHANGE")
            ->group(group);
    command->add_option("--steps", steps_, "steps as in a file (docs/whatif.md), parted by ;")
        ->allow_extra_args(false)
        ->type_name("STEPS")
        ->group(group);
    command->add_flag("--list", list_, "what each preset would save")->group(group);
    command->add_flag("--presets", presets_, "what presets there are (no JOB)")->group(group);
    command->add_option("--show", show_, "the file of one, to save and change (no JOB)")
        ->type_name("PRESET")
        ->group(group);
    command->add_flag("--all", all_,
                      "all lengths and kernels, names whole; with --list: presets that do not "
                      "apply, too");
    AddFigureFlags(command);
  }

  int WhatIf() {
    const bool changes = !applied_.empty() || !steps_.empty();
    const int questions =
        (changes ? 1 : 0) + (list_ ? 1 : 0) + (presets_ ? 1 : 0) + (show_.empty() ? 0 : 1);
    if (questions == 0) {
      return FailUsage("say --apply PRESET or FILE, or --list, which tries all presets");
    }
    if (questions > 1) {
      return FailUsage("--apply (with --steps), --list, --presets and --show go one at a time");
    }
    if (!job_.empty() == (presets_ || !show_.empty())) {
      return FailUsage(job_.empty() ? "JOB is missing" : "--presets and --show take no JOB");
    }
    if (presets_) {
      Print(json_ ? PresetsJson() + "\n" : PresetsText());
      return kExitOk;
    }
    if (!show_.empty()) {
      const absl::StatusOr<std::string> text = PresetFileText(show_);
      if (!text.ok()) return Fail(text.status());
      Print(json_ ? FieldsJson({{"name", show_}, {"text", *text}}) + "\n" : *text);
      return kExitOk;
    }
    v1::WhatIfRequest request;
    request.set_list(list_);
    // In the order of the command line.
    size_t applied = 0, steps = 0;
    for (const CLI::Option* option : app_.get_subcommand("whatif")->parse_order()) {
      const bool apply = option == apply_option_;
      if (!apply && option->get_name() != "--steps") continue;
      absl::StatusOr<v1::WhatIfChange> change =
          apply ? ReadChange(applied_[applied++]) : StepsChange(steps_[steps++]);
      if (!change.ok()) return Fail(change.status());
      *request.add_changes() = *std::move(change);
    }
    return AskFigures(
        &v1::Profiler::Stub::WhatIf, request, [this](const v1::WhatIfReply& reply, const v1::Job&) {
          return list_ ? WhatIfListText(reply, all_, Width()) : WhatIfText(reply, all_, Width());
        });
  }

  // A log that another tool wrote.
  static void AddLog(CLI::App* command, LogOptions* log) {
    command->add_option("LOG", log->path, "CSV (or .gz) with a header; a row is an iteration")
        ->required()
        ->type_name("FILE");
    AddLogColumns(command, log, "Options");
  }

  static void AddLogColumns(CLI::App* command, LogOptions* log, const std::string& group) {
    command
        ->add_option("--key", log->key_columns,
                     "column of the iteration's length, or two; default: what logs call it")
        ->delimiter(',')
        ->expected(1, 2)
        ->type_name("COL[,COL]")
        ->group(group);
    command
        ->add_option("--time", log->time_column,
                     "column of its time; _ns, _us, _ms or _s at the end is the unit")
        ->type_name("COL")
        ->group(group);
    AddChoice(command, "--time-unit", &log->time_unit, {"ns", "us", "ms", "s"},
              "of the time column, where its name does not end in one")
        ->group(group);
    command
        ->add_option("--group", log->group_columns,
                     "columns that tell runs and epochs apart; their first iterations may be "
                     "start-up")
        ->delimiter(',')
        ->expected(1, 8)
        ->type_name("COL[,COL]")
        ->group(group);
  }

  void AddControl() {
    // Its subcommands are what runs; a callback of its own would come after theirs.
    CLI::App* command = app_.add_subcommand("control", "Change what is measured in a running job.");
    command->fallthrough();
    command->group(kCommands);
    AddJobName(command)->required();
    command->require_subcommand(1);
    auto add = [&](const std::string& name, const std::string& help,
                   v1::ControlRequest::Action action) {
      CLI::App* sub = command->add_subcommand(name, help);
      sub->fallthrough();
      sub->group(kCommands);
      sub->callback([this, action] {
        control_.set_action(action);
        command_ = [this, action] {
          control_.set_job(job_);
          control_.set_overhead_budget_share(budget_share_);
          if (action == v1::ControlRequest::ACTION_SET_LEVEL && level_ != "auto") {
            v1::Level level = v1::LEVEL_UNSPECIFIED;
            v1::Level_Parse("LEVEL_" + absl::AsciiStrToUpper(level_), &level);
            control_.set_level(level);
          }
          if (action == v1::ControlRequest::ACTION_END_WAITING) SayIfOver();
          return Ask(&v1::Profiler::Stub::Control, control_, [this](const v1::ControlReply& reply) {
            return ControlText(reply.job(), control_.action());
          });
        };
      });
      return sub;
    };
    add("pause", "Measure nothing more; iterations are still found.",
        v1::ControlRequest::ACTION_PAUSE);
    add("resume", "Go on after pause or release.", v1::ControlRequest::ACTION_RESUME);
    add("end", "End a job that waits for a program that will not come.",
        v1::ControlRequest::ACTION_END_WAITING);
    add("release", "Leave CUPTI to another tool.", v1::ControlRequest::ACTION_RELEASE_CUPTI);
    CLI::App* level =
        add("level", "Keep one level of measuring.", v1::ControlRequest::ACTION_SET_LEVEL);
    AddChoice(level, "LEVEL", &level_, {"auto", "mark", "trace"},
              "auto: the daemon chooses; mark: boundaries, lengths and times; trace: all GPU work")
        ->required();
    add("budget", "What the stops for measuring may take, as a share of the run's time.",
        v1::ControlRequest::ACTION_SET_OVERHEAD_BUDGET)
        ->add_option("SHARE", budget_share_, "such as 0.5% or 0.005")
        ->transform(Share())
        ->required();
    CLI::App* horizon = command->add_subcommand(
        "horizon", "Say how long the run is, also of a job that has ended.");
    horizon->fallthrough();
    horizon->group(kCommands);
    horizon_.AddTo(horizon);
    horizon->callback([this] {
      command_ = [this]() -> int {
        if (!horizon_.given()) return FailUsage("say --iterations N or --lengths FILE");
        absl::StatusOr<v1::Horizon> read = horizon_.Read();
        if (!read.ok()) return Fail(read.status());
        v1::SetHorizonRequest request;
        request.set_job(job_);
        *request.mutable_horizon() = *std::move(read);
        return Ask(&v1::Profiler::Stub::SetHorizon, request,
                   [](const v1::SetHorizonReply& reply) { return HorizonText(reply.job()); });
      };
    });
  }

  // What it is from now on, in a line.
  std::string ControlText(const v1::Job& job, v1::ControlRequest::Action action) const {
    std::string text = absl::StrCat(JobTitle(job), ", ", JobStateName(job.state()));
    if (action == v1::ControlRequest::ACTION_SET_LEVEL) absl::StrAppend(&text, ", level ", level_);
    if (action == v1::ControlRequest::ACTION_SET_OVERHEAD_BUDGET) {
      absl::StrAppend(&text, ", of the run's time ", FormatShare(budget_share_),
                      " for measurements");
    }
    return text + "\n";
  }

  static std::string HorizonText(const v1::Job& job) {
    const v1::Horizon& horizon = job.horizon();
    return absl::StrCat(
        JobTitle(job), ", ", JobStateName(job.state()), ", horizon ",
        horizon.iterations() > 0 ? FormatCount(horizon.iterations(), "iteration") : "not known",
        horizon.source().empty()   ? ""
        : horizon.iterations() > 0 ? " from "
                                   : ", from ",
        horizon.source(), "\n", Note(job.rule().sentence()));
  }

  // Ending a job twice is no error, but no news either.
  void SayIfOver() {
    absl::StatusOr<std::unique_ptr<Connection>> connection = Connect();
    if (!connection.ok()) return;  // the question itself will say so
    v1::GetJobRequest request;
    request.set_job(job_);
    absl::StatusOr<v1::GetJobReply> reply =
        (*connection)->Call(&v1::Profiler::Stub::GetJob, request);
    if (!reply.ok() || !IsOver(reply->job())) return;
    MakePrintable(&*reply);
    fprintf(stderr, "seqpoint: %s has ended already\n", JobTitle(reply->job()).c_str());
  }

  // For help and completion: Main() starts them.
  void AddPlanners() {
    for (const Planner& planner : kPlanners) {
      Add(planner.name, planner.help, [this] {
        return FailUsage("put the command first");
      })->prefix_command();
    }
  }

  void AddDoctor() {
    CLI::App* command =
        Add("doctor", "Say what stands in the way of a profile, and what to do.", [this]() -> int {
          DoctorFacts facts = CollectFacts("", python_);
          AskDaemon(connect_, &facts);
          std::vector<Finding> findings = Diagnose(facts, SEQPOINT_VERSION);
          Print(json_ ? FindingsJson(findings) + "\n" : FindingsText(findings));
          bool problem = std::any_of(findings.begin(), findings.end(), [](const Finding& finding) {
            return finding.kind == Finding::kProblem;
          });
          return problem ? kExitError : kExitOk;
        });
    command
        ->add_option("--python", python_,
                     "the Python of the training, whose PyTorch is looked at; default: python3")
        ->type_name("PATH");
  }

  void AddCompletion() {
    CLI::App* command = Add("completion", "Print a completion script for a shell.", [this] {
      std::string script = CompletionScript(shell_);
      Print(json_ ? FieldsJson({{"shell", shell_}, {"script", script}}) + "\n" : script);
      return kExitOk;
    });
    AddChoice(command, "SHELL", &shell_, {"bash", "zsh", "fish"}, "bash, zsh or fish")->required();
  }

  // Of the daemon that runs, if any: ids, and names with run ids.
  std::vector<std::string> Jobs() {
    connect_.start_private = false;
    std::vector<std::string> words;
    absl::StatusOr<std::unique_ptr<Connection>> connection = Connect();
    if (!connection.ok()) return words;
    absl::StatusOr<v1::ListJobsReply> reply = (*connection)->ListJobs({});
    if (!reply.ok()) return words;
    for (const v1::Job& job : reply->jobs()) {
      words.push_back(job.id());
      words.push_back(absl::StrCat(job.name(), "@", job.run_id()));
    }
    return words;
  }

  void AddVersion() {
    Add("version", "Print the versions of this program and of the daemon.", [this]() -> int {
      connect_.start_private = false;
      v1::GetDaemonReply daemon;
      absl::StatusOr<std::unique_ptr<Connection>> connection = Connect();
      if (connection.ok()) {
        absl::StatusOr<v1::GetDaemonReply> reply =
            (*connection)->Call(&v1::Profiler::Stub::GetDaemon, v1::GetDaemonRequest());
        if (!reply.ok()) return Fail(reply.status());
        daemon = *std::move(reply);
      }
      if (json_) {
        std::string text = ToJson(daemon, /*one_line=*/true);
        Print(absl::StrCat("{\"client_version\": \"" SEQPOINT_VERSION "\", \"daemon\": ",
                           connection.ok() ? text : "null", "}\n"));
        return kExitOk;
      }
      Print("seqpoint  " SEQPOINT_VERSION "\n");
      MakePrintable(&daemon);
      Print(connection.ok() ? DaemonText(daemon) : "seqpointd none is running\n");
      return kExitOk;
    });
  }

  CLI::App app_;
  std::function<int()> command_;
  ConnectOptions connect_;
  RunOptions run_;
  AnalyzeOptions analyze_;
  ImportOptions import_;
  CompareOptions compare_;
  PartOptions part_;
  HorizonFlags horizon_;
  v1::ControlRequest control_;
  MeasuredOptions measured_times_;
  std::string job_, metric_, shell_, level_, chrome_path_, csv_path_, playlist_path_, output_path_;
  std::vector<std::string> metrics_, import_files_, applied_, steps_;
  std::string marker_, show_;
  const CLI::Option* apply_option_ = nullptr;
  std::string metrics_file_, backend_, set_, chip_ = "GH100", python_ = "python3";
  bool measured_list_ = false;
  std::optional<int> rank_;
  double confidence_ = 0, budget_share_ = 0, target_error_ = 0;
  int limit_ = 20, points_ = 0;
  JobsOptions jobs_;
  TagOptions tag_;
  std::string new_name_;
  bool json_ = false, all_ = false, measured_ = false, list_ = false, presets_ = false;
};

}  // namespace
}  // namespace seqpoint::client

int main(int argc, char** argv) {
  // What gRPC logs is said better by the status of the call.
  gpr_set_log_function([](gpr_log_func_args*) {});
  const int code = seqpoint::client::Cli().Main(std::vector<std::string>(argv + 1, argv + argc));
  if (fflush(stdout) == 0 && ferror(stdout) == 0) return code;
  fprintf(stderr, "seqpoint: the answer could not be written to standard output: %s\n",
          strerror(errno));
  return code == 0 ? 1 : code;
}
