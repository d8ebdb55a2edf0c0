// Finds transactions that SQLite drops without a message when it opens a store: for SQLite the
// write-ahead log ends at the first damaged frame, also when committed transactions follow it.
//
// Frames after the damage show that they were written: the checksum of each goes on from the stored
// one before it. The log's index (-shm), which outlives a killed daemon, has the number of
// committed frames. Formats: sqlite.org/fileformat2.html, section 4, and walformat.html.
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

// Nothing where there is no log, or where SQLite reads all committed transactions. Without an
// index, a power failure may have cut the last transaction of a log: that is no damage.
std::optional<LogDamage> FindLogDamage(const std::string& store_path);

}  // namespace seqpoint

#endif  // DAEMON_STORE_LOG_DAMAGE_H_
