// The events of a Chrome trace as PyTorch's profiler (Kineto) of all ages writes them, on CUDA and
// ROCm, and as `seqpoint export --chrome` does.
//
// Kept are complete events (ph X) of these categories: GPU work (kernel, gpu_memcpy, gpu_memset),
// calls of the runtime and driver, what synchronising calls wait for (cuda_sync), operators and
// annotations of the CPU threads; and flows (ph s, f) from forward operators to backward ones.
// Everything else is counted; flows from launches to work follow from their correlations.
//
// Threading: none. Ownership: the builder outlives this.
#ifndef DAEMON_TRACES_CHROME_EVENTS_H_
#define DAEMON_TRACES_CHROME_EVENTS_H_

#include <simdjson.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/traces/element_scanner.h"
#include "daemon/traces/trace_builder.h"

namespace seqpoint::traces {

class ChromeEvents : public ElementSink {
 public:
  // `operators`: as TraceReaderOptions::operators.
  explicit ChromeEvents(TraceBuilder* builder, bool operators = false)
      : builder_(builder), operators_(operators) {}

  void OnElement(std::string_view element, uint64_t at) override;
  void OnDamage(uint64_t at) override;
  // After the last element: `rest` is the document without its events.
  void OnRest(const std::string& rest);

  uint64_t events() const { return events_; }  // elements that are events of any kind
  const std::vector<std::string>& keys() const { return keys_; }  // of the rest
  const std::string& profiler() const { return profiler_; }       // that wrote it
  // Why ChromeWriter says that it is no trace of one process; empty: it is.
  const std::string& only_to_view() const { return only_to_view_; }

 private:
  enum class Category : uint8_t {
    kNotNeeded,
    kKernel,
    kCopy,
    kMemset,
    kCall,
    kSync,
    kOperator,
    kAnnotation,
    kPython,
    kFlow,  // from a forward operator to its backward one
  };
  // The fields of one event as they are written; views into the element.
  struct Event {
    char phase = 0;
    Category category = Category::kNotNeeded;
    std::string_view name;  // unescaped; in the parser
    std::string_view process, thread, ts, duration, id;
    std::string_view correlation, stream, device, bytes, kind, argument_name, lengths;
    std::string_view wait_stream, wait_record;
    std::string_view elements, element_type;  // of a collective
    std::string_view record_function;
    uint32_t grid[3] = {0, 0, 0};
    uint32_t block[3] = {0, 0, 0};
    bool graph = false, pageable = false;
  };

  static Category CategoryOf(std::string_view name);
  bool SkipByHead(std::string_view element);
  bool Parse(std::string_view element, Event* event);
  static simdjson::error_code ParseArguments(simdjson::ondemand::object arguments, Event* event);
  bool Take(const Event& event);  // false: it lacks a time
  void TakeWork(const Event& event, int64_t begin_ns, int64_t end_ns);
  void TakeSync(const Event& event);
  static int32_t DeviceOf(const Event& event);

  TraceBuilder* builder_;
  const bool operators_;
  simdjson::ondemand::parser parser_;
  uint64_t events_ = 0;
  std::vector<std::string> keys_;
  std::string profiler_ = "Kineto";
  std::string only_to_view_;
};

}  // namespace seqpoint::traces

#endif  // DAEMON_TRACES_CHROME_EVENTS_H_
