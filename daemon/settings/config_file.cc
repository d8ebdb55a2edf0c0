#include "daemon/settings/config_file.h"

#include <exception>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace seqpoint::settings {
namespace {

constexpr size_t kMostKeyBytes = 60;  // of a key in a message

// "FILE:3" for the last line that begins with the key; the file alone when there is none.
std::string PlaceOf(std::string_view text, const std::string& file, const std::string& key) {
  std::string place = file;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(absl::string_view(text.data(), text.size()), '\n')) {
    ++number;
    line = absl::StripLeadingAsciiWhitespace(line);
    if (absl::ConsumePrefix(&line, "[")) line = absl::StripLeadingAsciiWhitespace(line);
    if (!key.empty() && absl::StartsWith(line, key)) place = absl::StrCat(file, ":", number);
  }
  return place;
}

// The library takes a quote that is not closed, or a list over several lines, as part of a value.
absl::Status CheckQuotes(std::string_view text, const std::string& file) {
  int number = 0;
  for (absl::string_view line : absl::StrSplit(absl::string_view(text.data(), text.size()), '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line);
    const size_t equals = line.find('=');
    if (equals == absl::string_view::npos || absl::StartsWith(line, "#")) continue;
    const absl::string_view value = absl::StripLeadingAsciiWhitespace(line.substr(equals + 1));
    const char quote = value.empty() ? '\0' : value[0];
    if (quote != '"' && quote != '\'') continue;
    size_t end = 1;
    while (end < value.size() && value[end] != quote) end += value[end] == '\\' ? 2 : 1;
    if (end < value.size()) {
      if (!absl::StrContains(value.substr(0, end), "#")) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(file, ":", number, ": a value in the file cannot have a #, which begins a ",
                       "comment; give it on the command line or in the variable"));
    }
    return absl::InvalidArgumentError(
        absl::StrCat(file, ":", number, ": the quote (", std::string(1, quote), ") that begins in ",
                     "this line is not closed in it; write `key = ", std::string(1, quote), "value",
                     std::string(1, quote), "`"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<CLI::ConfigItem>> ParseConfig(std::string_view text,
                                                         const std::string& file,
                                                         const std::set<std::string>& known) {
  if (text.size() > kMostConfigBytes) {
    return absl::InvalidArgumentError(absl::StrCat(file, ": it has more than ", kMostConfigBytes,
                                                   " bytes, and is no page of ", "settings"));
  }
  if (absl::Status quotes = CheckQuotes(text, file); !quotes.ok()) return quotes;
  std::vector<CLI::ConfigItem> items;
  try {
    std::istringstream stream{std::string(text)};
    items = CLI::ConfigTOML().from_config(stream);
  } catch (const std::exception& error) {  // CLI11's own errors, and those of the library below
    return absl::InvalidArgumentError(
        absl::StrCat(file, ": ", error.what(), "; a line is `key = value` or `# comment`"));
  }
  std::set<std::string> seen;
  for (const CLI::ConfigItem& item : items) {
    const std::string& key = item.parents.empty() ? item.name : item.parents.front();
    const std::string place = PlaceOf(text, file, key);
    if (!item.parents.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(place, ": [", key.substr(0, kMostKeyBytes),
                                                     "] is a section, and there are ",
                                                     "none; write `key = value` lines"));
    }
    if (known.count(key) == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(place, ": \"", key.substr(0, kMostKeyBytes), "\" is no setting; ",
                       "seqpointd --check-config prints all of them"));
    }
    // CLI11 makes one item of lines with one key that follow each other.
    if (!seen.insert(key).second || item.inputs.size() != 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          place, ": \"", key, "\" is there twice, or has several values or none; write one value, ",
          "and put a text with spaces or commas in quotes"));
    }
  }
  return items;
}

}  // namespace seqpoint::settings
