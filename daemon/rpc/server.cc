#include "daemon/rpc/server.h"

#include <errno.h>
#include <grpc/grpc.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "daemon/base/change_signal.h"
#include "daemon/base/clock.h"
#include "daemon/base/horizon.h"
#include "daemon/base/limits.h"
#include "daemon/queries/metric_sets.h"
#include "daemon/queries/presets.h"
#include "daemon/queries/reply_text.h"
#include "daemon/rpc/listener.h"
#include "daemon/rpc/reflection.h"
#include "daemon/rpc/requests.h"
#include "seqpoint/v1/profiler.grpc.pb.h"

namespace seqpoint::rpc {
namespace {

// How soon a watcher that went away is noticed.
constexpr absl::Duration kWatchSlice = absl::Milliseconds(250);
constexpr absl::Duration kDefaultWatchInterval = absl::Milliseconds(200);
constexpr int kDefaultPageSize = 1'000;
// Pieces of an exported file: well below any client's default limit of 4 MiB for a message.
constexpr size_t kExportPieceBytes = 256 << 10;
// Threads for calls that are not watches.
constexpr int kCallThreads = 32;
// Logs that are sent and answered at a time: a sender who never ends holds a thread, and its rows
// memory.
constexpr int kMaxLogs = 16;
// Traces likewise; each takes the memory of its graph.
constexpr int kMaxTraces = 4;
// Replays and what-ifs likewise.
constexpr int kMaxReplays = 4;
constexpr const char* kReplays = "replays and what-ifs are under way";
// gRPC sends messages of errors in a header, which clients bound.
constexpr size_t kMaxErrorBytes = 2048;
// A client that has connected and does not speak HTTP/2, or TLS, by then is dropped.
constexpr int kHandshakeMs = 10'000;
// A connection without a call for so long is closed; gRPC's clients connect again by themselves.
constexpr int kIdleMs = 5 * 60'000;
// How long after the end of a stream it is known whether its client went away.
constexpr absl::Duration kCancelDelay = absl::Milliseconds(20);

#define SEQPOINT_RPC_CHECK(expression)                      \
  if (absl::Status status_ = (expression); !status_.ok()) { \
    return ToGrpc(status_);                                 \
  }

grpc::Status ToGrpc(const absl::Status& status) {
  // The codes have the same numbers in both.
  std::string message(status.message());
  if (message.size() > kMaxErrorBytes) message = message.substr(0, kMaxErrorBytes) + " ...";
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), message);
}

template <typename Reply>
grpc::Status Answer(absl::StatusOr<Reply> result, Reply* reply) {
  if (!result.ok()) return ToGrpc(result.status());
  *reply = *std::move(result);
  queries::MakeFit(reply);
  return grpc::Status::OK;
}

bool IsOver(const v1::Job& job) {
  return job.state() == v1::JOB_STATE_ENDED || job.state() == v1::JOB_STATE_LOST ||
         job.state() == v1::JOB_STATE_FAILED;
}

void LeaveOutHistogram(v1::Job* job) {
  if (job->has_horizon()) job->mutable_horizon()->clear_histogram();
}

absl::StatusOr<std::string> ReadFile(const char* what, const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  if (!file || text.str().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot read ", what, " ", path, ": ", strerror(errno)));
  }
  return text.str();
}

absl::Duration Now() { return absl::Nanoseconds(Clock::System().MonotonicNs()); }

// Said once: the server ends.
class StopSignal {
 public:
  void Notify() {
    stopping_ = true;
    absl::MutexLock lock(&mutex_);
    changed_.NotifyAll();
  }
  bool HasBeenNotified() const { return stopping_; }
  // True once it was said, which is waited for at most so long.
  bool Await(absl::Duration timeout) {
    absl::MutexLock lock(&mutex_);
    return changed_.Await(mutex_, timeout, [this] { return stopping_.load(); });
  }

 private:
  absl::Mutex mutex_;
  ChangeSignal changed_;
  std::atomic<bool> stopping_ = false;
};

class Service final : public v1::Profiler::Service {
 public:
  Service(const ServerOptions& options, service::Backend* backend)
      : options_(options), backend_(backend) {}

  void Stop() { stopping_.Notify(); }

