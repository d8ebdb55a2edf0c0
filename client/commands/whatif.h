// What `seqpoint whatif` asks for, and the presets that there are.
// Threading: pure but for reading files. Ownership: keeps nothing.
#ifndef CLIENT_COMMANDS_WHATIF_H_
#define CLIENT_COMMANDS_WHATIF_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::client {

// Of "amp,compute=4", a preset with parameters, or "my.whatif,times=2", a file with its own: what
// is the name of a preset is one; what has a '/' or ends in ".whatif", or is a file, is a file.
// InvalidArgument: neither, parameters that the preset does not have, a file that cannot be read.
absl::StatusOr<v1::WhatIfChange> ReadChange(const std::string& text);
// Of steps, as in a file.
absl::StatusOr<v1::WhatIfChange> StepsChange(const std::string& steps);

std::vector<std::string> PresetNames();
// All presets: what they assume, their parameters, their source.
std::string PresetsText();
std::string PresetsJson();
// The file of one. InvalidArgument lists those that there are.
absl::StatusOr<std::string> PresetFileText(const std::string& name);

}  // namespace seqpoint::client

#endif  // CLIENT_COMMANDS_WHATIF_H_
