// How --help looks: names in one column, descriptions beside them, wrapped.
// Threading: pure.
#ifndef CLIENT_HELP_H_
#define CLIENT_HELP_H_

#include <CLI/CLI.hpp>
#include <string>

namespace seqpoint::client {

class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter() { label("Positionals", "Arguments"); }
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override;
  std::string make_usage(const CLI::App* app, std::string name) const override;
  std::string make_option(const CLI::Option* option, bool is_positional) const override;
  std::string make_subcommand(const CLI::App* app) const override;
};

}  // namespace seqpoint::client

#endif  // CLIENT_HELP_H_
