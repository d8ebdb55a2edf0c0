// Tells clients who belongs to a folder while nobody answers there (proto/start_note.h).
// Threading: one thread. Ownership: none.
#ifndef DAEMON_OPERATE_START_NOTE_H_
#define DAEMON_OPERATE_START_NOTE_H_

#include <string>
#include <string_view>
#include <vector>

namespace seqpoint::operate {

// Words as a shell takes them.
std::string ShellText(const std::vector<std::string>& words);

// Writes the note into `directory`. `kind`: "hub", "node's daemon" or "daemon". Where it cannot be
// written, clients do without it.
void LeaveStartNote(const std::string& directory, std::string_view kind,
                    const std::vector<std::string>& command);

}  // namespace seqpoint::operate

#endif  // DAEMON_OPERATE_START_NOTE_H_
