// Fuzz target of the configuration file of seqpointd. Nothing may crash or leave by an exception;
// what is read has known keys, each once and with one value.
#include <cstdint>
#include <cstdlib>
#include <set>
#include <string>
#include <string_view>

#include "daemon/settings/config_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  const std::set<std::string> known = {"dir", "hub", "log", "max-job-age", "a", "b", "c"};
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  const auto items = seqpoint::settings::ParseConfig(text, "file", known);
  if (!items.ok()) return 0;
  std::set<std::string> seen;
  for (const CLI::ConfigItem& item : *items) {
    if (known.count(item.name) == 0 || !seen.insert(item.name).second || item.inputs.size() != 1 ||
        !item.parents.empty()) {
      abort();
    }
  }
  return 0;
}