  absl::Duration since_last_question() const {
    if (questions_ > 0) return absl::ZeroDuration();
    const int64_t last_ns = last_question_ns_;
    if (last_ns == 0) return absl::InfiniteDuration();
    return absl::Nanoseconds(Clock::System().MonotonicNs() - last_ns);
  }

  grpc::Status GetDaemon(grpc::ServerContext* context, const v1::GetDaemonRequest* request,
                         v1::GetDaemonReply* reply) override {
    const Question question(this);
    grpc::Status status = Answer(backend_->GetDaemon(*request), reply);
    reply->set_api_socket(options_.socket_path);
    reply->set_tcp_address(options_.tcp_address);
    reply->set_watchers(watchers_);
    v1::Limits* limits = reply->mutable_limits();
    limits->set_max_request_bytes(options_.max_request_bytes);
    limits->set_max_reply_bytes(options_.max_reply_bytes);
    limits->set_max_watchers(options_.max_watchers);
    limits->set_max_page_size(options_.max_page_size);
    limits->set_max_replays(kMaxReplays);
    return status;
  }

  grpc::Status PrepareJob(grpc::ServerContext* context, const v1::PrepareJobRequest* request,
                          v1::PrepareJobReply* reply) override {
    const Question question(this);
    SEQPOINT_RPC_CHECK(CheckPrepare(*request));
    SEQPOINT_RPC_CHECK(CheckShare("overhead_budget_share", request->overhead_budget_share()));
    v1::PrepareJobRequest complete = *request;
    SEQPOINT_RPC_CHECK(queries::ResolveMetricSets(&complete));
    SEQPOINT_RPC_CHECK(CheckPrepare(complete));  // with the sets of its file
    return Answer(backend_->PrepareJob(complete), reply);
  }

  grpc::Status ListJobs(grpc::ServerContext* context, const v1::ListJobsRequest* request,
                        v1::ListJobsReply* reply) override {
    const Question question(this);
    SEQPOINT_RPC_CHECK(CheckPageSize(request->page_size()));
    v1::ListJobsRequest bounded = *request;
    bounded.set_page_size(PageSize(request->page_size()));
    grpc::Status status = Answer(backend_->ListJobs(bounded), reply);
    for (v1::Job& job : *reply->mutable_jobs()) {
      job.clear_processes();
      LeaveOutHistogram(&job);
    }
    return status;
  }

  grpc::Status GetJob(grpc::ServerContext* context, const v1::GetJobRequest* request,
                      v1::GetJobReply* reply) override {
    const Question question(this);
    SEQPOINT_RPC_CHECK(CheckJobName(request->job()));
    return Answer(backend_->GetJob(*request), reply);
  }

  grpc::Status DeleteJob(grpc::ServerContext* context, const v1::DeleteJobRequest* request,
                         v1::DeleteJobReply* reply) override {
    const Question question(this);
    SEQPOINT_RPC_CHECK(CheckJobName(request->job()));
    return Answer(backend_->DeleteJob(*request), reply);
  }

  grpc::Status UpdateJob(grpc::ServerContext* context, const v1::UpdateJobRequest* request,
                         v1::UpdateJobReply* reply) override {
    const Question question(this);
    SEQPOINT_RPC_CHECK(CheckJobName(request->job()));
    SEQPOINT_RPC_CHECK(CheckUpdate(*request));
    return Answer(backend_->UpdateJob(*request), reply);
  }

  grpc::Status WatchJob(grpc::ServerContext* context, const v1::WatchJobRequest* request,
                        grpc::ServerWriter<v1::WatchJobReply>* writer) override {
    SEQPOINT_RPC_CHECK(CheckJobName(request->job()));
    if (request->min_interval_ms() < 0) {
      return ToGrpc(absl::InvalidArgumentError(
          absl::StrCat("min_interval_ms = ", request->min_interval_ms(), " is negative")));
    }
    if (++watchers_ > options_.max_watchers) {
      --watchers_;
      return ToGrpc(absl::ResourceExhaustedError(
          absl::StrCat(options_.max_watchers, " watchers are connected, as many as this daemon ",
                       "allows; close one, or ask with GetJob from time to time")));
    }
    grpc::Status status = Watch(context, *request, writer);
    --watchers_;
    return status;
  }

  grpc::Status GetSeqPoints(grpc::ServerContext* context, const v1::GetSeqPointsRequest* request,
                            v1::GetSeqPointsReply* reply) override {
    const Question question(this);
    SEQPOINT_RPC_CHECK(CheckJobName(request->job()));
    return Answer(backend_->GetSeqPoints(*request), reply);
  }

