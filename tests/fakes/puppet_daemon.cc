#include "tests/fakes/puppet_daemon.h"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string_view>
#include <utility>

#include "gtest/gtest.h"

namespace seqpoint {
namespace {

uint64_t NowNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

std::map<std::string, std::string> Fields(std::string_view text) {
  std::map<std::string, std::string> fields;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const size_t equals = line.find('=');
    if (equals == 0 || equals == line.npos) continue;
    fields.emplace(line.substr(0, equals), line.substr(equals + 1));
  }
  return fields;
}

template <typename T>
T As(absl::Span<const uint8_t> payload) {
  T value;
  memcpy(&value, payload.data(), sizeof(value));
  return value;
}

template <typename T>
std::string TextBehind(absl::Span<const uint8_t> payload) {
  return std::string(reinterpret_cast<const char*>(payload.data()) + sizeof(T),
                     payload.size() - sizeof(T));
}

}  // namespace

PuppetProcess::PuppetProcess(ingest::AcceptedProcess accepted)
    : fields(Fields(accepted.text)),
      id_(accepted.id),
      reader_(std::move(accepted.reader)),
      writer_(reader_->control_block()) {}

std::string PuppetProcess::Message(abi::Feature feature) const {
  std::string message;
  for (const FeatureResult& result : features) {
    if (result.feature == feature) message = result.message;
  }
  return message;
}

size_t PuppetProcess::CountRecords(abi::DataType type) const {
  size_t count = 0;
  for (const abi::DataRecord& record : records) {
    count += record.type == static_cast<uint16_t>(type);
  }
  return count;
}

void PuppetProcess::OnEvent(uint64_t number, abi::EventType type,
                            absl::Span<const uint8_t> payload) {
  switch (type) {
    case abi::EventType::kName: {
      const auto event = As<abi::NameEvent>(payload);
      names[event.name_id] = TextBehind<abi::NameEvent>(payload);
      break;
    }
    case abi::EventType::kBoundary:
      boundaries.push_back(As<abi::BoundaryEvent>(payload));
      break;
    case abi::EventType::kDecision:
      decisions.push_back(As<abi::DecisionEvent>(payload));
      break;
    case abi::EventType::kStep:
      steps.push_back(As<abi::StepEvent>(payload));
      break;
    case abi::EventType::kClock:
      clocks.push_back(As<abi::ClockEvent>(payload));
      break;
    case abi::EventType::kMicroBatch:
      micro_batches.push_back(As<abi::MicroBatchEvent>(payload));
      break;
    case abi::EventType::kSync:
      syncs.push_back(As<abi::SyncEvent>(payload));
      break;
    case abi::EventType::kRule:
      rules.push_back(As<abi::RuleEvent>(payload));
      break;
    case abi::EventType::kWindow:
      windows.push_back(As<abi::WindowEvent>(payload));
      break;
    case abi::EventType::kClockStep:
      clock_steps.push_back(As<abi::ClockStepEvent>(payload));
      break;
    case abi::EventType::kCounters: {
      CountersResult result;
      result.event = As<abi::CountersEvent>(payload);
      result.values.resize(result.event.count);
      memcpy(result.values.data(), payload.data() + sizeof(abi::CountersEvent),
             result.values.size() * sizeof(double));
      counters.push_back(std::move(result));
      break;
    }
    case abi::EventType::kKernelCounters: {
      KernelResult result;
      result.event = As<abi::KernelCountersEvent>(payload);
      result.values.resize(result.event.count);
      memcpy(result.values.data(), payload.data() + sizeof(abi::KernelCountersEvent),
             result.values.size() * sizeof(double));
      kernel_counters.push_back(std::move(result));
      break;
    }
    case abi::EventType::kSampled:
      sampled.push_back(As<abi::SampledEvent>(payload));
      break;
    case abi::EventType::kCost:
      costs.push_back(As<abi::CostEvent>(payload));
      break;
    case abi::EventType::kStandDown:
      stand_downs.push_back(
          {As<abi::StandDownEvent>(payload), TextBehind<abi::StandDownEvent>(payload)});
      break;
    case abi::EventType::kCommunicator:
      communicators.push_back(
          {As<abi::CommunicatorEvent>(payload), TextBehind<abi::CommunicatorEvent>(payload)});
      break;
    case abi::EventType::kCollectiveKind: {
      const auto event = As<abi::CollectiveKindEvent>(payload);
      collective_kinds[event.kind] = {event, TextBehind<abi::CollectiveKindEvent>(payload)};
      break;
    }
    case abi::EventType::kConfig:
      configs.push_back({As<abi::ConfigEvent>(payload), TextBehind<abi::ConfigEvent>(payload)});
      break;
    case abi::EventType::kDevice:
      devices.push_back({As<abi::DeviceEvent>(payload), TextBehind<abi::DeviceEvent>(payload)});
      break;
    case abi::EventType::kFeature: {
      const auto event = As<abi::FeatureEvent>(payload);
      features.push_back({static_cast<abi::Feature>(event.feature),
                          static_cast<abi::FeatureState>(event.state), event.code,
                          TextBehind<abi::FeatureEvent>(payload)});
      break;
    }
    default:
      ADD_FAILURE() << "event of type " << static_cast<int>(type) << ", number " << number;
  }
}

