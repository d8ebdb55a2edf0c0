#include "daemon/rpc/uplink.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "daemon/base/change_signal.h"
#include "daemon/base/clock.h"
#include "daemon/base/status_macros.h"
#include "daemon/service/node_reports.h"
#include "injection/abi/ring.h"
#include "proto/host_name.h"
#include "seqpoint/v1/ingest.grpc.pb.h"
#include "spdlog/spdlog.h"

namespace seqpoint::rpc {
namespace {

constexpr absl::Duration kFirstPause = absl::Seconds(1);
constexpr absl::Duration kLongestPause = absl::Seconds(60);
// A hub that answers, but cannot take reports now: its database or another hub takes over within
// seconds. It refuses a call of 1,000 nodes 200 times a second.
constexpr absl::Duration kLongestPauseOfAnswering = absl::Seconds(8);
// gRPC makes no connection while nobody waits in it: an attempt lasts so long.
constexpr std::chrono::seconds kConnect(1);
constexpr absl::Duration kSlice = absl::Milliseconds(250);  // how soon it notices its end
// A hub answers the hello from its store: within milliseconds, or never. gRPC's pings do not show
// that it does not.
constexpr absl::Duration kHelloPatience = absl::Seconds(10);
constexpr int kBatchesAtOnce = 16;
constexpr size_t kMostRequests = 64;  // for traces; a hub has one under way

absl::Status ErrorOf(const grpc::Status& status) {
  return {static_cast<absl::StatusCode>(status.error_code()), status.error_message()};
}

// One connection to the hub.
class HubStream {
 public:
  HubStream(const std::shared_ptr<grpc::Channel>& channel, service::Outbox& outbox,
            const service::TraceAnswers& traces)
      : outbox_(outbox), traces_(traces), stub_(v1::Ingest::NewStub(channel)) {}

  // Sends until it breaks, or `stop`. `on_hello` is called once the hub has taken the node.
  template <typename OnHello>
  absl::Status Run(const std::atomic<bool>& stop, const OnHello& on_hello);
  void Cancel() { context_.TryCancel(); }

 private:
  absl::StatusOr<v1::NodeMessage> Hello();
  // Says hello, and waits for the hub's.
  absl::StatusOr<v1::HubHello> Greet();
  absl::Status EndEarly(absl::Status why) {
    context_.TryCancel();
    (void)stream_->Finish();
    return why;
  }
  void Read();
  void AnswerRequests();  // for traces, until the stream is broken
  bool Write(const v1::NodeMessage& message) ABSL_LOCKS_EXCLUDED(writing_) {
    absl::MutexLock lock(&writing_);
    return stream_->Write(message);
  }
  // False: the stream is broken, or `stop`.
  bool AwaitWindow(int64_t bytes, const std::atomic<bool>& stop);

  service::Outbox& outbox_;
  const service::TraceAnswers& traces_;
  const std::unique_ptr<v1::Ingest::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::NodeMessage, v1::HubMessage>> stream_;
  int64_t window_bytes_ = 0;