  grpc::Status ListIterations(grpc::ServerContext* context,
                              const v1::ListIterationsRequest* request,
                              v1::ListIterationsReply* reply) override {
    const Question question(this);
    SEQPOINT_RPC_CHECK(CheckJobName(request->job()));
    SEQPOINT_RPC_CHECK(CheckPageSize(request->page_size()));
    v1::ListIterationsRequest bounded = *request;
    bounded.set_page_size(PageSize(request->page_size()));
    return Answer(backend_->ListIterations(bounded), reply);
  }

  grpc::Status Project(grpc::ServerContext* context, const v1::ProjectRequest* request,
                       v1::ProjectReply* reply) override {
    const Question question(this);
    return AskWithConfidence(&service::Backend::Project, *request, reply);
  }

  grpc::Status GetCounters(grpc::ServerContext* context, const v1::GetCountersRequest* request,
                           v1::GetCountersReply* reply) override {
    const Question question(this);
    return AskWithConfidence(&service::Backend::GetCounters, *request, reply);
  }

  grpc::Status GetKernels(grpc::ServerContext* context, const v1::GetKernelsRequest* request,
                          v1::GetKernelsReply* reply) override {
    const Question question(this);
    if (request->limit() < 0) {
      return ToGrpc(
          absl::InvalidArgumentError(absl::StrCat("limit = ", request->limit(), " is negative")));
    }
    return AskWithConfidence(&service::Backend::GetKernels, *request, reply);
  }

  grpc::Status GetRoofline(grpc::ServerContext* context, const v1::GetRooflineRequest* request,
                           v1::GetRooflineReply* reply) override {
    const Question question(this);
    SEQPOINT_RPC_CHECK(CheckJobName(request->job()));
    if (request->limit() < 0) {
      return ToGrpc(
          absl::InvalidArgumentError(absl::StrCat("limit = ", request->limit(), " is negative")));
    }
    return Answer(backend_->GetRoofline(*request), reply);
  }

  grpc::Status Compare(grpc::ServerContext* context, const v1::CompareRequest* request,
                       v1::CompareReply* reply) override {
    const Question question(this);
    SEQPOINT_RPC_CHECK(CheckJobName(request->base()));
    SEQPOINT_RPC_CHECK(CheckJobName(request->other()));
    if (request->limit() < 0) {
      return ToGrpc(
          absl::InvalidArgumentError(absl::StrCat("limit = ", request->limit(), " is negative")));
    }
    v1::CompareRequest complete = *request;
    double confidence = 0;
    SEQPOINT_RPC_CHECK(SetConfidence(request->confidence(), &confidence));
    complete.set_confidence(confidence);
    return Answer(backend_->Compare(complete), reply);
  }

  grpc::Status Export(grpc::ServerContext* context, const v1::ExportRequest* request,
                      grpc::ServerWriter<v1::ExportReply>* writer) override {
    const Question question(this);
    SEQPOINT_RPC_CHECK(CheckJobName(request->job()));
    if (request->format() != v1::ExportRequest::FORMAT_CHROME &&
        request->format() != v1::ExportRequest::FORMAT_CSV &&
        request->format() != v1::ExportRequest::FORMAT_REPLAY) {
      return ToGrpc(absl::InvalidArgumentError(
          absl::StrCat("format = ", static_cast<int>(request->format()),
                       " is not one that this daemon knows; use CHROME, CSV or REPLAY")));
    }
    std::optional<Counted> replay;
    if (request->format() == v1::ExportRequest::FORMAT_REPLAY) {
      replay.emplace(&replays_);
      SEQPOINT_RPC_CHECK(CheckPlaces(replays_, kMaxReplays, kReplays));
    }
    v1::ExportReply reply;
    return Answered(ToGrpc(backend_->Export(*request, [&](std::string_view data) {
      for (; !data.empty(); data.remove_prefix(reply.data().size())) {
        reply.set_data(std::string(data.substr(0, kExportPieceBytes)));
        if (Left(*context) || !writer->Write(reply)) return false;
      }
      return !Left(*context);
    })));
  }

  grpc::Status ListPresets(grpc::ServerContext* context, const v1::ListPresetsRequest* request,
                           v1::ListPresetsReply* reply) override {
    const Question question(this);
    return Answer(queries::ListPresets(*request), reply);
  }

