#include "client/files/csv.h"

#include <errno.h>
#include <string.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/invalid_argument.h"

namespace seqpoint::client {
namespace {

constexpr int64_t kShownBadRows = 5;

constexpr size_t kBlockBytes = size_t{256} << 10;
constexpr size_t kMaxLineBytes = size_t{16} << 20;

// A line with quotes.
void SplitQuoted(absl::string_view line, char delimiter, std::vector<std::string>* fields) {
  fields->assign(1, "");
  bool quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '"') {
      if (quoted && i + 1 < line.size() && line[i + 1] == '"') {
        fields->back() += line[++i];
      } else {
        quoted = !quoted;
      }
    } else if (c == delimiter && !quoted) {
      fields->emplace_back();
    } else {
      fields->back() += c;
    }
  }
  for (std::string& field : *fields) absl::StripAsciiWhitespace(&field);
}

// The one that the header has most of, outside of quotes; in doubt a comma.
char DelimiterOf(absl::string_view header) {
  char best = ',';
  size_t most = 0;
  for (const char delimiter : {',', ';', '\t'}) {
    std::vector<std::string> fields;
    SplitQuoted(header, delimiter, &fields);
    if (fields.size() > most) best = delimiter;
    most = std::max(most, fields.size());
  }
  return best;
}

bool IsDigits(absl::string_view text) {
  for (const char c : text) {
    if (!absl::ascii_isdigit(c)) return false;
  }
  return !text.empty();
}

// Without the spaces around it, which most do not have.
inline absl::string_view Field(const char* start, const char* stop) {
  while (start < stop && *start <= ' ' && absl::ascii_isspace(*start)) ++start;
  while (stop > start && stop[-1] <= ' ' && absl::ascii_isspace(stop[-1])) --stop;
  return absl::string_view(start, static_cast<size_t>(stop - start));
}

// Reads a row of whole numbers of at most 12 digits. Returns where the next row begins; null: it is
// another row. Reads up to its newline at most.
inline const char* ReadIntegers(const char* at, char delimiter, absl::Span<int64_t> values) {
  constexpr int64_t kDigits = 12;
  for (size_t column = 0; column < values.size(); ++column) {
    if (column > 0 && *at++ != delimiter) return nullptr;
    const char* const field = at;
    uint64_t value = 0;
    for (unsigned digit = 0; (digit = static_cast<unsigned>(*at) - '0') <= 9; ++at) {
      value = value * 10 + digit;
    }
    if (at == field || at - field > kDigits) return nullptr;
    values[column] = static_cast<int64_t>(value);
  }
  if (*at == '\r') ++at;
  return *at == '\n' ? at + 1 : nullptr;
}

std::string ReadError(gzFile file) {  // empty: none
  int code = 0;
  const char* text = gzerror(file, &code);
  if (code == Z_OK || code == Z_STREAM_END) return "";
  return code == Z_ERRNO ? strerror(errno) : text;
}

}  // namespace

absl::StatusOr<CsvReader> CsvReader::Open(const std::string& path, bool show_progress) {
  CsvReader reader(path, gzopen(path.c_str(), "rb"));
  if (reader.file_ == nullptr) {
    return InvalidArgument("cannot read ", path, ": ", strerror(errno));
  }
  gzbuffer(reader.file_.get(), kBlockBytes);
  reader.buffer_.resize(kBlockBytes);
  reader.buffer_[0] = '\n';
  if (show_progress) reader.progress_.emplace(path);
  if (!reader.ReadLine()) {
    if (const absl::Status status = reader.status(); reader.too_long_) return status;
    const std::string error = ReadError(reader.file_.get());
    return InvalidArgument("cannot read ", path, ": ", error.empty() ? "it is empty" : error);
  }
  if (absl::StartsWith(reader.line_, "\xEF\xBB\xBF")) reader.line_.remove_prefix(3);
  reader.delimiter_ = DelimiterOf(reader.line_);
  SplitQuoted(reader.line_, reader.delimiter_, &reader.header_);
  double number = 0;
  if (std::any_of(reader.header_.begin(), reader.header_.end(),
                  [&](const std::string& name) { return absl::SimpleAtod(name, &number); })) {
    return InvalidArgument(path, ":1: \"", reader.line_,
                           "\" is not a header; the first line must name the columns");
  }
  return reader;
}

absl::StatusOr<std::vector<size_t>> CsvReader::Find(const std::vector<std::string>& names) const {
  std::vector<size_t> columns;
  for (const std::string& name : names) {
    const auto it = std::find(header_.begin(), header_.end(), name);
    if (it == header_.end()) {
      return InvalidArgument(path_, ": no column \"", name, "\"; there are ",
                             absl::StrJoin(header_, ", "));
    }
    columns.push_back(static_cast<size_t>(it - header_.begin()));
  }
  return columns;
}

