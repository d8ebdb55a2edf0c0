// PartLog: a part of a job's state that grows and is stored often, as a base and a log of
// additions. A commit writes the additions, at most a few KB. The base is written again when the
// log has become as long as it, so that over time every byte is written about twice.
//
//   PartLog log("engine");
//   log.Write(job_id, version, SerializeCalls(engine.TakeCalls()), [&] { return
//   SerializeEngine(engine); }, batch.states);
//   ...
//   PartLog::Content stored = log.Load(states);  // of the job, after a restart
//   engine = ParseEngine(stored.base); ReplayCalls(stored.added, engine);
//
// In the store, the base is the part "engine", the log the parts "engine+000000", "engine+000001",
// … They belong together because a batch is one transaction.
//
// Threading: one thread at a time. Ownership: keeps the log's last piece, nothing else.
#ifndef DAEMON_STORE_PART_LOG_H_
#define DAEMON_STORE_PART_LOG_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "daemon/store/store.h"

namespace seqpoint {

class PartLog {
 public:
  explicit PartLog(std::string part) : part_(std::move(part)) {}

  // Appends the rows that store `added`. `whole` gives the base that has `added` in it; it is
  // called when the base is due.
  void Write(int64_t job_id, int32_t version, std::string_view added,
             absl::FunctionRef<std::string()> whole, std::vector<StateRow>& rows);

  // Declares the stored rows void: the next Write gives the base.
  void Restart() { base_due_ = true; }

  struct Content {
    std::string base;   // empty: none yet
    std::string added;  // since the base, in order
  };
  // `rows` as the store gives them, in the order of their parts; those of others are skipped.
  Content Load(const std::vector<StateRow>& rows);

  static constexpr size_t kPieceBytes = 4096;
  static constexpr size_t kLeastLogBytes = 64 << 10;

 private:
  std::string Piece(int index) const;

  std::string part_;
  size_t base_bytes_ = 0;
  size_t log_bytes_ = 0;
  int pieces_ = 0;    // that are full
  std::string last_;  // the piece that is not
  bool base_due_ = false;
};

}  // namespace seqpoint

#endif  // DAEMON_STORE_PART_LOG_H_
