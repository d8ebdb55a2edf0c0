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
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "daemon/base/change_signal.h"
#include "daemon/base/clock.h"
#include "daemon/base/horizon.h"
#include "daemon/base/limits.h"
#include "daemon/base/status_macros.h"
#include "daemon/queries/metric_sets.h"
#include "daemon/queries/presets.h"
#include "daemon/queries/reply_text.h"
#include "daemon/rpc/access.h"
#include "daemon/rpc/ingest_service.h"
#include "daemon/rpc/listener.h"
#include "daemon/rpc/reflection.h"
#include "daemon/rpc/relay.h"
#include "daemon/rpc/requests.h"
#include "daemon/rpc/slow_readers.h"
#include "daemon/rpc/tls_credentials.h"
#include "daemon/rpc/tls_files.h"
#include "seqpoint/v1/profiler.grpc.pb.h"
#include "spdlog/spdlog.h"

namespace seqpoint::rpc {
namespace {

// How soon a watcher that went away is noticed.
constexpr absl::Duration kWatchSlice = absl::Milliseconds(250);
constexpr absl::Duration kDefaultWatchInterval = absl::Milliseconds(200);
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
// Calls at a time on a connection: RFC 9113 asks for 100 at least, and there are no more threads.
constexpr int kMostStreams = 100;
// How long after the end of a stream it is known whether its client went away.
constexpr absl::Duration kCancelDelay = absl::Milliseconds(20);

#define SEQPOINT_RPC_CHECK(expression)                      \
  if (absl::Status status_ = (expression); !status_.ok()) { \
    return ToGrpc(status_);                                 \
  }

grpc::Status ToGrpc(const absl::Status& status) {
  // The codes have the same numbers in both.
  std::string message(status.message());
  if (message.size() > kMaxErrorBytes) message.replace(kMaxErrorBytes, std::string::npos, " ...");
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

  // A call that asks the backend as it is.
#define SEQPOINT_RPC_CALL(Name)                                                                  \
  grpc::Status Name(grpc::ServerContext* context, const v1::Name##Request* request,              \
                    v1::Name##Reply* reply) override {                                           \
    return Ask([&](const auto& complete) { return backend_->Name(complete); }, *request, reply); \
  }
  SEQPOINT_RPC_CALL(ListNodes)
  SEQPOINT_RPC_CALL(GetFleet)
  SEQPOINT_RPC_CALL(GetJob)
  SEQPOINT_RPC_CALL(DeleteJob)
  SEQPOINT_RPC_CALL(UpdateJob)
  SEQPOINT_RPC_CALL(GetSeqPoints)
  SEQPOINT_RPC_CALL(ListIterations)
  SEQPOINT_RPC_CALL(Project)
  SEQPOINT_RPC_CALL(GetCounters)
  SEQPOINT_RPC_CALL(GetKernels)
  SEQPOINT_RPC_CALL(GetRoofline)
  SEQPOINT_RPC_CALL(GetRanks)
  SEQPOINT_RPC_CALL(Compare)
  SEQPOINT_RPC_CALL(SetHorizon)
  SEQPOINT_RPC_CALL(Control)
  SEQPOINT_RPC_CALL(GetPlaylist)
  SEQPOINT_RPC_CALL(ProjectPlaylist)
#undef SEQPOINT_RPC_CALL

  grpc::Status PrepareJob(grpc::ServerContext* context, const v1::PrepareJobRequest* request,
                          v1::PrepareJobReply* reply) override {
    const auto ask = [&](v1::PrepareJobRequest complete) -> absl::StatusOr<v1::PrepareJobReply> {
      SEQPOINT_RETURN_IF_ERROR(queries::ResolveMetricSets(&complete));
      SEQPOINT_RETURN_IF_ERROR(CheckRest(complete));  // with the sets of its file
      return backend_->PrepareJob(complete);
    };
    return Ask(ask, *request, reply);
  }

  grpc::Status ListJobs(grpc::ServerContext* context, const v1::ListJobsRequest* request,
                        v1::ListJobsReply* reply) override {
    const auto ask = [&](const auto& complete) { return backend_->ListJobs(complete); };
    grpc::Status status = Ask(ask, *request, reply);
    for (v1::Job& job : *reply->mutable_jobs()) {
      job.clear_processes();
      LeaveOutHistogram(&job);
    }
    return status;
  }

  grpc::Status ListPresets(grpc::ServerContext* context, const v1::ListPresetsRequest* request,
                           v1::ListPresetsReply* reply) override {
    return Ask(queries::ListPresets, *request, reply);
  }

  grpc::Status ListMetricSets(grpc::ServerContext* context,
                              const v1::ListMetricSetsRequest* request,
                              v1::ListMetricSetsReply* reply) override {
    return Ask(queries::ListMetricSets, *request, reply);
  }

  grpc::Status WatchJob(grpc::ServerContext* context, const v1::WatchJobRequest* request,
                        grpc::ServerWriter<v1::WatchJobReply>* writer) override {
    // `seqpoint run` watches its job from before its program connects, which may import for long.
    const Question question(this);
    SEQPOINT_RPC_CHECK(CheckJobName(request->job()));
    if (request->min_interval_ms() < 0) {
      return ToGrpc(absl::InvalidArgumentError(
          absl::StrCat("min_interval_ms = ", request->min_interval_ms(), " is negative")));
    }
    const Counted watcher(&watchers_);
    if (watcher.place() > options_.max_watchers) {
      return ToGrpc(absl::ResourceExhaustedError(
          absl::StrCat(options_.max_watchers, " watchers are connected, as many as this daemon ",
                       "allows; close one, or ask with GetJob from time to time")));
    }
    return Watch(context, *request, writer);
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
      SEQPOINT_RPC_CHECK(CheckPlaces(replay->place(), kMaxReplays, kReplays));
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

  grpc::Status Analyze(grpc::ServerContext* context, grpc::ServerReader<v1::AnalyzeRequest>* reader,
                       v1::AnalyzeReply* reply) override {
    return AskOfLog([&](const auto& log) { return backend_->Analyze(log); }, *context, reader,
                    reply);
  }

  grpc::Status ImportJob(grpc::ServerContext* context,
                         grpc::ServerReader<v1::ImportJobRequest>* reader,
                         v1::ImportJobReply* reply) override {
    return AskOfLog([&](const auto& log) { return backend_->ImportJob(log); }, *context, reader,
                    reply);
  }

  grpc::Status ImportTrace(grpc::ServerContext* context,
                           grpc::ServerReader<v1::ImportTraceRequest>* reader,
                           v1::ImportTraceReply* reply) override {
    const Question question(this);
    const Counted trace(&traces_);
    SEQPOINT_RPC_CHECK(CheckPlaces(trace.place(), kMaxTraces, "traces are being sent"));
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
        SEQPOINT_RETURN_IF_ERROR(CheckNewJob(piece->name(), piece->run_id()));
      }
      SEQPOINT_RETURN_IF_ERROR(CheckTracePiece(*piece, &any_file));
      return true;
    };
    return Answered(Answer(backend_->ImportTrace(next), reply));
  }

