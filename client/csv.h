// Reading CSV files, plain or gzip, with a header line.
//
//   absl::StatusOr<CsvReader> csv = CsvReader::Open("log.csv.gz");
//   std::vector<std::string> fields;
//   while (csv->Next(&fields)) Use(csv->number(), fields);
//   if (absl::Status status = csv->status(); !status.ok()) return status;
//
// Threading: one thread at a time. Ownership: owns its file. Errors are InvalidArgument and name
// the file, and the line where there is one.
#ifndef CLIENT_CSV_H_
#define CLIENT_CSV_H_

#include <zlib.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace seqpoint::client {

class CsvReader {
 public:
  // Reads the header; one that holds a number is refused, as the header is missing then.
  static absl::StatusOr<CsvReader> Open(const std::string& path);

  const std::vector<std::string>& header() const { return header_; }
  // The columns of these names.
  absl::StatusOr<std::vector<size_t>> Find(const std::vector<std::string>& names) const;

  // The next row that is not blank; false at the end or on an error, which status() then tells.
  // Quotes may hold commas and doubled quotes; spaces around a field are not part of it.
  bool Next(std::vector<std::string>* fields);
  int64_t number() const { return number_; }         // of the line read last, from 1
  const std::string& line() const { return line_; }  // as it stands there
  absl::Status status() const;

 private:
  CsvReader(std::string path, gzFile file) : path_(std::move(path)), file_(file, &gzclose) {}
  bool NextLine();

  std::string path_;
  std::unique_ptr<gzFile_s, decltype(&gzclose)> file_;
  std::vector<std::string> header_;
  std::string line_;
  int64_t number_ = 0;
};

// What is wrong with rows: the first few of them line by line, and how many more there are.
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

#endif  // CLIENT_CSV_H_
