// The launch stream of one process: the calls in order, their names, and for each call a few
// symbols by which other calls are recognised as the same.
//
//   LaunchLog stream(1 << 19);
//   stream.AddName(7, "embedding_forward");
//   stream.Add(call);
//
// Threading: one thread. Ownership: values only. Memory: at most the given number of calls (about
// 80 bytes each) and kMaxNames names; when full, the older half is dropped and counted.
#ifndef DAEMON_ITERATIONS_LAUNCH_LOG_H_
#define DAEMON_ITERATIONS_LAUNCH_LOG_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "injection/abi/matcher.h"
#include "injection/abi/records.h"

namespace seqpoint::iterations {

struct Name {
  std::string text;
  uint64_t hash = 0;       // abi::NameHash
  abi::NameShape shape{};  // abi::ShapeOfName
};

class NameTable {
 public:
  static constexpr uint32_t kMaxNames = 1 << 16;
  static constexpr size_t kMaxTextBytes = 512;  // kept for messages; hashes cover the whole name

  // `id` as in CallRecord::name_id. Ids from kMaxNames on are not kept: such calls have no name.
  void Add(uint32_t id, std::string_view text);
  // The empty name when the id is unknown.
  const Name& Get(uint32_t id) const { return id < names_.size() ? names_[id] : names_[0]; }
  size_t size() const { return names_.size(); }

 private:
  std::vector<Name> names_{Name{}};
};

// The event that the matcher of the injected library would have seen. Its digits point into
// `names`.
abi::MatchEvent ToMatchEvent(const abi::CallRecord& call, const NameTable& names);

inline bool BlocksHost(abi::Op op) {
  return op == abi::Op::kStreamSync || op == abi::Op::kEventSync || op == abi::Op::kContextSync;
}
// A call after which the GPU's work is done.
inline bool WaitsForWork(const abi::CallRecord& call) {
  return BlocksHost(static_cast<abi::Op>(call.op)) && (call.flags & abi::kCallNoEnd) == 0;
}
// The threads of all blocks of a kernel launch.
inline double Threads(const abi::CallRecord& call) {
  return static_cast<double>(call.grid_x) * call.grid_y * call.grid_z * call.block_x *
         call.block_y * call.block_z;
}

inline bool IsLaunch(uint8_t op) {
  return op == static_cast<uint8_t>(abi::Op::kLaunch) ||
         op == static_cast<uint8_t>(abi::Op::kGraphLaunch);
}

// Launches of calls [begin, end).
uint32_t CountLaunches(const std::vector<abi::CallRecord>& calls, uint32_t begin, uint32_t end);

// The ways in which calls are the same. Symbol 0 of each alphabet means "none".
enum class Alphabet : uint8_t {
  kKind = 0,   // operation and name; copies, memsets, synchronisation: operation alone
  kSized = 1,  // with grid and block, or bytes; a graph launch: the operation alone
  kPair = 2,   // kind, and the kind of the launch before
  kAfter = 3,  // a launch of another kind after a launch of kind `symbol`
};
inline constexpr int kAlphabets = 4;
struct Symbols {
  uint32_t of[kAlphabets];
};

class LaunchLog {
 public:
  explicit LaunchLog(size_t max_calls) : max_calls_(max_calls) {}

  void AddName(uint32_t id, std::string_view text) { names_.Add(id, text); }
  // Calls come in sequence order; a gap in `sequence` is a hole.
  void Add(const abi::CallRecord& call);
  void ClearCalls();  // the names stay

  const NameTable& names() const { return names_; }
  const std::vector<abi::CallRecord>& calls() const { return calls_; }
  const std::vector<Symbols>& symbols() const { return symbols_; }
  size_t size() const { return calls_.size(); }
  // The symbol of an operation that has no name, or (kSized) of all graph launches; 0 when there
  // was no such call.
  uint32_t SymbolOf(Alphabet alphabet, abi::Op op) const;
  uint32_t symbol_count(Alphabet alphabet) const { return counts_[static_cast<size_t>(alphabet)]; }
  // Index of the first call after the last hole; 0 without holes.
  size_t after_hole() const { return after_hole_; }
  // The stream starts with the first call that the process ever made.
  bool from_process_start() const {
    return dropped_ == 0 && !calls_.empty() && calls_[0].sequence == 0;
  }
  uint64_t holes() const { return holes_; }      // calls known to be missing
  uint64_t dropped() const { return dropped_; }  // calls dropped because the stream was full

 private:
  uint32_t Intern(Alphabet alphabet, uint64_t key);
  void DropOlderHalf();

  size_t max_calls_;
  NameTable names_;
  std::vector<abi::CallRecord> calls_;
  std::vector<Symbols> symbols_;
  absl::flat_hash_map<uint64_t, uint32_t> ids_[kAlphabets];
  uint32_t counts_[kAlphabets] = {1, 1, 1, 1};
  uint32_t last_launch_ = 0;  // kKind symbol
  size_t after_hole_ = 0;
  uint64_t holes_ = 0;
  uint64_t dropped_ = 0;
};

}  // namespace seqpoint::iterations

#endif  // DAEMON_ITERATIONS_LAUNCH_LOG_H_