  grpc::Status Replay(grpc::ServerContext* context, const v1::ReplayRequest* request,
                      v1::ReplayReply* reply) override {
    const auto ask = [&](const auto& complete) {
      return backend_->Replay(complete, [&] { return Left(*context); });
    };
    return AskForReplay(ask, *request, reply);
  }

  grpc::Status WhatIf(grpc::ServerContext* context, const v1::WhatIfRequest* request,
                      v1::WhatIfReply* reply) override {
    const auto ask = [&](const auto& complete) -> absl::StatusOr<v1::WhatIfReply> {
      SEQPOINT_RETURN_IF_ERROR(queries::CheckPresets(complete));
      return backend_->WhatIf(complete, [&] { return Left(*context); });
    };
    return AskForReplay(ask, *request, reply);
  }

 private:
  class Counted {
   public:
    explicit Counted(std::atomic<int>* count) : count_(count), place_(++*count_) {}
    ~Counted() { --*count_; }
    Counted(const Counted&) = delete;
    Counted& operator=(const Counted&) = delete;
    // The number of those counted when this one came, itself among them.
    int place() const { return place_; }

   private:
    std::atomic<int>* const count_;
    const int place_;
  };

  static absl::Status CheckPlaces(int place, int most, const char* what) {
    if (place <= most) return absl::OkStatus();
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
      SEQPOINT_RETURN_IF_ERROR(CheckSize(*request));
    }
    return absl::OkStatus();
  }

