// What SQLite does not say when it opens a store: for it the write-ahead log ends at the first
// frame that is damaged, and transactions that were committed behind it are gone without a word.
//
// Frames behind the damage tell that they were written: the checksum of each goes on from the one
// before it, as it is stored. The log's index (-shm), which outlives a killed daemon, tells how
// many frames were committed. Formats: sqlite.org/fileformat2.html, section 4, and walformat.html.
//
// Threading: pure function. Call it before SQLite opens the store.
#ifndef DAEMON_STORE_LOG_DAMAGE_H_
#define DAEMON_STORE_LOG_DAMAGE_H_

#include <cstdint>
#include <optional>
#include <string>

namespace seqpoint {

struct LogDamage {
  int64_t offset = 0;  // in the log, of the first frame that is damaged or missing; 0: its header
  int64_t transactions = 0;  // at least, that were committed there and behind it
};

// Nothing where there is no log, or SQLite reads all that was committed. Without an index the last
// transaction of a log may be one that a power failure cut: that is no damage.
std::optional<LogDamage> FindLogDamage(const std::string& store_path);

}  // namespace seqpoint

#endif  // DAEMON_STORE_LOG_DAMAGE_H_
