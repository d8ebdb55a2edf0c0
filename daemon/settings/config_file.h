// The configuration file: `key = value` lines in TOML, the keys being names of options.
//
// Threading: one thread. Ownership: keeps a reference to the keys.
#ifndef DAEMON_SETTINGS_CONFIG_FILE_H_
#define DAEMON_SETTINGS_CONFIG_FILE_H_

#include <istream>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"

namespace seqpoint::settings {

// A file is a page, not a data set.
inline constexpr size_t kMostConfigBytes = 1 << 20;

// The items of `text`. InvalidArgument, which names `file` and the line: a key that is not in
// `known`, one that is there twice, a section, more than one value, or no TOML at all.
absl::StatusOr<std::vector<CLI::ConfigItem>> ParseConfig(std::string_view text,
                                                         const std::string& file,
                                                         const std::set<std::string>& known);

}  // namespace seqpoint::settings

#endif  // DAEMON_SETTINGS_CONFIG_FILE_H_