  // Calls `ask`, once the request is checked and has its defaults.
  template <typename AskFunction, typename Request, typename Reply>
  grpc::Status Ask(const AskFunction& ask, Request request, Reply* reply) {
    const Question question(this);
    SEQPOINT_RPC_CHECK(Complete(options_.max_page_size, &request));
    return Answer<Reply>(ask(request), reply);
  }

  // The same for a log that comes in pieces.
  template <typename AskFunction, typename Request, typename Reply>
  grpc::Status AskOfLog(const AskFunction& ask, const grpc::ServerContext& context,
                        grpc::ServerReader<Request>* reader, Reply* reply) {
    const Question question(this);
    Request request;
    const Counted log(&logs_);
    SEQPOINT_RPC_CHECK(CheckPlaces(log.place(), kMaxLogs, "logs are being sent"));
    SEQPOINT_RPC_CHECK(Gather(reader, &request));
    SEQPOINT_RPC_CHECK(Complete(options_.max_page_size, &request));
    // The stream of a client that went away ends as that of one that has sent everything. This is
    // asked some time after the last Read(), because the news of the former may come later than the
    // end.
    if (context.IsCancelled()) {
      return ToGrpc(absl::CancelledError("log: its sender went away before its end"));
    }
    return Answer<Reply>(ask(request), reply);
  }

