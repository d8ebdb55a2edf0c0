#include "client/commands/send_log.h"

namespace seqpoint::client {

void FillLog(const LogFile& log, size_t begin, v1::IterationLog* piece) {
  const double unit = log.time_unit_ns > 0 ? log.time_unit_ns : 1;
  const size_t end = std::min(log.lengths.size(), begin + kRowsPerPiece);
  for (size_t i = begin; i < end; ++i) {
    piece->add_lengths(log.lengths[i][0]);
    if (log.key_columns.size() == 2) piece->add_second_lengths(log.lengths[i][1]);
    piece->add_durations(log.times[i] * unit);
    piece->add_groups(log.groups[i]);
  }
}

}  // namespace seqpoint::client