  grpc::Status ListMetricSets(grpc::ServerContext* context,
                              const v1::ListMetricSetsRequest* request,
                              v1::ListMetricSetsReply* reply) override {
    const Question question(this);
    return Answer(queries::ListMetricSets(*request), reply);
  }

  grpc::Status SetHorizon(grpc::ServerContext* context, const v1::SetHorizonRequest* request,
                          v1::SetHorizonReply* reply) override {
    const Question question(this);
    SEQPOINT_RPC_CHECK(CheckJobName(request->job()));
    SEQPOINT_RPC_CHECK(CheckHorizon(request->horizon()));
    return Answer(backend_->SetHorizon(*request), reply);
  }

  grpc::Status Control(grpc::ServerContext* context, const v1::ControlRequest* request,
                       v1::ControlReply* reply) override {
    const Question question(this);
    SEQPOINT_RPC_CHECK(CheckJobName(request->job()));
    SEQPOINT_RPC_CHECK(CheckJobText("launch", request->launch()));
    SEQPOINT_RPC_CHECK(CheckShare("overhead_budget_share", request->overhead_budget_share()));
    SEQPOINT_RPC_CHECK(CheckProgramEnd(*request));
    if (!v1::ControlRequest::Action_IsValid(request->action()) ||
        request->action() == v1::ControlRequest::ACTION_UNSPECIFIED) {
      return ToGrpc(absl::InvalidArgumentError(absl::StrCat(
          "action = ", static_cast<int>(request->action()), " is not one that this daemon knows")));
    }
    return Answer(backend_->Control(*request), reply);
  }

  grpc::Status Analyze(grpc::ServerContext* context, grpc::ServerReader<v1::AnalyzeRequest>* reader,
                       v1::AnalyzeReply* reply) override {
    const Question question(this);
    v1::AnalyzeRequest request;
    const Counted log(&logs_);
    SEQPOINT_RPC_CHECK(CheckPlaces(logs_, kMaxLogs, "logs are being sent"));
    SEQPOINT_RPC_CHECK(Gather(reader, &request));
    SEQPOINT_RPC_CHECK(CheckHorizon(request.horizon()));
    SEQPOINT_RPC_CHECK(CheckShare("target_error", request.target_error()));
    SEQPOINT_RPC_CHECK(CheckPoints(request.points()));
    SEQPOINT_RPC_CHECK(CheckLog("log", request.log()));
    if (request.has_against()) SEQPOINT_RPC_CHECK(CheckLog("against", request.against()));
    SEQPOINT_RPC_CHECK(CheckWhole(*context));
    double confidence = 0;
    SEQPOINT_RPC_CHECK(SetConfidence(request.confidence(), &confidence));
    request.set_confidence(confidence);
    return Answer(backend_->Analyze(request), reply);
  }

  grpc::Status ImportJob(grpc::ServerContext* context,
                         grpc::ServerReader<v1::ImportJobRequest>* reader,
                         v1::ImportJobReply* reply) override {
    const Question question(this);
    v1::ImportJobRequest request;
    const Counted log(&logs_);
    SEQPOINT_RPC_CHECK(CheckPlaces(logs_, kMaxLogs, "logs are being sent"));
    SEQPOINT_RPC_CHECK(Gather(reader, &request));
    SEQPOINT_RPC_CHECK(CheckImport(request));
    SEQPOINT_RPC_CHECK(CheckWhole(*context));
    return Answer(backend_->ImportJob(request), reply);
  }

  grpc::Status GetPlaylist(grpc::ServerContext* context, const v1::GetPlaylistRequest* request,
                           v1::GetPlaylistReply* reply) override {
    const Question question(this);
    SEQPOINT_RPC_CHECK(CheckJobName(request->job()));
    SEQPOINT_RPC_CHECK(CheckPoints(request->points()));
    SEQPOINT_RPC_CHECK(CheckShare("target_error", request->target_error()));
    v1::GetPlaylistRequest complete = *request;
    double confidence = 0;
    SEQPOINT_RPC_CHECK(SetConfidence(request->confidence(), &confidence));
    complete.set_confidence(confidence);
    return Answer(backend_->GetPlaylist(complete), reply);
  }

