// Our own trace windows, from the store as traces.
//
// Threading: none. Ownership: keeps a pointer to the store, and the names of the processes whose
// windows were read.
#ifndef DAEMON_QUERIES_STORED_WINDOWS_H_
#define DAEMON_QUERIES_STORED_WINDOWS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "daemon/store/store.h"
#include "daemon/trace/trace.h"
#include "daemon/traces/window_reader.h"
#include "injection/abi/records.h"

namespace seqpoint::queries {

// Iterations first to last of a rank, by number; of several incarnations the last one.
absl::StatusOr<std::map<int64_t, IterationRow>> ReadRows(Store& store, int64_t job_id, int32_t rank,
                                                         int64_t first, int64_t last);

class StoredWindows {
 public:
  enum class Names : uint8_t { kAsRecorded, kDemangled };
  StoredWindows(Store* store, Names names) : store_(*store), names_wanted_(names) {}

  // `window`: where it began and ended on the CPU; nothing: all that is there. `record`, if any,
  // sees each record.
  using Visitor = absl::FunctionRef<void(const abi::DataRecord&)>;
  absl::StatusOr<trace::Trace> Read(
      int64_t job_id, int32_t rank, int64_t number,
      const std::optional<traces::WindowReader::Window>& window,
      Visitor record = [](const abi::DataRecord&) {});

  // WindowReader::begin_ns of the window that was read last.
  int64_t begin_ns() const { return begin_ns_; }

 private:
  Store& store_;
  const Names names_wanted_;
  std::map<int64_t, std::vector<NameRow>> names_;  // by process
  int64_t begin_ns_ = 0;
};

// For exports: their CPU threads are those of one process.
void NameOwnRows(trace::Trace* trace);

// A row of its own, of the process that the first CPU thread is of.
uint32_t AnnotationRow(trace::Trace* trace);
// In that row.
void AddAnnotation(std::string_view name, int64_t begin_ns, int64_t end_ns, trace::Trace* trace);

// "ProfilerStep#40 lengths=[37]": an iteration as ChromeWriter and TraceReader know it.
std::string StepName(int64_t number, const std::vector<int64_t>& lengths);

}  // namespace seqpoint::queries

#endif  // DAEMON_QUERIES_STORED_WINDOWS_H_
