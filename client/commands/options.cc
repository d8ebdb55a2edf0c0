#include "client/commands/options.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "client/text/plain_text.h"
#include "proto/utf8.h"

namespace seqpoint::client {
namespace {

constexpr size_t kMaxNameBytes = 256;

// `check` changes its argument, and returns what is wrong with it.
CLI::Validator Check(std::function<std::string(std::string&)> check) {
  return CLI::Validator(std::move(check), /*validator_desc=*/"");
}

// "5%", "5 %" or "0.05".
bool ParseShare(absl::string_view text, double* share) {
  text = absl::StripAsciiWhitespace(text);
  const bool percent = absl::ConsumeSuffix(&text, "%");
  if (!absl::SimpleAtod(absl::StripAsciiWhitespace(text), share)) return false;
  if (percent) *share *= 0.01;
  return true;
}

}  // namespace

CLI::Validator WholeNumber(int64_t least, int64_t most) {
  return Check([=](std::string& text) {
    int64_t value = 0;
    if (!absl::SimpleAtoi(text, &value) || value < least || value > most) {
      return absl::StrCat(Quote(text), " is not a whole number from ", FormatCount(least), " to ",
                          FormatCount(most));
    }
    text = absl::StrCat(value);
    return std::string();
  });
}

CLI::Validator Number(double least, double most) {
  return Check([=](std::string& text) {
    double value = 0;
    const bool fits = absl::SimpleAtod(text, &value) && value >= least && value <= most;
    return fits ? "" : absl::StrCat(Quote(text), " is not a number from ", least, " to ", most);
  });
}

CLI::Validator Share() {
  return Check([](std::string& text) {
    double share = 0;
    if (!ParseShare(text, &share) || !(share > 0 && share < 1)) {
      return absl::StrCat(Quote(text), " is not a share above 0 and below 1, such as 5% or 0.05");
    }
    text = absl::StrFormat("%.17g", share);
    return std::string();
  });
}

CLI::Validator Confidence() {
  return Check([](std::string& text) {
    double share = 0;
    const bool number = ParseShare(text, &share);
    // A plain number above 1 can only be a percentage. 1 may be meant as 1 % or as 100 %.
    if (share > 1 && !absl::StrContains(text, "%")) share /= 100;
    if (!number || !(share > 0 && share < 1)) {
      return absl::StrCat(Quote(text), " is not a confidence, such as 95, 95% or 0.95");
    }
    text = absl::StrFormat("%.17g", share);
    return std::string();
  });
}

CLI::Validator ByteSize() {
  return Check([](std::string& text) {
    const absl::string_view stripped = absl::StripAsciiWhitespace(text);
    const size_t digits = std::min(stripped.find_first_not_of("0123456789.eE+-"), stripped.size());
    double size = 0;
    const std::string unit(absl::StripAsciiWhitespace(stripped.substr(digits)));
    constexpr std::pair<const char*, double> kUnits[] = {
        {"", 1},         {"B", 1},        {"kB", 1e3},    {"KB", 1e3},
        {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12},   {"KiB", 0x1p10},
        {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
    const auto* found = std::find_if(std::begin(kUnits), std::end(kUnits),
                                     [&](const auto& known) { return unit == known.first; });
    if (found == std::end(kUnits) || !absl::SimpleAtod(stripped.substr(0, digits), &size) ||
        !(size >= 0) || !std::isfinite(size * found->second)) {
      return absl::StrCat(Quote(text), " is not a size such as 600MB or 16GiB");
    }
    text = absl::StrFormat("%.17g", size * found->second);
    return std::string();
  });
}

void JoinPercent(std::vector<std::string>* arguments) {
  for (size_t i = 2; i < arguments->size(); ++i) {
    double number = 0;
    if ((*arguments)[i] != "%" || !absl::SimpleAtod((*arguments)[i - 1], &number) ||
        !absl::StartsWith((*arguments)[i - 2], "--")) {
      continue;
    }
    (*arguments)[i - 1] += "%";
    arguments->erase(arguments->begin() + static_cast<std::ptrdiff_t>(i));
  }
}

CLI::Validator Name() {
  return Check([](std::string& text) {
    if (text.empty()) return std::string("it is empty");
    if (!IsUtf8(text)) return absl::StrCat(Quote(text), " is not UTF-8");
    if (text.size() <= kMaxNameBytes) return std::string();
    return absl::StrCat(Quote(text), " is longer than ", kMaxNameBytes, " bytes");
  });
}

CLI::Option* AddChoice(CLI::App* app, const std::string& name, std::string* target,
                       const std::vector<std::string>& words, const std::string& help) {
  return AddValue(
      app, absl::StrCat(name, " ", absl::StrJoin(words, "|")), target, help,
      Check([words](std::string& text) {
        const bool known = std::find(words.begin(), words.end(), text) != words.end();
        return known ? "" : absl::StrCat(Quote(text), " is none of ", absl::StrJoin(words, ", "));
      }));
}

std::vector<const CLI::App*> Commands(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

const CLI::App* FindCommand(const CLI::App& app, const std::string& name) {
  for (const CLI::App* command : Commands(app)) {
    if (command->get_name() == name) return command;
  }
  return nullptr;
}

std::string DidYouMean(const std::string& word, const std::vector<std::string>& words) {
  // The distance: characters to insert, delete, replace, or swap with the next one.
  const auto distance = [&](const std::string& other) {
    std::vector<std::vector<size_t>> best(word.size() + 1, std::vector<size_t>(other.size() + 1));
    for (size_t i = 0; i <= word.size(); ++i) {
      for (size_t j = 0; j <= other.size(); ++j) {
        if (i == 0 || j == 0) {
          best[i][j] = i + j;
          continue;
        }
        const bool same = word[i - 1] == other[j - 1];
        best[i][j] =
            std::min({best[i - 1][j] + 1, best[i][j - 1] + 1, best[i - 1][j - 1] + (same ? 0 : 1)});
        if (i > 1 && j > 1 && word[i - 1] == other[j - 2] && word[i - 2] == other[j - 1]) {
          best[i][j] = std::min(best[i][j], best[i - 2][j - 2] + 1);
        }
      }
    }
    return best[word.size()][other.size()];
  };
  std::string nearest;
  size_t least = std::min<size_t>(word.size() / 3 + 1, 3);
  if (word.size() > kMaxNameBytes) return "";
  for (const std::string& other : words) {
    if (const size_t far = distance(other); far < least) {
      least = far;
      nearest = other;
    }
  }
  return nearest.empty() ? "" : absl::StrCat(" (did you mean ", nearest, "?)");
}

std::string NoSuchOption(const CLI::App& app, const std::string& word) {
  std::vector<std::string> names;
  for (const CLI::App* level = &app; level != nullptr; level = level->get_parent()) {
    for (const CLI::Option* option : level->get_options()) {
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    }
  }
  const std::string name = word.substr(0, word.find('='));
  return absl::StrCat("there is no option ", Quote(name), DidYouMean(name, names));
}

std::string UsageMessage(const CLI::App& app, const CLI::ParseError& error, bool separated,
                         const std::vector<std::string>& words) {
  // The command that was reached, and what was left over.
  const CLI::App* reached = &app;
  while (!reached->get_subcommands().empty()) reached = reached->get_subcommands().back();
  std::vector<std::string> extra = app.remaining(/*recurse=*/true);
  std::erase(extra, "--");
  std::vector<const CLI::App*> commands = Commands(*reached);
  bool lacks_command = !commands.empty() && reached->get_require_subcommand_min() > 0;
  for (const std::string& word : extra) {
    // Words behind a command belong to the command.
    const bool has_own = lacks_command || reached->get_prefix_command();
    if (has_own && !absl::StartsWith(extra[0], "-")) break;
    if (absl::StartsWith(word, "-")) return NoSuchOption(*reached, word);
  }
  if (lacks_command) {
    std::string names =
        absl::StrJoin(commands, ", ", [](std::string* out, const CLI::App* command) {
          absl::StrAppend(out, command->get_name());
        });
    if (!extra.empty()) {
      std::vector<std::string> words;
      for (const CLI::App* command : commands) words.push_back(command->get_name());
      const std::string meant = DidYouMean(extra[0], words);
      return absl::StrCat("there is no command ", Quote(extra[0]),
                          meant.empty() ? absl::StrCat("; there are ", names) : meant);
    }
    if (typeid(error) == typeid(CLI::RequiredError) && reached == &app) {
      return absl::StrCat("name a command: ", names);
    }
  }
  if (!extra.empty() && reached->get_prefix_command()) {
    if (separated) return absl::StrCat(Quote(extra[0]), " stands before the --");
    // All that was written from there on: its own options may have our options' names.
    const auto command = std::find(words.begin(), words.end(), extra[0]);
    return absl::StrCat(
        "put -- before the command: seqpoint ", reached->get_name(), " [OPTIONS] -- ",
        Printable(absl::StrJoin(command == words.end() ? extra : std::vector(command, words.end()),
                                " ")));
  }
  if (!extra.empty()) return absl::StrCat(Quote(extra[0]), " is one argument too many");
  std::string text = Printable(error.what());
  std::string name = text.substr(0, text.find_first_of(": "));
  if (typeid(error) == typeid(CLI::RequiredError)) {
    return absl::StartsWith(text, "A subcommand") ? "name what to change"
                                                  : absl::StrCat(name, " is missing");
  }
  if (typeid(error) == typeid(CLI::ArgumentMismatch)) {
    return absl::StrCat(
        name, absl::StrContains(text, "missing") ? " needs a value" : " may be given once only");
  }
  return text;
}

}  // namespace seqpoint::client
