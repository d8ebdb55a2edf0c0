// Small traces for tests, in microseconds:
//
//   TestTrace t;
//   t.Launch(0, 5, "gemm", 10, 30);  // called at [0, 5), the kernel runs at [10, 30)
//   IterationMarks marks = FindMarks(t.trace());
//
// Threading: none. Ownership: values.
#ifndef TESTS_SUPPORT_SMALL_TRACE_H_
#define TESTS_SUPPORT_SMALL_TRACE_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "daemon/trace/trace.h"

namespace seqpoint::trace {

class TestTrace {
 public:
  TestTrace() {
    trace_.names.assign(1, "");
    trace_.threads = {"main", "autograd", "loader"};
    for (int i = 0; i < 4; ++i) trace_.streams.push_back({0, i});
  }

  TestTrace& On(uint32_t thread) {
    thread_ = thread;
    return *this;
  }
  TestTrace& Into(uint32_t stream) {
    stream_ = stream;
    return *this;
  }

  // Answers the correlation id.
  uint64_t Api(double begin_us, double end_us, const std::string& name, CallKind kind) {
    trace_.calls.push_back({Ns(begin_us), Ns(end_us), ++correlation_, Name(name), thread_, kind});
    return correlation_;
  }
  void Run(const std::string& name, double start_us, double end_us,
           WorkKind kind = WorkKind::kKernel, bool pageable = false) {
    Work work;
    work.start_ns = Ns(start_us);
    work.end_ns = Ns(end_us);
    work.correlation = correlation_;
    work.name = Name(name);
    work.stream = stream_;
    work.kind = kind;
    work.pageable = pageable;
    trace_.works.push_back(work);
  }
  void Launch(double begin_us, double end_us, const std::string& name, double start_us,
              double until_us) {
    Api(begin_us, end_us, "cudaLaunchKernel", CallKind::kLaunch);
    Run(name, start_us, until_us);
  }
  void Operator(double begin_us, double end_us, const std::string& name) {
    trace_.spans.push_back({Ns(begin_us), Ns(end_us), Name(name), thread_, SpanKind::kOperator});
  }
  void Annotation(double begin_us, double end_us, const std::string& name) {
    trace_.spans.push_back({Ns(begin_us), Ns(end_us), Name(name), thread_, SpanKind::kAnnotation});
  }
  void Wait(uint64_t correlation, uint64_t record, uint32_t stream, uint32_t source) {
    trace_.waits.push_back({correlation, record, stream, source});
  }

  Trace& trace() { return trace_; }
  const Trace& trace() const { return trace_; }

  static int64_t Ns(double us) { return std::llround(us * 1000); }

 private:
  uint32_t Name(const std::string& name) {
    const auto it = std::find(trace_.names.begin(), trace_.names.end(), name);
    if (it != trace_.names.end()) return static_cast<uint32_t>(it - trace_.names.begin());
    trace_.names.push_back(name);
    return static_cast<uint32_t>(trace_.names.size() - 1);
  }

  Trace trace_;
  uint32_t thread_ = 0, stream_ = 0;
  uint64_t correlation_ = 0;
};

}  // namespace seqpoint::trace

#endif  // TESTS_SUPPORT_SMALL_TRACE_H_
