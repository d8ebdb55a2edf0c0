// A log of iterations as CSV, plain or gzip, becomes lengths and times.
//
// Threading: pure but for reading the file. Errors name file, line, value and the way out.
#ifndef CLIENT_FILES_LOG_FILE_H_
#define CLIENT_FILES_LOG_FILE_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/files/csv.h"

namespace seqpoint::client {

struct LogOptions {
  std::string path;
  // One or two columns with the iteration's length. Empty: those a log commonly has.
  std::vector<std::string> key_columns;
  std::string time_column;                 // empty: likewise
  std::string time_unit;                   // "ns", "us", "ms" or "s"; empty: as its name ends
  std::vector<std::string> group_columns;  // rows that agree in them are one group (run, epoch)
  // In which lengths are counted: that of a log that this one is compared with. 0: as fits the
  // file.
  std::array<double, 2> length_step = {0, 0};
  // Without a time column that was named, one need not be there: `times` is then empty.
  bool lengths_only = false;
  bool keep_untimed = false;  // rows without a time, with 0 in `times`
  bool or_trace = false;      // a trace would have been taken, too: for messages
};

struct LogFile {
  std::vector<std::string> key_columns;
  std::string time_column;
  // One value for each usable row, in the order of the file. A length is in steps of `length_step`;
  // the second is 0 when there is only one.
  std::vector<std::array<int64_t, 2>> lengths;
  std::vector<double> times;    // > 0, in units of `time_unit_ns`; 0: not known (keep_untimed)
  std::vector<int32_t> groups;  // numbered in the order in which they first occur
  // 1, and fractions are rounded; less where whole numbers would tell too few lengths apart.
  std::array<double, 2> length_step = {1, 1};
  bool rounded = false;
  double time_unit_ns = 0;        // as was said, or as the column's name ends; 0: not known
  bool groups_scattered = false;  // rows of one group do not stand together
  std::string groups_hint;        // without group columns: that the log seems to have several
  // Left out: no, a negative or an absurd length; a time that is negative or not a number.
  BadRows bad;
  // Rows without a time, or with zero; left out, too, where they are not to be kept. The last
  // iteration of a run has no next one that would end it, so that one in the file's last row is
  // nothing to speak of.
  int64_t untimed = 0;
  bool last_untimed = false;
  bool kept_untimed = false;
  // Rows of a log that `export --csv` wrote. The first two are left out: no figure of the job has
  // them, as they were done again or ran at the same time as another process. The log lacks the
  // third.
  int64_t redone = 0, concurrent = 0, missing = 0;
  // Rows of such a log whose time a measurement disturbed; it counts as not known.
  int64_t distorted = 0;
};

// InvalidArgument where the file or a column is missing, where more rows are bad than good, and
// where rows are of several ranks, whose times do not add up.
absl::StatusOr<LogFile> ReadLogFile(const LogOptions& options);

// InvalidArgument where the unit of the times is not known.
absl::Status CheckTimeUnit(const std::string& path, const LogFile& log);

// Notes on how the file was read, in lines; empty when there are none.
std::string ReadingNotes(const std::string& path, const LogFile& log);

}  // namespace seqpoint::client

#endif  // CLIENT_FILES_LOG_FILE_H_