  grpc::Status ProjectPlaylist(grpc::ServerContext* context,
                               const v1::ProjectPlaylistRequest* request,
                               v1::ProjectPlaylistReply* reply) override {
    const Question question(this);
    v1::ProjectPlaylistRequest complete = *request;
    double confidence = 0;
    SEQPOINT_RPC_CHECK(SetConfidence(request->confidence(), &confidence));
    complete.set_confidence(confidence);
    return Answer(backend_->ProjectPlaylist(complete), reply);
  }

  grpc::Status ImportTrace(grpc::ServerContext* context,
                           grpc::ServerReader<v1::ImportTraceRequest>* reader,
                           v1::ImportTraceReply* reply) override {
    const Question question(this);
    const Counted trace(&traces_);
    SEQPOINT_RPC_CHECK(CheckPlaces(traces_, kMaxTraces, "traces are being sent"));
    bool first = true, any_file = false;
    const auto next = [&](v1::ImportTraceRequest* piece) -> absl::StatusOr<bool> {
      if (!reader->Read(piece)) {
        absl::SleepFor(kCancelDelay);
        if (Left(*context)) {
          return absl::CancelledError("trace: its sender went away before its end");
        }
        if (!any_file) return absl::InvalidArgumentError("trace: no file has begun");
        return false;
      }
      if (std::exchange(first, false)) {
        if (absl::Status status = CheckNewJob(piece->name(), piece->run_id()); !status.ok()) {
          return status;
        }
      }
      absl::Status status = CheckTracePiece(*piece, &any_file);
      if (!status.ok()) return status;
      return true;
    };
    return Answered(Answer(backend_->ImportTrace(next), reply));
  }

  grpc::Status Replay(grpc::ServerContext* context, const v1::ReplayRequest* request,
                      v1::ReplayReply* reply) override {
    const Question question(this);
    const Counted replay(&replays_);
    SEQPOINT_RPC_CHECK(CheckPlaces(replays_, kMaxReplays, kReplays));
    SEQPOINT_RPC_CHECK(CheckJobName(request->job()));
    return Answered(Answer(backend_->Replay(*request, [&] { return Left(*context); }), reply));
  }

  grpc::Status WhatIf(grpc::ServerContext* context, const v1::WhatIfRequest* request,
                      v1::WhatIfReply* reply) override {
    const Question question(this);
    const Counted replay(&replays_);
    SEQPOINT_RPC_CHECK(CheckPlaces(replays_, kMaxReplays, kReplays));
    SEQPOINT_RPC_CHECK(CheckChanges(*request));
    SEQPOINT_RPC_CHECK(queries::CheckPresets(*request));
    const auto ask = [&](const v1::WhatIfRequest& complete) {
      return backend_->WhatIf(complete, [&] { return Left(*context); });
    };
    return Answered(AskWithConfidence(ask, *request, reply));
  }

 private:
  class Counted {
   public:
    explicit Counted(std::atomic<int>* count) : count_(count) { ++*count_; }
    ~Counted() { --*count_; }
    Counted(const Counted&) = delete;
    Counted& operator=(const Counted&) = delete;

   private:
    std::atomic<int>* const count_;
  };

