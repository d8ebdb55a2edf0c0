#include "tests/support/ingest_node.h"

#include <algorithm>
#include <chrono>
#include <random>
#include <utility>

#include "daemon/base/zstd_frame.h"
#include "injection/abi/ring.h"

namespace seqpoint {
namespace {

constexpr size_t kIdBytes = 16;
constexpr int kPingMs = 10'000, kPongMs = 5'000;
constexpr std::chrono::seconds kConnect(1);
constexpr absl::Duration kLongestPauseOfAnswering = absl::Seconds(8);  // as a node's

std::string IdOf(const std::string& host) {
  std::string id = host.substr(0, kIdBytes);
  id.resize(kIdBytes, '.');
  return id;
}

}  // namespace

IngestNode::IngestNode(IngestNodeOptions options)
    : options_(std::move(options)), id_(IdOf(options_.host)) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kPingMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kPongMs);
  for (const char* backoff :
       {GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, GRPC_ARG_MAX_RECONNECT_BACKOFF_MS}) {
    arguments.SetInt(backoff, static_cast<int>(absl::ToInt64Milliseconds(options_.first_pause)));
  }
  // Each node has a connection of its own.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  channel_ = grpc::CreateCustomChannel(
      options_.address,
      options_.credentials ? options_.credentials : grpc::InsecureChannelCredentials(), arguments);
  stub_ = v1::Ingest::NewStub(channel_);
  thread_ = std::thread([this] { Run(); });
}

IngestNode::~IngestNode() {
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
    if (context_ != nullptr) context_->TryCancel();
  }
  thread_.join();
}

void IngestNode::Add(const std::string& reports) { AddFrame(ToZstdFrame(reports)); }

void IngestNode::AddFrame(std::string frame) {
  absl::MutexLock lock(&mutex_);
  frame_bytes_ += static_cast<int64_t>(frame.size());
  batches_.push_back(std::move(frame));
  ++last_;
}

int64_t IngestNode::last() const {
  absl::MutexLock lock(&mutex_);
  return last_;
}
int64_t IngestNode::acknowledged() const {
  absl::MutexLock lock(&mutex_);
  return acknowledged_;
}
int64_t IngestNode::frame_bytes() const {
  absl::MutexLock lock(&mutex_);
  return frame_bytes_;
}
int IngestNode::connections() const {
  absl::MutexLock lock(&mutex_);
  return connections_;
}
int64_t IngestNode::plans() const {
  absl::MutexLock lock(&mutex_);
  return plans_;
}
std::string IngestNode::error() const {
  absl::MutexLock lock(&mutex_);
  return error_;
}

bool IngestNode::AwaitAcknowledged(int64_t sequence, absl::Duration timeout) {
  const auto reached = [this, sequence]()
                           ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return acknowledged_ >= sequence; };
  absl::MutexLock lock(&mutex_);
  return mutex_.AwaitWithTimeout(absl::Condition(&reached), timeout);
}

bool IngestNode::AwaitWaiting(int64_t most, absl::Duration timeout) {
  const auto reached = [this, most]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return last_ - acknowledged_ <= most;
  };
  absl::MutexLock lock(&mutex_);
  return mutex_.AwaitWithTimeout(absl::Condition(&reached), timeout);
}

void IngestNode::Run() {
  std::minstd_rand random(std::random_device{}());
  absl::Duration pause = options_.first_pause;
  while (true) {
    Connect();
    absl::MutexLock lock(&mutex_);
    if (std::exchange(taken_, false)) pause = options_.first_pause;
    const double part = std::uniform_real_distribution<double>(0.5, 1)(random);
    if (mutex_.AwaitWithTimeout(absl::Condition(&stop_), part * pause)) return;
    pause =
        std::min(2 * pause, refused_for_now_ ? kLongestPauseOfAnswering : options_.longest_pause);
  }
}

void IngestNode::Connect() {
  grpc::ClientContext context;
  v1::NodeMessage hello;
  {
    absl::MutexLock lock(&mutex_);
    if (stop_) return;
    context_ = &context;
    broken_ = false;
    v1::NodeHello& to = *hello.mutable_hello();
    to.set_node_id(id_);
    to.set_host(options_.host);
    to.set_version("test");
    to.set_oldest_format(1);
    to.set_newest_format(1);
    to.set_abi_version(abi::kAbiVersion);
    to.set_first_sequence(acknowledged_ + 1);
    to.set_last_sequence(last_);
  }
  // gRPC makes no connection while nobody waits in it.
  const bool connected = channel_->WaitForConnected(std::chrono::system_clock::now() + kConnect);
  const std::unique_ptr<Stream> stream = stub_->Connect(&context);
  v1::HubMessage reply;
  const bool answered = stream->Write(hello) && stream->Read(&reply);
  if (answered && reply.has_hello()) {
    Begin(reply.hello());
    std::thread reader([&] { Read(*stream); });
    Send(*stream);
    context.TryCancel();
    reader.join();
  } else if (answered) {
    context.TryCancel();
  }
  const grpc::Status status = stream->Finish();
  absl::MutexLock lock(&mutex_);
  context_ = nullptr;
  refused_for_now_ = connected && status.error_code() == grpc::StatusCode::UNAVAILABLE;
  error_ = status.error_message();
}

void IngestNode::Begin(const v1::HubHello& hello) {
  absl::MutexLock lock(&mutex_);
  taken_ = true;
  ++connections_;
  window_bytes_ = hello.window_bytes();
  on_the_way_ = 0;
  sent_ = acknowledged_;
  Acknowledge(hello.acknowledged());
  // The hub has those in between, and has not stored them yet.
  while (sent_ < hello.next_sequence() - 1) {
    on_the_way_ += static_cast<int64_t>(BatchOf(++sent_).size());
  }
}

void IngestNode::Acknowledge(int64_t sequence) {
  while (acknowledged_ < std::min(sequence, last_)) {
    if (acknowledged_ < sent_) on_the_way_ -= static_cast<int64_t>(batches_.front().size());
    batches_.pop_front();
    ++acknowledged_;
  }
  if (sent_ < acknowledged_) sent_ = acknowledged_;
}

void IngestNode::Send(Stream& stream) {
  const auto due = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    if (stop_ || broken_) return true;
    if (sent_ == last_) return false;
    const auto size = static_cast<int64_t>(BatchOf(sent_ + 1).size());
    return on_the_way_ == 0 || on_the_way_ + size <= window_bytes_;
  };
  while (true) {
    v1::NodeMessage message;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(&due));
      if (stop_ || broken_) return;
      const std::string& frame = BatchOf(sent_ + 1);
      message.mutable_batch()->set_sequence(++sent_);
      message.mutable_batch()->set_frame(frame);
      on_the_way_ += static_cast<int64_t>(frame.size());
    }
    if (!stream.Write(message)) return;
  }
}

void IngestNode::Read(Stream& stream) {
  v1::HubMessage message;
  while (stream.Read(&message)) {
    absl::MutexLock lock(&mutex_);
    plans_ += message.has_plan();
    if (message.has_acknowledged()) Acknowledge(message.acknowledged());
  }
  absl::MutexLock lock(&mutex_);
  broken_ = true;
}

}  // namespace seqpoint
