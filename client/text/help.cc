#include "client/text/help.h"

#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "client/commands/options.h"

namespace seqpoint::client {
namespace {

constexpr size_t kNameColumns = 30;
constexpr size_t kLineColumns = 98;

std::string Entry(const std::string& name, const std::string& description) {
  std::string text = absl::StrCat("  ", name);
  size_t column = text.size();
  auto indent = [&] {
    text.append(kNameColumns > column ? kNameColumns - column : 1, ' ');
    column = std::max(kNameColumns, column + 1);
  };
  auto new_line = [&] {
    text += '\n';
    column = 0;
    indent();
  };
  if (column >= kNameColumns) {
    new_line();
  } else {
    indent();
  }
  bool first = true;
  for (const std::string& word : std::vector<std::string>(absl::StrSplit(description, ' '))) {
    if (!first && column + 1 + word.size() > kLineColumns) {
      new_line();
      first = true;
    }
    absl::StrAppend(&text, first ? "" : " ", word);
    column += word.size() + (first ? 0 : 1);
    first = false;
  }
  return absl::StrCat(text, "\n");
}

}  // namespace

std::string HelpFormatter::make_help(const CLI::App* app, std::string name,
                                     CLI::AppFormatMode mode) const {
  std::string text = CLI::Formatter::make_help(app, name, mode);
  text = absl::StrReplaceAll(text, {{"\n\n\n", "\n\n"}});
  return absl::StrCat(absl::StripTrailingAsciiWhitespace(text), "\n");
}

std::string HelpFormatter::make_usage(const CLI::App* app, std::string name) const {
  std::string arguments;
  for (const CLI::App* of = app; of != nullptr; of = of->get_parent()) {
    std::string own = of->get_name();
    for (const CLI::Option* option : of->get_options()) {
      if (!option->get_positional()) continue;
      absl::StrAppend(&own, option->get_required() ? " " : " [", option->get_name(true),
                      option->get_expected_max() > 1 ? " ..." : "",
                      option->get_required() ? "" : "]");
    }
    arguments = absl::StrCat(" ", own, arguments);
  }
  std::string usage = absl::StrCat("\nUsage:", arguments);
  if (!Commands(*app).empty()) usage += " COMMAND";
  usage += " [OPTIONS]";
  if (app->get_prefix_command()) usage += " -- COMMAND [ARGUMENT ...]";
  return absl::StrCat(usage, "\n");
}

std::string HelpFormatter::make_option(const CLI::Option* option, bool is_positional) const {
  std::string name = option->get_name(is_positional, !is_positional);
  std::string type = option->get_type_name();
  // A check adds its own words to the type, behind a colon.
  type = type.substr(0, type.find(':'));
  if (!is_positional && option->get_type_size() > 0 && !type.empty()) {
    absl::StrAppend(&name, " ", type);
  }
  return Entry(name, option->get_description());
}

std::string HelpFormatter::make_subcommand(const CLI::App* app) const {
  return Entry(app->get_name(), app->get_description());
}

}  // namespace seqpoint::client
