// Validators of option values. An error names the option, the value and the way out.
// Threading: pure functions.
#ifndef CLIENT_COMMANDS_OPTIONS_H_
#define CLIENT_COMMANDS_OPTIONS_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace seqpoint::client {

// For CLI::Option::transform: checks the value and turns it into a form that CLI11 reads.
CLI::Validator WholeNumber(int64_t least, int64_t most);
CLI::Validator Number(double least, double most);
CLI::Validator Share();       // "0.5%" or "0.005", above 0 and below 1
CLI::Validator Confidence();  // "95", "95 %" or "0.95"
CLI::Validator ByteSize();    // "600MB", "16 GiB" or a number of bytes
// For CLI::Option::check.
CLI::Validator Name();  // neither empty nor too long for a name

// A "%" that a shell parted from its number (--confidence 95 %) goes back to it.
void JoinPercent(std::vector<std::string>* arguments);

// Options that are added while it lives stand under this title in --help.
class OptionGroup {
 public:
  OptionGroup(CLI::App* app, const std::string& title) : app_(app) {
    app_->option_defaults()->group(title);
  }
  ~OptionGroup() { app_->option_defaults()->group("Options"); }

 private:
  CLI::App* const app_;
};

// An option with a value. `name`: with the value's type, "--limit N".
template <typename Value>
CLI::Option* AddValue(CLI::App* app, const std::string& name, Value* target,
                      const std::string& help, CLI::Validator check = CLI::Validator()) {
  const size_t blank = name.find(' ');
  return app->add_option(name.substr(0, blank), *target, help)
      ->transform(std::move(check))
      ->type_name(name.substr(blank + 1));
}

// An option or a positional that takes one of `words`; help and completion show them.
CLI::Option* AddChoice(CLI::App* app, const std::string& name, std::string* target,
                       const std::vector<std::string>& words, const std::string& help);

// The error message for a command line that `app` could not parse. `separated`: a command stands
// behind a "--". `words`: what was typed, up to there.
std::string UsageMessage(const CLI::App& app, const CLI::ParseError& error, bool separated,
                         const std::vector<std::string>& words);

// " (did you mean X?)", of the word that is a slip of the finger or two away; empty: none is.
std::string DidYouMean(const std::string& word, const std::vector<std::string>& words);
// The error message for an unknown option, with a similar option of `app` or of its parents.
std::string NoSuchOption(const CLI::App& app, const std::string& word);

std::vector<const CLI::App*> Commands(const CLI::App& app);
const CLI::App* FindCommand(const CLI::App& app, const std::string& name);  // null: none

}  // namespace seqpoint::client

#endif  // CLIENT_COMMANDS_OPTIONS_H_
