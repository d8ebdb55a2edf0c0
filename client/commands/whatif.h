// The changes that `seqpoint whatif` asks about, and the list of presets.
// Threading: pure but for reading files. Ownership: keeps nothing.
#ifndef CLIENT_COMMANDS_WHATIF_H_
#define CLIENT_COMMANDS_WHATIF_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/commands/context.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::client {

// `text` is "amp,compute=4", a preset with parameters, or "my.whatif,times=2", a file with its own.
// A name among `presets` is a preset. A name with a '/', with the end ".whatif", or of a file that
// exists is a file. InvalidArgument: it is neither, or the file cannot be read.
absl::StatusOr<v1::WhatIfChange> ReadChange(const std::string& text,
                                            const std::vector<std::string>& presets);

// The same, with the presets of the daemon.
absl::StatusOr<v1::WhatIfChange> ReadChange(const Context& context, const std::string& text);

// Presets: what they assume, their parameters, their source.
std::string PresetsText(const v1::ListPresetsReply& reply);
// The daemon's; none where none answers.
std::vector<std::string> PresetNames(const Context& context);

}  // namespace seqpoint::client

#endif  // CLIENT_COMMANDS_WHATIF_H_