  // The same for what takes the memory of a replay.
  template <typename AskFunction, typename Request, typename Reply>
  grpc::Status AskForReplay(const AskFunction& ask, const Request& request, Reply* reply) {
    const Counted replay(&replays_);
    SEQPOINT_RPC_CHECK(CheckPlaces(replay.place(), kMaxReplays, kReplays));
    return Answered(Ask(ask, request, reply));
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

class GrpcServer final : public Server {
 public:
  // One of the two is not null.
  GrpcServer(const ServerOptions& options, service::Backend* backend, Relay* relay)
      : slow_readers_(options.write_patience),
        relay_(relay),
        listener_(options.max_connections, options.allowed_users) {
    if (backend != nullptr) service_.emplace(options, backend);
    if (backend != nullptr && options.hub) ingest_.emplace(*options.hub);
  }
  ~GrpcServer() override { GrpcServer::Stop(absl::Seconds(1)); }

  absl::Status Listen(const ServerOptions& options) {
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
    // A peer that vanished without a word is noticed, and nodes may ping as often as they do.
    const auto pong_ms = static_cast<int>(absl::ToInt64Milliseconds(options.pong_patience));
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS,
                               static_cast<int>(absl::ToInt64Milliseconds(options.ping_interval)));
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, pong_ms);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, pong_ms);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMostStreams);
    std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>>
        interceptors;
    interceptors.push_back(std::make_unique<SlowReaders::Factory>(&slow_readers_));
    builder.experimental().SetInterceptorCreators(std::move(interceptors));
    if (service_) {
      builder.RegisterService(&*service_);
      builder.RegisterService(&reflection_);
    }
    if (ingest_) builder.RegisterService(&*ingest_);
    if (relay_ != nullptr) builder.RegisterCallbackGenericService(relay_);
    using Builder = grpc::ServerBuilder::experimental_type;
    if (!options.socket_path.empty()) {
      unix_acceptor_ = builder.experimental().AddExternalConnectionAcceptor(
          Builder::ExternalConnectionType::FROM_FD, grpc::InsecureServerCredentials());
      SEQPOINT_RETURN_IF_ERROR(listener_.ListenUnix(options.socket_path, unix_acceptor_.get()));
    }
    if (!options.tcp_address.empty()) {
      SEQPOINT_ASSIGN_OR_RETURN(tls_, MakeTls(options));
      tcp_acceptor_ = builder.experimental().AddExternalConnectionAcceptor(
          Builder::ExternalConnectionType::FROM_FD, tls_);
      SEQPOINT_ASSIGN_OR_RETURN(tcp_port_,
                                listener_.ListenTcp(options.tcp_address, tcp_acceptor_.get()));
    }
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) {  // gRPC tells why in its own log
      return absl::InvalidArgumentError("gRPC cannot start, for a reason that it logs by itself");
    }
    listener_.Start();
    server_->GetHealthCheckService()->SetServingStatus("seqpoint.v1.Profiler", true);
    return absl::OkStatus();
  }

  void Stop(absl::Duration grace) override {
    if (server_ == nullptr) return;
    if (service_) service_->Stop();
    listener_.Stop();
    server_->GetHealthCheckService()->Shutdown();
    server_->Shutdown(
        gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                     gpr_time_from_nanos(absl::ToInt64Nanoseconds(grace), GPR_TIMESPAN)));
    server_->Wait();
    server_.reset();
  }

  int tcp_port() const override { return tcp_port_; }
  absl::Duration since_last_question() const override {
    return service_ ? service_->since_last_question() : absl::InfiniteDuration();
  }

 private:
  static absl::StatusOr<std::shared_ptr<TlsCredentials>> MakeTls(const ServerOptions& options) {
    if (options.tls_certificate_file.empty() || options.tls_key_file.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("TCP address ", options.tcp_address,
                       " needs TLS: give a certificate and a key (--tls-certificate, --tls-key), "
                       "or use the unix socket"));
    }
    const bool tokens = !options.access.token_file.empty();
    if (options.tls_client_ca_file.empty() && !tokens) {
      return absl::InvalidArgumentError(
          absl::StrCat("TCP address ", options.tcp_address,
                       " would serve everybody who reaches it: give the CA whose certificates "
                       "clients must show (--tls-client-ca), or their tokens (--tokens), or use "
                       "the unix socket"));
    }
    SEQPOINT_ASSIGN_OR_RETURN(auto files,
                              TlsFiles::Open({.certificate = options.tls_certificate_file,
                                              .key = options.tls_key_file,
                                              .authorities = options.tls_client_ca_file}));
    SEQPOINT_ASSIGN_OR_RETURN(auto access, Access::Open(options.access));
    auto certificates = TlsCredentials::Certificates::kNotAskedFor;
    if (!options.tls_client_ca_file.empty()) {
      certificates = tokens ? TlsCredentials::Certificates::kVerifiedIfShown
                            : TlsCredentials::Certificates::kRequired;
      if (!access->has_names()) {
        spdlog::warn(
            "every certificate of {} may control jobs and report as a node: --control-names, "
            "--read-names and --node-names say who may",
            options.tls_client_ca_file);
      }
    }
    return std::make_shared<TlsCredentials>(certificates, std::move(files), std::move(access));
  }

  SlowReaders slow_readers_;
  std::optional<Service> service_;       // of a daemon that leads
  std::optional<IngestService> ingest_;  // of a hub that does
  Relay* const relay_;                   // of one that does not; else null
  Reflection reflection_;
  std::shared_ptr<TlsCredentials> tls_;  // of TCP
  std::unique_ptr<Listener::Acceptor> unix_acceptor_, tcp_acceptor_;
  std::unique_ptr<grpc::Server> server_;
  Listener listener_;
  int tcp_port_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const ServerOptions& options,
                                                      service::Backend* backend) {
  auto server = std::make_unique<GrpcServer>(options, backend, /*relay=*/nullptr);
  SEQPOINT_RETURN_IF_ERROR(server->Listen(options));
  return server;
}

absl::StatusOr<std::unique_ptr<Server>> Server::StartRelay(const ServerOptions& options,
                                                           Relay* relay) {
  auto server = std::make_unique<GrpcServer>(options, /*backend=*/nullptr, relay);
  SEQPOINT_RETURN_IF_ERROR(server->Listen(options));
  return server;
}

}  // namespace seqpoint::rpc
