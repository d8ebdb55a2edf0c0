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
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/completion.h"
#include "client/connection.h"
#include "client/doctor.h"
#include "client/format.h"
#include "client/help.h"
#include "client/lengths.h"
#include "client/progress.h"
#include "client/run.h"
#include "client/text.h"

namespace seqpoint::client {
namespace {

constexpr const char* kDescription =
    "What a whole training run costs and why, from the few iterations that represent all others.";

constexpr const char* kFooter = R"(
A JOB is its id, "name@run_id", or "name" (its latest run).

Exit codes: 0 ok; 1 error; 2 wrong usage; 3 no daemon; 4 no such job; 5 not enough data yet.
`run` ends as its command ended (127: not found, 126: cannot be run).

Environment: SEQPOINT_DIR (folder of the daemon's sockets; default $XDG_RUNTIME_DIR/seqpoint, then
/run/seqpoint), SEQPOINT_DAEMON (path of seqpointd), SEQPOINT_LIBRARY (path of
libseqpoint_inject.so), SEQPOINT_CUPTI_LIB (path of libcupti).)";

int Fail(const absl::Status& status) {
  fprintf(stderr, "seqpoint: %s\n", std::string(status.message()).c_str());
  return ExitCodeFor(status);
}

// "0.95" or "95%"; std::nullopt: neither.
std::optional<double> ParseShare(std::string text) {
  double scale = 1;
  if (absl::EndsWith(text, "%")) {
    text.pop_back();
    scale = 0.01;
  }
  double value = 0;
  if (!absl::SimpleAtod(text, &value)) return std::nullopt;
  return value * scale;
}

// An option that takes a share.
CLI::Option* AddShare(CLI::App* app, const std::string& name, double* target,
                      const std::string& help) {
  return app
      ->add_option_function<std::string>(
          name,
          [name, target](const std::string& text) {
            std::optional<double> share = ParseShare(text);
            if (!share.has_value() || !(*share > 0 && *share < 1)) {
              throw CLI::ValidationError(
                  name, absl::StrCat("\"", text, "\" is not a share such as 0.5% or 0.005"));
            }
            *target = *share;
          },
          help)
      ->type_name("SHARE");
}

// How long the run is: the same options wherever it can be said.
struct HorizonFlags {
  LengthsOptions lengths;
  int64_t iterations = 0;

  void AddTo(CLI::App* app) {
    const std::string group = "How long the run is";
    auto* file =
        app->add_option("--lengths", lengths.path,
                        "CSV (or .gz) with a header; a row is an iteration of one epoch, or an "
                        "example when --batch is given")
            ->type_name("FILE")
            ->group(group);
    app->add_option("--length-column", lengths.columns,
                    "its length column, or two; default: len_total, else those with \"len\" in "
                    "their name")
        ->delimiter(',')
        ->expected(1, 2)
        ->type_name("NAME[,NAME]")
        ->needs(file)
        ->group(group);
    app->add_option("--epochs", lengths.epochs, "how often the data is gone through")
        ->check(CLI::PositiveNumber)
        ->type_name("E")
        ->group(group);
    app->add_option("--batch", lengths.batch,
                    "examples in a forward pass (of one rank); with gradient accumulation several "
                    "of them are one iteration")
        ->check(CLI::PositiveNumber)
        ->type_name("N")
        ->needs(file)
        ->group(group);
    app->add_option("--order", lengths.order,
                    "shuffle (default), bucket (sorted within 100 random batches), sorted, file")
        ->transform(CLI::CheckedTransformer(
            std::map<std::string, ExampleOrder>{{"shuffle", ExampleOrder::kShuffle},
                                                {"bucket", ExampleOrder::kBucket},
                                                {"sorted", ExampleOrder::kSorted},
                                                {"file", ExampleOrder::kFile}}))
        ->type_name("ORDER")
        ->needs(file)
        ->group(group);
    app->add_option("--pad-to", lengths.pad_to, "lengths are padded to a multiple of N")
        ->check(CLI::PositiveNumber)
        ->type_name("N")
        ->needs(file)
        ->group(group);
    app->add_flag("--drop-last", lengths.drop_last, "leave an incomplete last batch out")
        ->needs(file)
        ->group(group);
    app->add_option("--iterations", iterations,
                    "iterations of the run (of one epoch, with --epochs), lengths unknown")
        ->check(CLI::PositiveNumber)
        ->type_name("N")
        ->excludes(file)
        ->group(group);
  }

