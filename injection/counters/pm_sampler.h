// Counters by CUPTI's PM sampling: all counters of the whole GPU in equal slices of time, other
// processes included. Nothing waits and no kernel is kept apart, so an iteration's counters are
// those of its time on the GPU: whole samples within it, and its share by time of those at its
// edges.
//
// An iteration lasts from the start on the GPU of its clock event (the batch's copy, a graph, a
// memset: what the daemon times it by) to that of the next one. A rule without such an event is
// timed by its calls: right where the GPU is idle at a boundary.
//
//   boundary ─▶ ExpectBegin ─▶ OnClock ─▶ Open ─▶ ... ─▶ boundary ─▶ ExpectEnd ─▶ OnClock ─▶ Close
//   OnRecord, from CUPTI's threads, brings the GPU's times; Decode waits for both.
//
// Sampling begins in Open and goes on until Decode knows the end: the hardware buffer keeps the
// oldest samples, which are the iteration's. Nothing stays enabled in between: the GPU's clocks are
// locked meanwhile (pytorch/pytorch#188849), so that iterations take other times, and CUPTI keeps a
// pointer to the configuration's image (pytorch/kineto#1532).
//
// Threading: as CounterBackend; enabled from any thread; OnBoundary, OnClock and Expect* under
// IterationState's lock; OnRecord and Expire from any thread.
#ifndef SEQPOINT_INJECTION_COUNTERS_PM_SAMPLER_H_
#define SEQPOINT_INJECTION_COUNTERS_PM_SAMPLER_H_

#include "injection/counters/backend.h"

namespace seqpoint::inject {

class PmSampler final : public CounterBackend {
 public:
  using CounterBackend::CounterBackend;

  CUpti_ProfilerType type() const override { return CUPTI_PROFILER_TYPE_PM_SAMPLING; }
  const char* words() const override { return "PM sampling"; }
  bool Exists() const override { return cupti_->CanSample(); }
  CUpti_Profiler_API api() const override { return CUPTI_PROFILER_PM_SAMPLING; }
  uint32_t Probe(CUcontext context, uint32_t device, uint8_t* image, size_t* bytes) override;
  uint32_t Open(CUcontext context, CounterConfig* config, uint64_t usual_ns) override;
  uint32_t Close() override;
  void Discard() override { Disable(); }
  bool Decode(CounterConfig* config, double* values, uint32_t* status) override;
  bool Sampled(abi::SampledEvent* seen) const override {
    *seen = seen_;
    return true;
  }
  void Disable() override;
  void Forget() override;
  // Other iterations than the measured one are not themselves while it is.
  bool enabled() const { return object_.load(std::memory_order_relaxed) != nullptr; }

  // A candidate for the begin of an iteration, at API time.
  void OnBoundary(uint64_t now_ns);
  // The clock event of the open candidate.
  void OnClock(uint32_t correlation_id);
  // The iteration that the open candidate begins, or ended, is measured. `recorded`: activity
  // records of clock events come.
  void ExpectBegin(bool recorded);
  void ExpectEnd(bool recorded);
  // A clock event may have been this call.
  void OnRecord(uint32_t correlation_id, uint64_t start_ns) {
    begin_.OnRecord(correlation_id, start_ns);
    end_.OnRecord(correlation_id, start_ns);
  }

 private:
  // One end of an iteration: known by its clock event's record, or by the call.
  struct Edge {
    std::atomic<bool> expected{false};  // the open candidate's clock event is this one's
    std::atomic<uint32_t> correlation_id{0};
    std::atomic<uint64_t> ns{0};

    void OnRecord(uint32_t id, uint64_t start_ns) {
      const uint32_t wanted = correlation_id.load(std::memory_order_acquire);
      if (wanted != 0 && wanted == id) ns.store(start_ns, std::memory_order_release);
    }
  };
  void Expect(Edge* edge, bool recorded);
  uint32_t StartFor(CounterConfig* config, uint64_t usual_ns);
  uint32_t DecodeSamples(CounterConfig* config, uint64_t begin_ns, uint64_t end_ns, double* values);
  uint32_t NewImage(CounterConfig* config);
  void Stop();

  std::atomic<CUpti_PmSampling_Object*> object_{nullptr};  // null: none enabled
  bool started_ = false;
  uint64_t started_ns_ = 0;
  uint64_t interval_ns_ = 0;
  uint64_t boundary_ns_ = 0;     // of the open candidate
  uint32_t boundary_clock_ = 0;  // its clock event, once it was seen
  Edge begin_, end_;
  bool end_expected_ = false;
  uint64_t closed_monotonic_ns_ = 0;
  abi::SampledEvent seen_ = {};  // of the last Decode
};

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_COUNTERS_PM_SAMPLER_H_