  static absl::Status CheckPageSize(int size) {
    if (size >= 0) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("page_size = ", size, " is negative"));
  }
  int PageSize(int wanted) const {
    return std::min(wanted == 0 ? kDefaultPageSize : wanted, options_.max_page_size);
  }

  static absl::Status CheckPlaces(int taken, int most, const char* what) {
    if (taken <= most) return absl::OkStatus();
    return absl::ResourceExhaustedError(absl::StrCat(most, " ", what,
                                                     ", as many as this daemon takes at a time; ",
                                                     "try again when one of them has ended"));
  }

  grpc::Status Answered(grpc::Status status) const {
    if (status.error_code() != grpc::StatusCode::CANCELLED || !stopping_.HasBeenNotified()) {
      return status;
    }
    return ToGrpc(absl::UnavailableError("the daemon is ending"));
  }

  // Nobody waits for the answer any more.
  bool Left(const grpc::ServerContext& context) const {
    return context.IsCancelled() || stopping_.HasBeenNotified();
  }

  // Lives while one is answered.
  class Question {
   public:
    explicit Question(Service* service) : service_(service) { ++service_->questions_; }
    ~Question() {
      service_->last_question_ns_ = Clock::System().MonotonicNs();
      --service_->questions_;
    }
    Question(const Question&) = delete;
    Question& operator=(const Question&) = delete;

   private:
    Service* const service_;
  };

  // The pieces of a log, as one request.
  template <typename Request>
  static absl::Status Gather(grpc::ServerReader<Request>* reader, Request* request) {
    Request piece;
    if (!reader->Read(request)) return absl::InvalidArgumentError("log: it has no iteration");
    while (reader->Read(&piece)) {
      request->MergeFrom(piece);
      absl::Status status = CheckSize(*request);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  // The stream of a client that went away ends as that of one that has sent everything. Asked some
  // time after the last Read(), because the news of the former may come later than the end.
  static absl::Status CheckWhole(const grpc::ServerContext& context) {
    if (!context.IsCancelled()) return absl::OkStatus();
    return absl::CancelledError("log: its sender went away before its end");
  }

  // The questions whose answers carry intervals.
  template <typename Request, typename Reply>
  grpc::Status AskWithConfidence(absl::StatusOr<Reply> (service::Backend::*ask)(const Request&),
                                 const Request& request, Reply* reply) {
    return AskWithConfidence([&](const Request& complete) { return (backend_->*ask)(complete); },
                             request, reply);
  }
  template <typename Ask, typename Request, typename Reply>
  grpc::Status AskWithConfidence(const Ask& ask, const Request& request, Reply* reply) {
    SEQPOINT_RPC_CHECK(CheckJobName(request.job()));
    SEQPOINT_RPC_CHECK(CheckHorizon(request.horizon()));
    if constexpr (requires { request.has_part(); }) {
      if (request.has_part() && request.has_horizon()) {
        return ToGrpc(absl::InvalidArgumentError(
            "part: not with a horizon, which asks about another run; give one of the two"));
      }
    }
    double confidence = 0;
    SEQPOINT_RPC_CHECK(SetConfidence(request.confidence(), &confidence));
    Request complete = request;
    complete.set_confidence(confidence);
    return Answer(ask(complete), reply);
  }

  grpc::Status Watch(grpc::ServerContext* context, const v1::WatchJobRequest& request,
                     grpc::ServerWriter<v1::WatchJobReply>* writer) {
    absl::Duration interval = request.min_interval_ms() == 0
                                  ? kDefaultWatchInterval
                                  : absl::Milliseconds(request.min_interval_ms());
    // The first name may mean another job later ("the latest run of"): stay with the one found.
    std::string id = request.job();
    int64_t generation = -1;
    absl::Duration next_write;  // of the monotonic clock
    while (!context->IsCancelled()) {
      if (stopping_.Await(std::min(next_write - Now(), kWatchSlice))) {
        return ToGrpc(absl::UnavailableError("the daemon is ending"));
      }
      if (Now() < next_write) continue;
      absl::StatusOr<v1::Job> job = backend_->WaitForJob(id, generation, kWatchSlice);
      if (absl::IsDeadlineExceeded(job.status())) continue;
      if (!job.ok()) return ToGrpc(job.status());
      id = job->id();
      generation = job->generation();
      next_write = Now() + interval;
      v1::WatchJobReply reply;
      *reply.mutable_job() = *std::move(job);
      LeaveOutHistogram(reply.mutable_job());
      queries::MakeFit(&reply);
      if (!writer->Write(reply)) break;
      if (IsOver(reply.job())) return grpc::Status::OK;
    }
    return grpc::Status::CANCELLED;
  }

  const ServerOptions options_;
  service::Backend* const backend_;
  std::atomic<int> watchers_ = 0;
  std::atomic<int> questions_ = 0;
  std::atomic<int> logs_ = 0;
  std::atomic<int> traces_ = 0;
  std::atomic<int> replays_ = 0;
  std::atomic<int64_t> last_question_ns_ = 0;
  StopSignal stopping_;
};

}  // namespace

class Server::Impl {
 public:
  Impl(const ServerOptions& options, service::Backend* backend)
      : service_(options, backend), listener_(options.max_connections) {}

