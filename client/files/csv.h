// Reading CSV files, plain or gzip, with a header line. Columns are parted by commas, semicolons or
// tabs, whichever the header has most of.
//
//   absl::StatusOr<CsvReader> csv = CsvReader::Open("log.csv.gz");
//   while (csv->Next()) Use(csv->number(), csv->fields());
//   if (absl::Status status = csv->status(); !status.ok()) return status;
//
// The file passes through a buffer, which holds no more than its longest line and one block. A read
// of more than a second is shown on standard error (ReadProgress).
//
// Threading: one thread at a time. Ownership: owns its file; what fields() and line() show is gone
// with the next row. Errors are InvalidArgument and name the file, and the line where there is one.
#ifndef CLIENT_FILES_CSV_H_
#define CLIENT_FILES_CSV_H_

#include <zlib.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "client/text/read_progress.h"

namespace seqpoint::client {

// Fractions are rounded where the lengths of a column still spread over so many whole numbers.
inline constexpr double kEnoughSteps = 16;

class CsvReader {
 public:
  // Reads the header; one that holds a number is refused, as the header is missing then.
  static absl::StatusOr<CsvReader> Open(const std::string& path, bool show_progress = true);

  const std::vector<std::string>& header() const { return header_; }
  // The columns of these names.
  absl::StatusOr<std::vector<size_t>> Find(const std::vector<std::string>& names) const;

  // Goes to the next row that is not blank; false at the end or on an error, which status() then
  // tells. Quotes may hold delimiters and doubled quotes; spaces around a field are not part of it.
  bool Next();
  const std::vector<absl::string_view>& fields() const { return fields_; }
  int64_t number() const { return number_; }        // of the line read last, from 1
  absl::string_view line() const { return line_; }  // as it stands there
  // The row has no more columns than the header, and this one is among them.
  bool Fits(size_t column) const {
    return column < fields_.size() && fields_.size() <= header_.size();
  }
  // Why the row has no usable field in `column`: it is too short, or a decimal comma cut a number
  // in two. Empty: it has one.
  std::string ColumnProblem(size_t column) const;
  absl::Status status() const;

  // Goes to the last of the rows that follow and that hold nothing but a whole number from 0 to
  // kMaxWhole in each column of the header: as many as `values` has room for, row by row. Returns
  // how many; 0: the next row is another one, or none, and Next() goes to it. Several times as fast
  // as Next(). fields() and line() show nothing then.
  static constexpr int64_t kMaxWhole = 999'999'999'999;
  size_t NextWhole(absl::Span<int64_t> values);

  // As Next(), with copies that stay.
  bool Next(std::vector<std::string>* fields);

 private:
  CsvReader(std::string path, gzFile file) : path_(std::move(path)), file_(file, &gzclose) {}
  bool ReadLine();
  bool Fill();

  std::string path_;
  std::unique_ptr<gzFile_s, decltype(&gzclose)> file_;
  std::optional<ReadProgress> progress_;
  std::vector<char> buffer_;
  size_t begin_ = 0, end_ = 0;  // what of the buffer was read from the file, and is no line yet
  int64_t bytes_ = 0;           // of text, so far
  bool all_read_ = false;       // nothing follows what is in the buffer
  bool too_long_ = false;       // a line is longer than any that is sensible
  char delimiter_ = '\n';       // none, for the header
  std::vector<std::string> header_;
  absl::string_view line_;
  std::vector<absl::string_view> fields_;
  std::vector<std::string> unquoted_;  // what they show where the line has quotes
  int64_t number_ = 0;
};

// Reads a number, also one with a decimal comma; false when it is none, or when its comma is before
// exactly three digits and may as well part thousands: CommaNote() says that then, else nothing.
bool ParseCsvNumber(absl::string_view text, double* value);
std::string CommaNote(absl::string_view text);

// Messages about wrong rows: one for each of the first few, and how many more there are.
class BadRows {
 public:
  void Add(const std::string& path, int64_t line, const std::string& problem);
  int64_t count() const { return count_; }
  std::string text() const;  // lines, without a line end behind the last; empty: none

 private:
  int64_t count_ = 0;
  std::string shown_;
};

}  // namespace seqpoint::client

#endif  // CLIENT_FILES_CSV_H_
