#include "tests/workloads/lengths.h"

#include <cerrno>
#include <cstring>
#include <fstream>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace seqpoint::workload {
namespace {

std::vector<absl::string_view> Fields(absl::string_view line) {
  std::vector<absl::string_view> fields = absl::StrSplit(line, ',');
  for (absl::string_view& field : fields) {
    field = absl::StripAsciiWhitespace(field);
    // A quoted number is still a number.
    if (field.size() >= 2 && field.front() == '"' && field.back() == '"') {
      field = field.substr(1, field.size() - 2);
    }
  }
  return fields;
}

std::vector<size_t> LengthColumns(const std::vector<absl::string_view>& header) {
  std::vector<size_t> columns;
  for (size_t i = 0; i < header.size(); ++i) {
    if (absl::StartsWith(header[i], "len_")) columns.push_back(i);
  }
  if (columns.empty()) {
    for (size_t i = 0; i < header.size(); ++i) columns.push_back(i);
  }
  if (columns.size() > 2) columns.resize(2);
  return columns;
}

}  // namespace

absl::StatusOr<LengthTable> ReadLengths(const std::string& path) {
  auto error = [&](int line, absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("cannot read ", path, ":", line, ": ", what));
  };
  std::ifstream file(path);
  if (!file) {
    return absl::NotFoundError(
        absl::StrCat("cannot open lengths file ", path, ": ", std::strerror(errno)));
  }
  std::string line;
  if (!std::getline(file, line) || absl::StripAsciiWhitespace(line).empty()) {
    return error(1, "no header; the first line names the columns, such as \"source,target\"");
  }
  const std::string header_line = line;
  const std::vector<absl::string_view> header = Fields(header_line);
  int ignored;
  if (absl::SimpleAtoi(header[0], &ignored)) {
    return error(
        1, absl::StrCat("\"", header_line, "\" is not a header; the first line names the columns"));
  }
  const std::vector<size_t> columns = LengthColumns(header);

  LengthTable table;
  for (int number = 2; std::getline(file, line); ++number) {
    if (absl::StripAsciiWhitespace(line).empty()) continue;
    const std::vector<absl::string_view> fields = Fields(line);
    std::vector<int> row;
    for (size_t column : columns) {
      if (column >= fields.size()) {
        return error(number, absl::StrCat("\"", line, "\" has ", fields.size(), " of ",
                                          header.size(), " fields"));
      }
      int length;
      if (!absl::SimpleAtoi(fields[column], &length) || length < 1 || length > kMaxLength) {
        return error(number, absl::StrCat("\"", fields[column],
                                          "\" is not an integer between 1 and ", kMaxLength));
      }
      row.push_back(length);
    }
    table.push_back(std::move(row));
  }
  if (table.empty()) return error(2, "no example; the file ends after its header");
  return table;
}

bool WriteLengths(const LengthTable& table, const std::string& path) {
  std::ofstream file(path);
  file << (table.empty() || table[0].size() < 2 ? "len_0\n" : "len_0,len_1\n");
  for (const std::vector<int>& row : table) {
    for (size_t i = 0; i < row.size(); ++i) file << (i == 0 ? "" : ",") << row[i];
    file << '\n';
  }
  file.close();
  return !file.fail();
}

void SetLengthCount(int count, LengthTable* table) {
  for (std::vector<int>& row : *table) row.resize(static_cast<size_t>(count), row[0]);
}

}  // namespace seqpoint::workload