  absl::Status Start(const ServerOptions& options) {
    if (options.socket_path.empty() && options.tcp_address.empty()) {
      return absl::InvalidArgumentError("neither a socket nor a TCP address to listen on");
    }
    // gRPC's own clean-up, after its last object is gone, may wait ten seconds for a poller. A
    // reference that is never given back leaves it to the end of the process.
    static const bool kept = (grpc_init(), true);
    (void)kept;
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    grpc::ServerBuilder builder;
    builder.SetMaxReceiveMessageSize(static_cast<int>(options.max_request_bytes));
    builder.SetMaxSendMessageSize(static_cast<int>(options.max_reply_bytes));
    builder.SetResourceQuota(
        grpc::ResourceQuota("rpc").SetMaxThreads(options.max_watchers + kCallThreads));
    builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMs);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kIdleMs);
    builder.RegisterService(&service_);
    builder.RegisterService(&reflection_);
    using Builder = grpc::ServerBuilder::experimental_type;
    if (!options.socket_path.empty()) {
      unix_acceptor_ = builder.experimental().AddExternalConnectionAcceptor(
          Builder::ExternalConnectionType::FROM_FD, grpc::InsecureServerCredentials());
      absl::Status status = listener_.ListenUnix(options.socket_path, unix_acceptor_.get());
      if (!status.ok()) return status;
    }
    if (!options.tcp_address.empty()) {
      absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> credentials =
          TlsCredentials(options);
      if (!credentials.ok()) return credentials.status();
      tcp_acceptor_ = builder.experimental().AddExternalConnectionAcceptor(
          Builder::ExternalConnectionType::FROM_FD, *credentials);
      absl::StatusOr<int> port = listener_.ListenTcp(options.tcp_address, tcp_acceptor_.get());
      if (!port.ok()) return port.status();
      tcp_port_ = *port;
    }
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) {  // gRPC tells why in its own log
      return absl::InvalidArgumentError(
          "gRPC cannot start; TLS certificate and key must be PEM files and a pair");
    }
    listener_.Start();
    server_->GetHealthCheckService()->SetServingStatus("seqpoint.v1.Profiler", true);
    return absl::OkStatus();
  }

  void Stop(absl::Duration grace) {
    if (server_ == nullptr) return;
    service_.Stop();
    listener_.Stop();
    server_->GetHealthCheckService()->Shutdown();
    server_->Shutdown(
        gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                     gpr_time_from_nanos(absl::ToInt64Nanoseconds(grace), GPR_TIMESPAN)));
    server_->Wait();
    server_.reset();
  }

  int tcp_port() const { return tcp_port_; }
  absl::Duration since_last_question() const { return service_.since_last_question(); }

 private:
  static absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> TlsCredentials(
      const ServerOptions& options) {
    if (options.tls_certificate_file.empty() || options.tls_key_file.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("TCP address ", options.tcp_address,
                       " needs TLS: give a certificate and a key (--tls-certificate, --tls-key), "
                       "or use the unix socket"));
    }
    // Every client that connects may control and read jobs: without this everybody could.
    if (options.tls_client_ca_file.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("TCP address ", options.tcp_address,
                       " would serve everybody who reaches it: give the CA whose certificates "
                       "clients must show (--tls-client-ca), or use the unix socket"));
    }
    grpc::SslServerCredentialsOptions tls(
        GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
    absl::StatusOr<std::string> key = ReadFile("TLS key", options.tls_key_file);
    if (!key.ok()) return key.status();
    absl::StatusOr<std::string> certificate =
        ReadFile("TLS certificate", options.tls_certificate_file);
    if (!certificate.ok()) return certificate.status();
    tls.pem_key_cert_pairs.push_back({*key, *certificate});
    absl::StatusOr<std::string> ca = ReadFile("TLS client CA", options.tls_client_ca_file);
    if (!ca.ok()) return ca.status();
    tls.pem_root_certs = *ca;
    return grpc::SslServerCredentials(tls);
  }

  Service service_;
  Reflection reflection_;
  std::unique_ptr<Listener::Acceptor> unix_acceptor_, tcp_acceptor_;
  std::unique_ptr<grpc::Server> server_;
  Listener listener_;
  int tcp_port_ = 0;
};

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() { Stop(absl::Seconds(1)); }

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const ServerOptions& options,
                                                      service::Backend* backend) {
  auto impl = std::make_unique<Impl>(options, backend);
  if (absl::Status status = impl->Start(options); !status.ok()) return status;
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

void Server::Stop(absl::Duration grace) { impl_->Stop(grace); }
int Server::tcp_port() const { return impl_->tcp_port(); }
absl::Duration Server::since_last_question() const { return impl_->since_last_question(); }

}  // namespace seqpoint::rpc
