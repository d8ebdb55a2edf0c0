// Recordings for tests, operator by operator: an execution trace and the time line of the same.
#ifndef TESTS_SUPPORT_RECORDED_OPERATORS_H_
#define TESTS_SUPPORT_RECORDED_OPERATORS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/placement/measured_problem.h"

namespace seqpoint::placement {

struct TestTensor {
  uint64_t storage = 0;
  uint64_t elements = 256;  // of 4 bytes
  uint64_t tensor = 0;      // 0: as the storage
};
using TestTensors = std::vector<TestTensor>;

// Each call is an operator on thread 1, after the one before it. What is between Begin and End is
// called by the operator that was begun.
class TestRecording {
 public:
  explicit TestRecording(std::string name = "r", double weight = 1) {
    recording_.name = name;
    recording_.weight = weight;
    recording_.graph.source = name + ".et.json";
    recording_.graph.names = {""};
    recording_.times.source = name + ".json";
    recording_.times.names = {""};
    recording_.times.threads = {"1"};
  }

  // `us`: how long it takes itself, without what it calls; `gap_us`: nothing runs before it.
  struct Options {
    int64_t us = 10;
    int64_t gap_us = 0;
    int64_t sequence = -1;
    std::string schema = "?";  // "?": "NAME(Tensor a, Tensor b, Tensor c) -> Tensor"
    int64_t gpu_us = 0;
  };

  TestRecording& Begin(const std::string& name, const TestTensors& inputs,
                       const TestTensors& outputs, Options options, uint8_t scope = 0) {
    now_us_ += options.gap_us;
    traces::ExecutedOperator op;
    op.id = ++id_ + 2;
    op.parent = open_.empty() ? 2 : recording_.graph.operators[open_.back()].id;
    op.record_function = id_;
    op.sequence = options.sequence;
    op.thread = 1;
    op.forward_thread = scope == traces::kBackwardScope ? 1 : 0;
    op.scope = scope;
    op.name = Number(&recording_.graph.names, name);
    const std::string schema =
        options.schema == "?" ? name + "(Tensor a, Tensor b, Tensor c) -> Tensor" : options.schema;
    op.schema = schema.empty() ? 0 : Number(&recording_.graph.names, schema);
    op.first_use = recording_.graph.uses.size();
    op.inputs = static_cast<uint32_t>(inputs.size());
    op.outputs = static_cast<uint32_t>(outputs.size());
    for (const TestTensors* list : {&inputs, &outputs}) {
      for (size_t i = 0; i < list->size(); ++i) {
        const TestTensor& tensor = (*list)[i];
        recording_.graph.uses.push_back(
            {.tensor = tensor.tensor == 0 ? 1000 + tensor.storage : tensor.tensor,
             .storage = tensor.storage,
             .elements = tensor.elements,
             .item_bytes = 4,
             .argument = static_cast<uint32_t>(i)});
      }
    }
    open_.push_back(recording_.graph.operators.size());
    spans_.push_back(recording_.times.spans.size());
    recording_.graph.operators.push_back(op);
    recording_.times.spans.push_back({.begin_ns = now_us_ * 1000,
                                      .name = Number(&recording_.times.names, name),
                                      .kind = scope == traces::kUserScope
                                                  ? trace::SpanKind::kAnnotation
                                                  : trace::SpanKind::kOperator});
    if (options.gpu_us > 0) AddWork(options.gpu_us, trace::WorkKind::kKernel, 0);
    now_us_ += options.us;
    return *this;
  }

  TestRecording& End() {
    recording_.times.spans[spans_.back()].end_ns = now_us_ * 1000;
    spans_.pop_back();
    open_.pop_back();
    return *this;
  }

  TestRecording& Op(const std::string& name, const TestTensors& inputs, const TestTensors& outputs,
                    Options options) {
    return Begin(name, inputs, outputs, options).End();
  }
  TestRecording& Op(const std::string& name, const TestTensors& inputs,
                    const TestTensors& outputs) {
    return Op(name, inputs, outputs, Options());
  }

  // A node of the backward pass as the engine evaluates it, with one operator in it.
  TestRecording& Backward(const std::string& node, int64_t sequence, const TestTensors& inputs,
                          const TestTensors& outputs, int64_t us = 10) {
    Begin("autograd::engine::evaluate_function: " + node, {}, {}, {.us = 0, .schema = ""});
    Begin(node, {}, {}, {.us = 0, .sequence = sequence, .schema = ""}, traces::kBackwardScope);
    Op("aten::" + node, inputs, outputs, {.us = us});
    return End().End();
  }

  // "optimizer.step()" with what is called in between.
  TestRecording& BeginStep() {
    return Begin("Optimizer.step#SGD.step", {}, {}, {.us = 0, .schema = ""}, traces::kUserScope);
  }

  void AddWork(int64_t us, trace::WorkKind kind, uint64_t bytes) {
    const uint64_t correlation = recording_.times.calls.size() + 1;
    recording_.times.calls.push_back({.begin_ns = now_us_ * 1000,
                                      .end_ns = now_us_ * 1000 + 1,
                                      .correlation = correlation,
                                      .kind = trace::CallKind::kLaunch});
    if (recording_.times.streams.empty()) recording_.times.streams.push_back({0, 7});
    recording_.times.works.push_back({.start_ns = now_us_ * 1000,
                                      .end_ns = (now_us_ + us) * 1000,
                                      .correlation = correlation,
                                      .bytes = bytes,
                                      .kind = kind});
  }

  Recording& recording() { return recording_; }

 private:
  static uint32_t Number(std::vector<std::string>* names, const std::string& name) {
    for (size_t i = 1; i < names->size(); ++i) {
      if ((*names)[i] == name) return static_cast<uint32_t>(i);
    }
    names->push_back(name);
    return static_cast<uint32_t>(names->size() - 1);
  }

  Recording recording_;
  uint64_t id_ = 0;
  int64_t now_us_ = 1000;
  std::vector<size_t> open_, spans_;  // those that were begun
};

}  // namespace seqpoint::placement

#endif  // TESTS_SUPPORT_RECORDED_OPERATORS_H_