bool CsvReader::Fill() {
  // The rest of the block before goes to the front; a line that fills all gets more room.
  memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
  end_ -= begin_;
  begin_ = 0;
  if (end_ >= kMaxLineBytes) {
    too_long_ = true;
    return false;
  }
  if (end_ + 1 == buffer_.size()) buffer_.resize(2 * buffer_.size());
  const int read =
      gzread(file_.get(), buffer_.data() + end_, static_cast<unsigned>(buffer_.size() - end_ - 1));
  all_read_ = read <= 0;
  if (!all_read_) {
    end_ += static_cast<size_t>(read);
    bytes_ += read;
  }
  buffer_[end_] = '\n';
  if (progress_) {
    const int64_t position = gzoffset(file_.get());
    progress_->At(position < 0 ? bytes_ : position);
  }
  return true;
}

bool CsvReader::ReadLine() {
  while (true) {
    const char* const start = buffer_.data() + begin_;
    const char* const end = buffer_.data() + end_;  // there a newline of our own ends the scan
    const char* field = start;
    const char* at = start;
    bool quotes = false;
    fields_.clear();
    for (; *at != '\n'; ++at) {
      if (*at == delimiter_) {
        fields_.push_back(Field(field, at));
        field = at + 1;
      } else {
        quotes |= *at == '"';
      }
    }
    if (at == end && !all_read_) {
      if (!Fill()) return false;
      continue;
    }
    if (start == end) return false;
    begin_ += static_cast<size_t>(at - start) + (at == end ? 0 : 1);
    while (at > start && at[-1] == '\r') --at;
    fields_.push_back(Field(field, at));
    line_ = absl::string_view(start, static_cast<size_t>(at - start));
    ++number_;
    if (quotes) {
      SplitQuoted(line_, delimiter_, &unquoted_);
      fields_.assign(unquoted_.begin(), unquoted_.end());
    }
    return true;
  }
}

bool CsvReader::Next() {
  do {
    if (!ReadLine()) return false;
  } while (fields_[0].empty() && absl::StripAsciiWhitespace(line_).empty());
  return true;
}

size_t CsvReader::NextWhole(absl::Span<int64_t> values) {
  fields_.clear();
  line_ = {};
  const size_t columns = header_.size();
  const char* const end = buffer_.data() + end_;  // there is a newline of our own, see Fill()
  const char* row = buffer_.data() + begin_;
  size_t rows = 0;
  while ((rows + 1) * columns <= values.size()) {
    const char* const behind =
        ReadIntegers(row, delimiter_, values.subspan(rows * columns, columns));
    if (behind == nullptr || behind > end) break;
    row = behind;
    ++rows;
  }
  begin_ = static_cast<size_t>(row - buffer_.data());
  number_ += static_cast<int64_t>(rows);
  return rows;
}

bool CsvReader::Next(std::vector<std::string>* fields) {
  if (!Next()) return false;
  fields->clear();
  for (absl::string_view field : fields_) fields->emplace_back(field);
  return true;
}

std::string CsvReader::ColumnProblem(size_t column) const {
  if (column >= fields_.size()) {
    return absl::StrCat("\"", line_, "\" has ", fields_.size(), " of ", header_.size(), " columns");
  }
  // The digits behind a decimal comma would be taken for the next column.
  if (fields_.size() > header_.size() && delimiter_ == ',' && column + 1 < fields_.size() &&
      IsDigits(fields_[column + 1])) {
    return absl::StrCat("\"", line_, "\" has ", fields_.size(), " columns, the header has ",
                        header_.size(),
                        "; write numbers with a decimal point, or part the columns by semicolons");
  }
  return "";
}

absl::Status CsvReader::status() const {
  if (too_long_) {
    return InvalidArgument(path_, ":", number_ + 1, ": the line is longer than ",
                           kMaxLineBytes >> 20, " MiB; is it a CSV?");
  }
  const std::string error = ReadError(file_.get());
  if (error.empty()) return absl::OkStatus();
  return InvalidArgument("cannot read ", path_, " beyond line ", number_, ": ", error,
                         "; is the file truncated?");
}

bool ParseCsvNumber(absl::string_view text, double* value) {
  // Most are whole numbers of a few digits, and there are many.
  constexpr size_t kExactDigits = 15;
  int64_t whole = 0;
  size_t digits = 0;
  while (digits < text.size() && digits < kExactDigits && absl::ascii_isdigit(text[digits])) {
    whole = whole * 10 + (text[digits++] - '0');
  }
  if (digits == text.size() && digits > 0) {
    *value = static_cast<double>(whole);
    return true;
  }
  if (absl::SimpleAtod(text, value)) return true;
  const size_t comma = text.find(',');
  if (comma == absl::string_view::npos || !CommaNote(text).empty()) return false;
  std::string point(text);
  point[comma] = '.';
  return absl::SimpleAtod(point, value);
}

std::string CommaNote(absl::string_view text) {
  const size_t comma = text.find(',');
  if (comma == absl::string_view::npos || text.size() - comma - 1 != 3 ||
      !IsDigits(text.substr(comma + 1))) {
    return "";
  }
  return "; its comma may be a decimal one or part thousands, write the number without it";
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