  absl::Mutex writing_;  // two threads write
  absl::Mutex mutex_;
  ChangeSignal changed_;
  std::deque<v1::TraceRequest> requests_ ABSL_GUARDED_BY(mutex_);
  bool greeted_ ABSL_GUARDED_BY(mutex_) = false;  // the hub answered the hello, or broke
  bool broken_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t waiting_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<std::pair<int64_t, int64_t>> waiting_ ABSL_GUARDED_BY(mutex_);  // number, bytes
};

absl::StatusOr<v1::NodeMessage> HubStream::Hello() {
  SEQPOINT_ASSIGN_OR_RETURN(const auto whole, outbox_.ListWhole());
  v1::NodeMessage message;
  v1::NodeHello& hello = *message.mutable_hello();
  service::Outbox::Identity identity = outbox_.identity();
  hello.set_node_id(std::move(identity.node_id));
  hello.set_former_node_id(std::move(identity.former_node_id));
  hello.set_host(HostName());
  hello.set_version(SEQPOINT_VERSION);
  hello.set_oldest_format(service::NodeReports::kFormat);
  hello.set_newest_format(service::NodeReports::kFormat);
  hello.set_abi_version(abi::kAbiVersion);
  hello.set_last_sequence(whole.last);
  hello.set_first_sequence(whole.first);
  return message;
}

void HubStream::Read() {
  v1::HubMessage message;
  while (stream_->Read(&message)) {
    if (message.has_plan()) outbox_.plans().Offer(std::move(*message.mutable_plan()));
    if (message.has_trace_request()) {
      absl::MutexLock lock(&mutex_);
      if (requests_.size() < kMostRequests) {
        requests_.push_back(std::move(*message.mutable_trace_request()));
      }
      changed_.NotifyAll();
    }
    if (!message.has_acknowledged()) continue;
    const int64_t sequence = message.acknowledged();
    outbox_.Acknowledge(std::min(sequence, outbox_.last_sequence()));
    absl::MutexLock lock(&mutex_);
    while (!waiting_.empty() && waiting_.front().first <= sequence) {
      waiting_bytes_ -= waiting_.front().second;
      waiting_.pop_front();
    }
    changed_.NotifyAll();
  }
  absl::MutexLock lock(&mutex_);
  broken_ = true;
  changed_.NotifyAll();
}

void HubStream::AnswerRequests() {
  while (true) {
    v1::TraceRequest request;
    {
      absl::MutexLock lock(&mutex_);
      const auto due = [this] {
        mutex_.AssertReaderHeld();
        return broken_ || !requests_.empty();
      };
      while (!changed_.Await(mutex_, absl::Minutes(1), due)) continue;
      if (broken_) return;
      request = std::move(requests_.front());
      requests_.pop_front();
    }
    traces_.Answer(request, [this](const v1::TracePart& part) {
      v1::NodeMessage message;
      *message.mutable_trace() = part;
      return Write(message);
    });
  }
}

bool HubStream::AwaitWindow(int64_t bytes, const std::atomic<bool>& stop) {
  absl::MutexLock lock(&mutex_);
  while (!stop && !broken_) {
    const bool room = changed_.Await(mutex_, kSlice, [&] {
      mutex_.AssertReaderHeld();
      return broken_ || waiting_.empty() || waiting_bytes_ + bytes <= window_bytes_;
    });
    if (room) break;
  }
  return !stop && !broken_;
}

absl::StatusOr<v1::HubHello> HubStream::Greet() {
  SEQPOINT_ASSIGN_OR_RETURN(const v1::NodeMessage hello, Hello());
  stream_ = stub_->Connect(&context_);
  bool late = false;
  std::thread patience([this, &late] {
    absl::MutexLock lock(&mutex_);
    late = !changed_.Await(mutex_, kHelloPatience, [this] {
      mutex_.AssertReaderHeld();
      return greeted_;
    });
    if (late) context_.TryCancel();
  });
  v1::HubMessage reply;
  const bool came = stream_->Write(hello) && stream_->Read(&reply);
  {
    absl::MutexLock lock(&mutex_);
    greeted_ = true;
    changed_.NotifyAll();
  }
  patience.join();
  if (late) {
    return EndEarly(absl::DeadlineExceededError(
        absl::StrCat("it did not answer this node's hello within ",
                     absl::FormatDuration(kHelloPatience), "; see its log")));
  }
  if (!came) {
    const grpc::Status status = stream_->Finish();  // what the hub says
    return status.ok() ? absl::UnavailableError("the hub ended the stream") : ErrorOf(status);
  }
  if (!reply.has_hello()) return EndEarly(absl::UnavailableError("the hub did not say hello"));
  const int64_t last = hello.hello().last_sequence(), next = reply.hello().next_sequence();
  if (next > last + 1) {
    return EndEarly(absl::FailedPreconditionError(
        absl::StrCat("it asks for batch ", next, ", and this node's newest one is ", last,
                     ": it has batches that are not in this node's store")));
  }
  return reply.hello();
}

template <typename OnHello>
absl::Status HubStream::Run(const std::atomic<bool>& stop, const OnHello& on_hello) {
  SEQPOINT_ASSIGN_OR_RETURN(const v1::HubHello hub, Greet());
  window_bytes_ = hub.window_bytes();
  outbox_.Acknowledge(std::min(hub.acknowledged(), outbox_.last_sequence()));
  on_hello(hub);
  std::thread reader([this] { Read(); });
  std::thread answerer([this] { AnswerRequests(); });
  absl::Status status;
  int64_t sent = hub.next_sequence() - 1;
  while (status.ok() && AwaitWindow(0, stop)) {
    outbox_.plans().Heard(Clock::System().MonotonicNs());
    if (!outbox_.AwaitBatches(sent, kSlice)) continue;
    auto rows = outbox_.Read(sent, kBatchesAtOnce);
    if (!rows.ok()) {
      status = rows.status();
      break;
    }
    for (OutboxRow& row : *rows) {
      const auto bytes = static_cast<int64_t>(row.bytes.size());
      if (!AwaitWindow(bytes, stop)) break;
      {
        absl::MutexLock lock(&mutex_);
        waiting_.emplace_back(row.sequence, bytes);
        waiting_bytes_ += bytes;
      }
      v1::NodeMessage message;
      message.mutable_batch()->set_sequence(row.sequence);
      *message.mutable_batch()->mutable_frame() = std::move(row.bytes);
      if (!Write(message)) break;  // the reader says why
      sent = row.sequence;
    }
  }
  {
    // A stream that the hub ended has the hub's reason, and a cancelled one has none.
    absl::MutexLock lock(&mutex_);
    if (!broken_) context_.TryCancel();
  }
  reader.join();
  answerer.join();
  const grpc::Status end = stream_->Finish();
  if (!status.ok() || stop) return status;
  return end.ok() ? absl::UnavailableError("the hub ended the stream") : ErrorOf(end);
}

class UplinkImpl final : public Uplink {
 public:
  UplinkImpl(std::vector<std::unique_ptr<HubChannel>> hubs, service::Outbox* outbox,
             const service::TraceAnswers* traces)
      : hubs_(std::move(hubs)), outbox_(*outbox), traces_(*traces) {
    connection_.set_address(hubs_[0]->address());
    outbox_.SetHub(connection_);
    thread_ = std::thread([this] { Run(); });
  }
  ~UplinkImpl() override {
    stop_ = true;
    {
      absl::MutexLock lock(&mutex_);
      if (stream_ != nullptr) stream_->Cancel();
      changed_.NotifyAll();
    }
    thread_.join();
  }

