// A scripted daemon for tests of the injected library: takes rings over inject.sock with the
// product's own server and reader, keeps everything it reads, and writes the control blocks that a
// test tells it to.
//
//   PuppetDaemon daemon(directory);
//   daemon.OnCalls(200, [](Process& p) { p.Send(control); });   // once 200 calls were read
//   ... run the program ...
//   daemon.Stop();
//   daemon.process(0).boundaries ...
//
// Threading: a thread of its own serves the socket; a test reads processes only after Stop().
#ifndef SEQPOINT_TESTS_INTEGRATION_INJECTION_PUPPET_DAEMON_H_
#define SEQPOINT_TESTS_INTEGRATION_INJECTION_PUPPET_DAEMON_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "daemon/ingest/control_writer.h"
#include "daemon/ingest/inject_server.h"
#include "daemon/ingest/ring_reader.h"
#include "injection/abi/control.h"
#include "injection/abi/records.h"

namespace seqpoint {

struct CountersResult {
  abi::CountersEvent event;
  std::vector<double> values;
};
struct KernelResult {
  abi::KernelCountersEvent event;
  std::vector<double> values;
};
struct ConfigResult {
  abi::ConfigEvent event;
  std::string message;
};
struct FeatureResult {
  abi::Feature feature;
  abi::FeatureState state;
  uint32_t code;
  std::string message;
};

struct DeviceResult {
  abi::DeviceEvent event;
  std::string name;
};

struct CommunicatorResult {
  abi::CommunicatorEvent event;
  std::string name;
};

struct CollectiveKindResult {
  abi::CollectiveKindEvent event;
  std::string text;
};

struct StandDownResult {
  abi::StandDownEvent event;
  std::string holder;
};

// The events that one profiled process sent.
class PuppetProcess : public ingest::RingSink {
 public:
  explicit PuppetProcess(ingest::AcceptedProcess accepted);

  // Writes the control block; the generation is set here.
  void Send(const abi::Control& control) { writer_.Write(control); }
  // For a daemon that goes mad: the process' own memory.
  abi::ControlBlock* control_block() { return reader_->control_block(); }

  std::map<std::string, std::string> fields;  // of Hello
  std::map<uint32_t, std::string> names;
  std::vector<abi::CallRecord> calls;
  std::vector<abi::DataRecord> records;  // other data records
  std::vector<abi::BoundaryEvent> boundaries;
  std::vector<abi::DecisionEvent> decisions;
  std::vector<abi::StepEvent> steps;
  std::vector<abi::ClockEvent> clocks;
  std::vector<abi::MicroBatchEvent> micro_batches;
  std::vector<abi::SampledEvent> sampled;
  std::vector<abi::SyncEvent> syncs;
  std::vector<abi::RuleEvent> rules;
  std::vector<abi::WindowEvent> windows;
  std::vector<abi::ClockStepEvent> clock_steps;
  std::vector<CountersResult> counters;
  std::vector<KernelResult> kernel_counters;
  std::vector<ConfigResult> configs;
  std::vector<FeatureResult> features;
  std::vector<DeviceResult> devices;
  std::vector<StandDownResult> stand_downs;
  std::vector<abi::CostEvent> costs;
  std::vector<CommunicatorResult> communicators;
  std::map<uint32_t, CollectiveKindResult> collective_kinds;
  std::vector<abi::DataRecord> collectives;  // arrivals, too
  uint64_t calls_missing = 0;
  bool gone = false;
  ingest::RingStats stats;

  // The sentence of the feature's last state, or an empty string.
  std::string Message(abi::Feature feature) const;
  size_t CountRecords(abi::DataType type) const;

 private:
  friend class PuppetDaemon;
  void OnEvent(uint64_t number, abi::EventType type, absl::Span<const uint8_t> payload) override;
  void OnData(absl::Span<const abi::DataRecord> records) override;
  void OnCollectives(const abi::DataRecord& record) override { collectives.push_back(record); }
  void OnCallsMissing(uint64_t first, uint64_t count) override { calls_missing += count; }
  void Poll(uint64_t now_ns);

  uint64_t id_;
  std::unique_ptr<ingest::RingReader> reader_;
  ingest::ControlWriter writer_;
};

class PuppetDaemon : private ingest::InjectServer::Handler {
 public:
  using Action = std::function<void(PuppetProcess&)>;

  explicit PuppetDaemon(const std::string& directory);
  ~PuppetDaemon() override;

  // Runs `action` in the daemon's thread again and again, for each process while it lives. Before
  // Start.
  void Always(Action action) { always_ = std::move(action); }
  // Runs `action` for the first process as soon as `condition` holds; actions run in the order in
  // which they were added, each once. Before Start.
  void When(std::function<bool(const PuppetProcess&)> condition, Action action);
  void OnCalls(size_t calls, Action action);
  // Heartbeats stop after this call, as if the daemon hung.
  void StopHeartbeats() { heartbeats_ = false; }

  // From the daemon's thread: does nothing for a while, as if it was stopped.
  void Stall(int milliseconds);

  // Takes rings, but reads none before its process is gone. Before Start.
  void ReadOnlyAfterTheEnd() { read_late_ = true; }

  void Start();
  // Is gone at once, as if killed; what was read stays.
  void Abandon();
  // Serves until every process is gone and read, then stops.
  void Stop();

  // Calls and events read so far, of all processes; from any thread.
  size_t progress() const { return progress_; }
  size_t process_count() const { return processes_.size(); }
  PuppetProcess& process(size_t index) { return *processes_[index]; }

 private:
  absl::Status OnProcess(ingest::AcceptedProcess process) override;
  void OnGone(uint64_t id) override;
  void Serve();

  struct Step {
    std::function<bool(const PuppetProcess&)> condition;
    Action action;
  };
  std::unique_ptr<ingest::InjectServer> server_;
  std::vector<std::unique_ptr<PuppetProcess>> processes_;
  std::vector<Step> script_;
  size_t script_position_ = 0;
  Action always_;
  bool read_late_ = false;
  std::atomic<bool> heartbeats_{true};
  std::atomic<bool> stop_{false};
  std::atomic<bool> abandoned_{false};
  std::atomic<size_t> progress_{0};
  std::thread thread_;
};

}  // namespace seqpoint

#endif  // SEQPOINT_TESTS_INTEGRATION_INJECTION_PUPPET_DAEMON_H_
