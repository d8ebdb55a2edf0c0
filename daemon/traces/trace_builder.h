// Makes a whatif::Trace from what a format's reader finds: numbers names, threads and streams, and
// tells from a name what a call or a copy does.
//
// Threading: none. Ownership: holds the trace until it is taken.
#ifndef DAEMON_TRACES_TRACE_BUILDER_H_
#define DAEMON_TRACES_TRACE_BUILDER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "daemon/whatif/trace.h"

namespace seqpoint::traces {

class TraceBuilder {
 public:
  TraceBuilder();
  TraceBuilder(const TraceBuilder&) = delete;
  TraceBuilder& operator=(const TraceBuilder&) = delete;

  whatif::Trace& trace() { return trace_; }
  whatif::Trace Take();

  uint32_t Name(std::string_view text);
  // By the process's and the thread's number or name, as it is written.
  uint32_t Thread(std::string_view process, std::string_view thread);
  // What the thread is called; empty: nothing.
  void SetThreadName(std::string_view process, std::string_view thread, std::string_view name);
  uint32_t Stream(int32_t device, int64_t id);

  // What a runtime or driver call of CUDA or HIP with this name does.
  whatif::CallKind CallKindOf(uint32_t name) const { return facts_[name].call; }
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

  whatif::Trace trace_;
  absl::flat_hash_set<uint32_t, NameHash, NameEqual> names_;
  absl::flat_hash_map<std::string, uint32_t> threads_;
  absl::flat_hash_map<std::string, std::string> thread_names_;
  absl::flat_hash_map<std::pair<int32_t, int64_t>, uint32_t> streams_;
  struct NameFacts {
    whatif::CallKind call;
    bool collective;
  };
  std::vector<NameFacts> facts_;  // by name
  std::string key_;
};

// What a copy does, by its name or kind: "Memcpy HtoD (Pageable -> Device)", "[CUDA memcpy HtoD]",
// "CopyHostToDevice".
whatif::WorkKind CopyKindOf(std::string_view name);

}  // namespace seqpoint::traces

#endif  // DAEMON_TRACES_TRACE_BUILDER_H_