  bool given() const { return iterations > 0 || !lengths.path.empty(); }

  absl::StatusOr<v1::Horizon> Read() const {
    if (!lengths.path.empty()) return ReadLengths(lengths);
    v1::Horizon horizon;
    if (iterations > 0) {
      horizon.set_kind(v1::Horizon::KIND_ITERATIONS);
      if (__builtin_mul_overflow(iterations, lengths.epochs, &iterations_of_run_)) {
        return absl::InvalidArgumentError(
            absl::StrCat(iterations, " iterations x ", lengths.epochs, " epochs are too many"));
      }
      horizon.set_iterations(iterations_of_run_);
      horizon.set_epochs(1);
      if (lengths.epochs > 1) {
        horizon.set_source(absl::StrCat(lengths.epochs, " epochs of ", FormatCount(iterations)));
      }
    }
    return horizon;
  }

 private:
  mutable int64_t iterations_of_run_ = 0;
};

class Cli {
 public:
  Cli() : app_(kDescription, "seqpoint") {
    app_.require_subcommand(1);
    app_.formatter(std::make_shared<HelpFormatter>());
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
    AddWatch();
    AddSeqPoints();
    AddProject();
    AddCounters();
    AddKernels();
    AddIterations();
    AddExport();
    AddControl();
    AddDoctor();
    AddCompletion();
    AddVersion();
    app_.footer(kFooter);  // last: commands would inherit it
  }

  int Main(std::vector<std::string> arguments) {
    // What follows "--" is the command of `run`, whatever it looks like.
    if (!arguments.empty() && arguments[0] == "run") {
      auto separator = std::find(arguments.begin(), arguments.end(), "--");
      if (separator != arguments.end()) {
        run_.command.assign(separator + 1, arguments.end());
        arguments.erase(separator, arguments.end());
      }
    }
    std::reverse(arguments.begin(), arguments.end());  // as CLI11 wants them
    try {
      app_.parse(arguments);
    } catch (const CLI::ParseError& error) {
      if (error.get_exit_code() == 0) return app_.exit(error);  // --help, --version
      fprintf(stderr, "seqpoint: %s\nseqpoint: see seqpoint %s--help\n", error.what(),
              CurrentCommand().c_str());
      return kExitUsage;
    }
    return command_();
  }

 private:
  std::string CurrentCommand() const {
    std::vector<CLI::App*> parsed = app_.get_subcommands();
    return parsed.empty() ? "" : parsed[0]->get_name() + " ";
  }

  CLI::App* Add(const std::string& name, const std::string& help, std::function<int()> run) {
    CLI::App* command = app_.add_subcommand(name, help);
    command->fallthrough();
    command->callback([this, run = std::move(run)] { command_ = run; });
    return command;
  }

  CLI::App* AddForJob(const std::string& name, const std::string& help, std::function<int()> run) {
    CLI::App* command = Add(name, help, std::move(run));
    command->add_option("JOB", job_, "id, name@run_id or name")->required();
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
    Print(json_ ? ToJson(*reply, /*one_line=*/false) + "\n" : to_text(*reply));
    return kExitOk;
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
        ->type_name("NAME");
    command
        ->add_option("--run-id", run_.run_id,
                     "ranks and resumed runs with the same id are one job; default: that of "
                     "torchrun or Slurm, else a new one")
        ->type_name("ID");
    AddShare(command, "--overhead-budget", &run_.overhead_budget_share,
             "what measuring may cost, as a share of the run's time; default 1%");
    command->add_option("--metrics", run_.metric_sets, "metric sets to collect")
        ->delimiter(',')
        ->type_name("SET[,SET]");
    command->add_flag_callback(
        "--no-progress", [this] { run_.progress = false; }, "no progress line on the terminal");
    command->add_flag("--quiet", run_.quiet, "no summary at the end either");
    horizon_.AddTo(command);
  }