void PuppetProcess::OnData(absl::Span<const abi::DataRecord> data) {
  for (const abi::DataRecord& record : data) {
    if (record.type == static_cast<uint16_t>(abi::DataType::kCall)) {
      calls.push_back(record.call);
    } else {
      records.push_back(record);
    }
  }
}

void PuppetProcess::Poll(uint64_t now_ns) {
  reader_->Poll(*this, now_ns);
  reader_->Release(reader_->cursor());
  stats = reader_->stats();
}

PuppetDaemon::PuppetDaemon(const std::string& directory) {
  auto server = ingest::InjectServer::Listen(directory, {}, this);
  EXPECT_TRUE(server.ok()) << server.status();
  if (server.ok()) server_ = *std::move(server);
}

PuppetDaemon::~PuppetDaemon() { Stop(); }

void PuppetDaemon::When(std::function<bool(const PuppetProcess&)> condition, Action action) {
  script_.push_back({std::move(condition), std::move(action)});
}

void PuppetDaemon::OnCalls(size_t calls, Action action) {
  When([calls](const PuppetProcess& process) { return process.calls.size() >= calls; },
       std::move(action));
}

absl::Status PuppetDaemon::OnProcess(ingest::AcceptedProcess process) {
  processes_.push_back(std::make_unique<PuppetProcess>(std::move(process)));
  return absl::OkStatus();
}

void PuppetDaemon::OnGone(uint64_t id) {
  for (auto& process : processes_) {
    if (process->id_ != id) continue;
    process->reader_->SetProcessGone();
    process->gone = true;
  }
}

void PuppetDaemon::Start() {
  thread_ = std::thread([this] { Serve(); });
}

void PuppetDaemon::Serve() {
  constexpr uint64_t kDrainNs = 2'000'000'000;
  uint64_t stop_since_ns = 0;
  while (server_ != nullptr && !abandoned_) {
    server_->RunOnce(1);
    const uint64_t now_ns = NowNs();
    bool all_gone = true;
    size_t progress = 0;
    for (auto& process : processes_) {
      if (heartbeats_) process->writer_.Heartbeat(now_ns);
      if (!read_late_ || process->gone) process->Poll(now_ns);
      all_gone = all_gone && process->gone;
      progress += process->calls.size() + process->steps.size();
    }
    progress_ = progress;
    while (!processes_.empty() && script_position_ < script_.size() &&
           script_[script_position_].condition(*processes_[0])) {
      script_[script_position_++].action(*processes_[0]);
    }
    for (const auto& process : processes_) {
      if (always_ && !process->gone) always_(*process);
    }
    if (!stop_) continue;
    if (all_gone) break;
    if (stop_since_ns == 0) stop_since_ns = now_ns;
    if (now_ns - stop_since_ns > kDrainNs) break;
  }
}

void PuppetDaemon::Stall(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

void PuppetDaemon::Abandon() {
  abandoned_ = true;
  Stop();
  server_.reset();
}

void PuppetDaemon::Stop() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
}

}  // namespace seqpoint
