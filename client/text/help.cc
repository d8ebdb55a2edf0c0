#include "client/text/help.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "client/commands/options.h"
#include "client/text/plain_text.h"

namespace seqpoint::client {
namespace {

constexpr size_t kNameColumns = 30;

std::string Entry(const std::string& name, const std::string& description) {
  std::string first = absl::StrCat("  ", name);
  if (first.size() >= kNameColumns) {
    return absl::StrCat(first, "\n", Wrap(std::string(kNameColumns, ' '), description));
  }
  first.resize(kNameColumns, ' ');
  return Wrap(first, description);
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