  int RunCommand() {
    if (run_.command.empty()) {
      run_.command = app_.get_subcommand("run")->remaining();
    }
    if (run_.command.empty()) {
      fprintf(stderr, "seqpoint: there is no command to run\nseqpoint: see seqpoint run --help\n");
      return kExitUsage;
    }
    if (absl::StrContains(run_.job, "@")) {
      fprintf(stderr, "seqpoint: job name \"%s\" contains \"@\", which parts name and run id\n",
              run_.job.c_str());
      return kExitUsage;
    }
    absl::StatusOr<v1::Horizon> horizon = horizon_.Read();
    if (!horizon.ok()) return Fail(horizon.status());
    run_.horizon = *std::move(horizon);
    run_.connect = connect_;
    run_.json = json_;
    return Run(run_);
  }

  void AddJobs() {
    CLI::App* command = Add("jobs", "List jobs, or tell everything about one.", [this] {
      if (!job_.empty()) {
        v1::GetJobRequest request;
        request.set_job(job_);
        return Ask(&v1::Profiler::Stub::GetJob, request,
                   [](const v1::GetJobReply& reply) { return JobText(reply.job()); });
      }
      v1::ListJobsRequest request;
      request.set_live_only(live_);
      return Ask(&v1::Profiler::Stub::ListJobs, request, JobsText);
    });
    command->add_option("JOB", job_, "id, name@run_id or name; none: all jobs");
    command->add_flag("--live", live_, "only those that run");
    // For the completion scripts: without a description it is listed nowhere.
    Add("complete-jobs", "", [this] {
      connect_.start_private = false;
      return Ask(&v1::Profiler::Stub::ListJobs, v1::ListJobsRequest(),
                 [](const v1::ListJobsReply& reply) {
                   std::string words;
                   for (const v1::Job& job : reply.jobs()) {
                     absl::StrAppend(&words, job.id(), "\n", job.name(), "@", job.run_id(), "\n");
                   }
                   return words;
                 });
    })->group("");
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
    });
  }

  void AddProject() {
    CLI::App* command = AddForJob("project", "What the whole run costs, with an interval.", [this] {
      v1::ProjectRequest request;
      request.set_metric(metric_);
      return AskFigures(&v1::Profiler::Stub::Project, request, ProjectText);
    });
    command->add_option("--metric", metric_, "a counter of `seqpoint counters`; default: time")
        ->type_name("METRIC");
    AddFigureFlags(command);
  }

  void AddCounters() {
    CLI::App* command =
        AddForJob("counters", "Hardware counters of the whole run, with intervals.", [this] {
          v1::GetCountersRequest request;
          for (const std::string& metric : metrics_) request.add_metrics(metric);
          return AskFigures(
              &v1::Profiler::Stub::GetCounters, request,
              [](const v1::GetCountersReply& reply) { return CountersText(reply, Width()); });
        });
    command->add_option("METRIC", metrics_, "only these");
    AddFigureFlags(command);
  }

  void AddKernels() {
    CLI::App* command = AddForJob("kernels", "Kernels by their share of the time.", [this] {
      v1::GetKernelsRequest request;
      request.set_limit(all_ ? 0 : limit_);
      return AskFigures(
          &v1::Profiler::Stub::GetKernels, request,
          [](const v1::GetKernelsReply& reply) { return KernelsText(reply, Width()); });
    });
    AddLimit(command);
    AddFigureFlags(command);
  }

  void AddLimit(CLI::App* command) {
    command->add_option("--limit", limit_, "how many rows; default 20")
        ->check(CLI::PositiveNumber)
        ->type_name("N");
    command->add_flag("--all", all_, "all rows");
  }

  void AddFigureFlags(CLI::App* command) {
    AddShare(command, "--confidence", &confidence_,
             "that the interval holds the truth; default 95%");
    horizon_.AddTo(command);
  }

  template <typename Request, typename Reply, typename ToText>
  int AskFigures(grpc::Status (v1::Profiler::Stub::*call)(grpc::ClientContext*, const Request&,
                                                          Reply*),
                 Request request, ToText to_text) {
    request.set_job(job_);
    request.set_confidence(confidence_);
    if (horizon_.given()) {
      absl::StatusOr<v1::Horizon> horizon = horizon_.Read();
      if (!horizon.ok()) return Fail(horizon.status());
      *request.mutable_horizon() = *std::move(horizon);
    }
    return Ask(call, request, to_text);
  }

  void AddIterations() {
    CLI::App* command =
        AddForJob("iterations", "The log of iterations.", [this] { return Iterations(); });
    command->add_flag("--measured", measured_, "only those that were measured");
    command->add_option("--rank", rank_, "of this rank; default: the lowest")->type_name("R");
    AddLimit(command);
  }

  int Iterations() {
    absl::StatusOr<std::unique_ptr<Connection>> connection = Connect();
    if (!connection.ok()) return Fail(connection.status());
    v1::ListIterationsRequest request;
    request.set_job(job_);
    request.set_measured_only(measured_);
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
    if (json_) {
      Print(ToJson(all, /*one_line=*/false) + "\n");
      return kExitOk;
    }
    Print(IterationsText(all.iterations()));
    if (!request.page_token().empty()) {
      Print(absl::StrCat("\n", FormatCount(all.total()), " iterations in all; --all shows them, ",
                         "`seqpoint export ", job_, " --csv FILE` writes them\n"));
    }
    return kExitOk;
  }

  void AddExport() {
    CLI::App* command = AddForJob("export", "Write a job to a file.", [this] { return Export(); });
    auto* format = command->add_option_group("format");
    format
        ->add_option("--chrome", chrome_path_,
                     "trace events in JSON, for Perfetto, HTA and TensorBoard; \"-\": standard "
                     "output")
        ->type_name("FILE");
    format->add_option("--csv", csv_path_, "one row per iteration; \"-\": standard output")
        ->type_name("FILE");
    format->require_option(1);
  }

  int Export() {
    bool csv = !csv_path_.empty();
    std::string path = csv ? csv_path_ : chrome_path_;
    absl::StatusOr<std::unique_ptr<Connection>> connection = Connect();
    if (!connection.ok()) return Fail(connection.status());
    v1::ExportRequest request;
    request.set_job(job_);
    request.set_format(csv ? v1::ExportRequest::FORMAT_CSV : v1::ExportRequest::FORMAT_CHROME);
    // The file appears under its name only when it is whole.
    std::string part = path == "-" ? "" : path + ".part";
    FILE* file = path == "-" ? stdout : fopen(part.c_str(), "w");
    auto fail = [&](const char* what) {
      int error = errno;
      if (!part.empty()) unlink(part.c_str());
      return Fail(
          absl::InternalError(absl::StrCat("cannot ", what, " ", path, ": ", strerror(error))));
    };
    if (file == nullptr) return fail("write");
    grpc::ClientContext context;
    auto reader = (*connection)->stub().Export(&context, request);
    v1::ExportReply reply;
    int64_t bytes = 0;
    while (reader->Read(&reply)) {
      bytes += static_cast<int64_t>(reply.data().size());
      if (fwrite(reply.data().data(), 1, reply.data().size(), file) != reply.data().size()) {
        context.TryCancel();
        return fail("write");
      }
    }
    absl::Status status = Connection::FromGrpc(reader->Finish());
    if (fflush(file) != 0) return fail("write");
    if (part.empty()) return status.ok() ? kExitOk : Fail(status);
    fclose(file);
    if (!status.ok()) {
      unlink(part.c_str());
      return Fail(status);
    }
    if (rename(part.c_str(), path.c_str()) != 0) return fail("rename to");
    fprintf(stderr, "%s: %s\n", path.c_str(), FormatQuantity(double(bytes), "B").c_str());
    return kExitOk;
  }

  void AddControl() {
    // Its subcommands are what runs; a callback of its own would come after theirs.
    CLI::App* command = app_.add_subcommand("control", "Change what is measured in a running job.");
    command->fallthrough();
    command->add_option("JOB", job_, "id, name@run_id or name")->required();
    command->require_subcommand(1);
    auto add = [&](const std::string& name, const std::string& help,
                   v1::ControlRequest::Action action) {
      CLI::App* sub = command->add_subcommand(name, help);
      sub->fallthrough();
      sub->callback([this, action] {
        control_.set_action(action);
        command_ = [this] {
          control_.set_job(job_);
          control_.set_overhead_budget_share(budget_share_);
          return Ask(&v1::Profiler::Stub::Control, control_,
                     [](const v1::ControlReply& reply) { return JobText(reply.job()); });
        };
      });
      return sub;
    };
    add("pause", "Measure nothing more; iterations are still found.",
        v1::ControlRequest::ACTION_PAUSE);
    add("resume", "Go on after pause or release.", v1::ControlRequest::ACTION_RESUME);
    add("release", "Leave CUPTI to another tool.", v1::ControlRequest::ACTION_RELEASE_CUPTI);
    add("level", "Keep one level of measuring.", v1::ControlRequest::ACTION_SET_LEVEL)
        ->add_option_function<std::string>(
            "LEVEL",
            [this](const std::string& name) {
              const std::map<std::string, v1::Level> levels = {
                  {"auto", v1::LEVEL_UNSPECIFIED}, {"off", v1::LEVEL_OFF},
                  {"learn", v1::LEVEL_LEARN},      {"mark", v1::LEVEL_MARK},
                  {"trace", v1::LEVEL_TRACE},      {"counters", v1::LEVEL_COUNTERS}};
              control_.set_level(levels.at(name));
            },
            "auto (the daemon chooses), off, learn, mark, trace or counters")
        ->check(CLI::IsMember({"auto", "off", "learn", "mark", "trace", "counters"}))
        ->required();
    AddShare(add("budget", "What measuring may cost, as a share of the run's time.",
                 v1::ControlRequest::ACTION_SET_OVERHEAD_BUDGET),
             "SHARE", &budget_share_, "such as 0.5% or 0.005")
        ->required();
    CLI::App* horizon = command->add_subcommand("horizon", "Say how long the run is.");
    horizon->fallthrough();
    horizon_.AddTo(horizon);
    horizon->callback([this] {
      command_ = [this]() -> int {
        absl::StatusOr<v1::Horizon> read = horizon_.Read();
        if (!read.ok()) return Fail(read.status());
        v1::SetHorizonRequest request;
        request.set_job(job_);
        *request.mutable_horizon() = *std::move(read);
        return Ask(&v1::Profiler::Stub::SetHorizon, request,
                   [](const v1::SetHorizonReply& reply) { return JobText(reply.job()); });
      };
    });
  }

  void AddDoctor() {
    Add("doctor", "Say what stands in the way of a profile, and what to do.", [this]() -> int {
      DoctorFacts facts = CollectFacts("");
      AskDaemon(connect_, &facts);
      std::vector<Finding> findings = Diagnose(facts, SEQPOINT_VERSION);
      Print(json_ ? FindingsJson(findings) + "\n" : FindingsText(findings));
      bool problem = std::any_of(findings.begin(), findings.end(), [](const Finding& finding) {
        return finding.kind == Finding::kProblem;
      });
      return problem ? kExitError : kExitOk;
    });
  }

  void AddCompletion() {
    CLI::App* command = Add("completion", "Print a completion script for a shell.", [this] {
      Print(CompletionScript(app_, shell_));
      return kExitOk;
    });
    command->add_option("SHELL", shell_, "bash, zsh or fish")
        ->required()
        ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  }

  void AddVersion() {
    Add("version", "Print the versions of this program and of the daemon.", [this]() -> int {
      if (!json_) Print("seqpoint  " SEQPOINT_VERSION "\n");
      connect_.start_private = false;
      absl::StatusOr<std::unique_ptr<Connection>> connection = Connect();
      if (!connection.ok() && !json_) {
        Print("seqpointd none is running\n");
        return kExitOk;
      }
      return Ask(&v1::Profiler::Stub::GetDaemon, v1::GetDaemonRequest(), DaemonText);
    });
  }

  CLI::App app_;
  std::function<int()> command_;
  ConnectOptions connect_;
  RunOptions run_;
  HorizonFlags horizon_;
  v1::ControlRequest control_;
  std::string job_, metric_, shell_, chrome_path_, csv_path_;
  std::vector<std::string> metrics_;
  std::optional<int> rank_;
  double confidence_ = 0, budget_share_ = 0;
  int limit_ = 20;
  bool json_ = false, live_ = false, all_ = false, measured_ = false;
};

}  // namespace
}  // namespace seqpoint::client

int main(int argc, char** argv) {
  // What gRPC logs is said better by the status of the call.
  gpr_set_log_function([](gpr_log_func_args*) {});
  return seqpoint::client::Cli().Main(std::vector<std::string>(argv + 1, argv + argc));
}
