// Makes a trace::Trace for the reader of a format: it numbers names, threads and streams, and knows
// the kind of a call or a copy by its name.
//
// Threading: none. Ownership: holds the trace until it is taken.
#ifndef DAEMON_TRACES_TRACE_BUILDER_H_
#define DAEMON_TRACES_TRACE_BUILDER_H_

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <new>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "daemon/trace/trace.h"

namespace seqpoint::traces {

// A table that grows without being copied, and becomes a vector without being there twice: its
// chunks are pages of their own, so that they go back at once and not into the heap.
template <typename Row>
class GrowingTable {
 public:
  static_assert(std::is_trivially_copyable_v<Row>);

  GrowingTable() = default;
  GrowingTable(const GrowingTable&) = delete;
  GrowingTable& operator=(const GrowingTable&) = delete;
  ~GrowingTable() { Release(); }

  void Add(const Row& row) {
    if (size_ % kChunkRows == 0) {
      void* pages =
          mmap(nullptr, kChunkBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (pages == MAP_FAILED) throw std::bad_alloc();
      chunks_.push_back(static_cast<Row*>(pages));
    }
    new (chunks_.back() + size_++ % kChunkRows) Row(row);
  }
  size_t size() const { return size_; }

  // Leaves it empty.
  std::vector<Row> Take() {
    std::vector<Row> rows;
    rows.reserve(size_);
    for (Row*& chunk : chunks_) {
      rows.insert(rows.end(), chunk, chunk + std::min(kChunkRows, size_ - rows.size()));
      munmap(std::exchange(chunk, nullptr), kChunkBytes);
    }
    Release();
    return rows;
  }

 private:
  void Release() {
    for (Row* chunk : chunks_) {
      if (chunk != nullptr) munmap(chunk, kChunkBytes);
    }
    chunks_.clear();
    size_ = 0;
  }

  static constexpr size_t kChunkBytes = size_t{1} << 20;
  static constexpr size_t kChunkRows = kChunkBytes / sizeof(Row);
  std::vector<Row*> chunks_;
  size_t size_ = 0;
};

class TraceBuilder {
 public:
  TraceBuilder();
  TraceBuilder(const TraceBuilder&) = delete;
  TraceBuilder& operator=(const TraceBuilder&) = delete;

  // The trace without its calls, works, spans and flows.
  trace::Trace& trace() { return trace_; }
  GrowingTable<trace::Call>& calls() { return calls_; }
  GrowingTable<trace::Span>& spans() { return spans_; }
  void AddWork(const trace::Work& work) {
    any_correlation_ |= work.correlation != 0;
    works_.Add(work);
  }
  // One end of a flow; it is in the trace when both are known. `id`: as it is written.
  void AddFlowEnd(std::string_view id, bool forward, int64_t at_ns, uint32_t thread);
  size_t work_count() const { return works_.size(); }
  bool any_correlation() const { return any_correlation_; }  // of the works
  void set_base_ns(int64_t base_ns) { base_ns_ = base_ns; }  // all times are relative to it

  trace::Trace Take();

  uint32_t Name(std::string_view text);
  // By the process's and the thread's number or name, as it is written.
  uint32_t Thread(std::string_view process, std::string_view thread);
  // The thread's name; empty: it has none.
  void SetThreadName(std::string_view process, std::string_view thread, std::string_view name);
  uint32_t Stream(int32_t device, int64_t id);

  // The kind of a runtime or driver call of CUDA or HIP, by its name.
  trace::CallKind CallKindOf(uint32_t name) const { return facts_[name].call; }
  // Whether a kernel with this name is one of a library for communication between GPUs.
  bool IsCollective(uint32_t name) const { return facts_[name].collective; }

 private:
  // The set holds the numbers of names: their text is in the trace, once.
  struct NameHash {
    using is_transparent = void;
    const std::vector<std::string>* names;
    size_t operator()(std::string_view text) const { return absl::Hash<std::string_view>()(text); }
    size_t operator()(uint32_t id) const { return (*this)(std::string_view((*names)[id])); }
  };
  struct NameEqual {
    using is_transparent = void;
    const std::vector<std::string>* names;
    std::string_view Text(uint32_t id) const { return (*names)[id]; }
    static std::string_view Text(std::string_view text) { return text; }
    template <typename A, typename B>
    bool operator()(const A& a, const B& b) const {
      return Text(a) == Text(b);
    }
  };

  trace::Trace trace_;
  GrowingTable<trace::Call> calls_;
  GrowingTable<trace::Work> works_;
  GrowingTable<trace::Span> spans_;
  GrowingTable<trace::Flow> flows_;
  struct FlowEnds {
    trace::Flow flow;
    bool forward = false, backward = false;  // is known
  };
  absl::flat_hash_map<std::string, FlowEnds> half_flows_;
  bool any_correlation_ = false;
  int64_t base_ns_ = 0;
  absl::flat_hash_set<uint32_t, NameHash, NameEqual> names_;
  absl::flat_hash_map<std::string, uint32_t> threads_;
  absl::flat_hash_map<std::string, std::string> thread_names_;
  absl::flat_hash_map<std::pair<int32_t, int64_t>, uint32_t> streams_;
  struct NameFacts {
    trace::CallKind call;
    bool collective;
  };
  std::vector<NameFacts> facts_;  // by name
  std::string key_;
};

// The kind of a copy, by its name or kind: "Memcpy HtoD (Pageable -> Device)", "[CUDA memcpy
// HtoD]", "CopyHostToDevice".
trace::WorkKind CopyKindOf(std::string_view name);
// "HtoD", "DtoH", "DtoD"; empty: none of these.
std::string_view CopyDirection(trace::WorkKind kind);

}  // namespace seqpoint::traces

#endif  // DAEMON_TRACES_TRACE_BUILDER_H_
