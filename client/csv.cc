#include "client/csv.h"

#include <errno.h>
#include <string.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace seqpoint::client {
namespace {

constexpr int64_t kShownBadRows = 5;

std::vector<std::string> Split(const std::string& line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '"') {
      if (quoted && i + 1 < line.size() && line[i + 1] == '"') {
        fields.back() += line[++i];
      } else {
        quoted = !quoted;
      }
    } else if (c == ',' && !quoted) {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  for (std::string& field : fields) absl::StripAsciiWhitespace(&field);
  return fields;
}

std::string ReadError(gzFile file) {  // empty: none
  int code = 0;
  const char* text = gzerror(file, &code);
  if (code == Z_OK || code == Z_STREAM_END) return "";
  return code == Z_ERRNO ? strerror(errno) : text;
}

}  // namespace

absl::StatusOr<CsvReader> CsvReader::Open(const std::string& path) {
  CsvReader reader(path, gzopen(path.c_str(), "rb"));
  if (reader.file_ == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("cannot read ", path, ": ", strerror(errno)));
  }
  gzbuffer(reader.file_.get(), 1 << 17);
  if (!reader.NextLine()) {
    const std::string error = ReadError(reader.file_.get());
    return absl::InvalidArgumentError(
        absl::StrCat("cannot read ", path, ": ", error.empty() ? "it is empty" : error));
  }
  if (absl::StartsWith(reader.line_, "\xEF\xBB\xBF")) reader.line_.erase(0, 3);
  reader.header_ = Split(reader.line_);
  double number = 0;
  if (std::any_of(reader.header_.begin(), reader.header_.end(),
                  [&](const std::string& name) { return absl::SimpleAtod(name, &number); })) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ":1: \"", reader.line_, "\" is not a header; the first line must name the columns"));
  }
  return reader;
}

absl::StatusOr<std::vector<size_t>> CsvReader::Find(const std::vector<std::string>& names) const {
  std::vector<size_t> columns;
  for (const std::string& name : names) {
    const auto it = std::find(header_.begin(), header_.end(), name);
    if (it == header_.end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          path_, ": no column \"", name, "\"; there are ", absl::StrJoin(header_, ", ")));
    }
    columns.push_back(static_cast<size_t>(it - header_.begin()));
  }
  return columns;
}

bool CsvReader::NextLine() {
  line_.clear();
  // Not gzgets(), which loses a line with a null byte: a crash leaves blocks of them.
  for (int c = gzgetc(file_.get()); c != -1; c = gzgetc(file_.get())) {
    line_.push_back(static_cast<char>(c));
    if (c == '\n') break;
  }
  if (line_.empty()) return false;
  while (!line_.empty() && (line_.back() == '\n' || line_.back() == '\r')) line_.pop_back();
  ++number_;
  return true;
}

bool CsvReader::Next(std::vector<std::string>* fields) {
  do {
    if (!NextLine()) return false;
  } while (absl::StripAsciiWhitespace(line_).empty());
  *fields = Split(line_);
  return true;
}

absl::Status CsvReader::status() const {
  const std::string error = ReadError(file_.get());
  if (error.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("cannot read ", path_, " beyond line ", number_,
                                                 ": ", error, "; is the file truncated?"));
}

void BadRows::Add(const std::string& path, int64_t line, const std::string& problem) {
  if (++count_ > kShownBadRows) return;
  absl::StrAppend(&shown_, shown_.empty() ? "" : "\n", path, ":", line, ": ", problem);
}

std::string BadRows::text() const {
  if (count_ <= kShownBadRows) return shown_;
  return absl::StrCat(shown_, "\n... and ", count_ - kShownBadRows, " more");
}

}  // namespace seqpoint::client