 private:
  void Run() {
    std::minstd_rand random(std::random_device{}());
    absl::Duration pause = kFirstPause;
    for (size_t next = 0; !stop_; next = (next + 1) % hubs_.size()) {
      HubChannel& hub = *hubs_[next];
      const std::shared_ptr<grpc::Channel> channel = hub.Get();
      const bool connected = channel->WaitForConnected(std::chrono::system_clock::now() + kConnect);
      // gRPC has one sentence for all causes, in words of its own.
      const std::string why_not = connected || stop_ ? "" : hub.WhyNotConnected();
      HubStream stream(channel, outbox_, traces_);
      {
        absl::MutexLock lock(&mutex_);
        stream_ = &stream;
      }
      const absl::Status status = stream.Run(stop_, [&](const v1::HubHello& hello) {
        spdlog::info("hub {} ({}) is connected; it asks for batch {} of this node", hub.address(),
                     hello.version(), hello.next_sequence());
        pause = kFirstPause;
        absl::MutexLock lock(&mutex_);
        SetConnection(hub, "");
      });
      if (absl::IsOutOfRange(status) && outbox_.RenewNodeId()) {
        spdlog::warn(
            "hub {} has other batches under this node's id: the node takes a new one. Processes "
            "that the hub has under the old id are over for it, and what they report from now on "
            "is not taken; this daemon's own answers have it",
            hub.address());
      }
      absl::MutexLock lock(&mutex_);
      stream_ = nullptr;
      if (stop_) return;
      const std::string why = why_not.empty() ? std::string(status.message()) : why_not;
      SetConnection(hub, absl::StrCat(why, "; this node goes on by itself and tries again"));
      if (next + 1 < hubs_.size()) continue;
      const double part = std::uniform_real_distribution<double>(0.5, 1)(random);
      changed_.Await(mutex_, part * pause, [this] { return stop_.load(); });
      const bool answers = connected && absl::IsUnavailable(status);
      pause = std::min(2 * pause, answers ? kLongestPauseOfAnswering : kLongestPause);
    }
  }

  // An empty error: it is connected.
  void SetConnection(const HubChannel& hub, const std::string& error)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const bool is_news = connection_.connected() || error != connection_.error();
    if (!error.empty() && is_news) spdlog::warn("hub {}: {}", hub.address(), error);
    connection_.set_address(hub.address());
    connection_.set_connected(error.empty());
    connection_.set_error(error);
    outbox_.SetHub(connection_);
  }

  const std::vector<std::unique_ptr<HubChannel>> hubs_;  // one at least; of the thread
  service::Outbox& outbox_;
  const service::TraceAnswers& traces_;
  std::atomic<bool> stop_ = false;

  absl::Mutex mutex_;
  ChangeSignal changed_;
  v1::HubConnection connection_ ABSL_GUARDED_BY(mutex_);
  HubStream* stream_ ABSL_GUARDED_BY(mutex_) = nullptr;  // null: none
  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Uplink>> Uplink::Start(const UplinkOptions& options,
                                                      service::Outbox* outbox,
                                                      const service::TraceAnswers* traces) {
  std::vector<std::unique_ptr<HubChannel>> hubs;
  for (const auto part : absl::StrSplit(options.addresses, ',')) {
    const std::string address(absl::StripAsciiWhitespace(part));
    if (address.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--hub ", options.addresses, ": one of the addresses between the commas is empty"));
    }
    SEQPOINT_ASSIGN_OR_RETURN(hubs.emplace_back(), HubChannel::Open(address, options.files));
  }
  return std::make_unique<UplinkImpl>(std::move(hubs), outbox, traces);
}

}  // namespace seqpoint::rpc
