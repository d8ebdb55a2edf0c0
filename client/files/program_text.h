// Does a program's file hold a name that it may ask the loader for?
//
// Threading: free functions. A file that cannot be read holds nothing.
#ifndef CLIENT_FILES_PROGRAM_TEXT_H_
#define CLIENT_FILES_PROGRAM_TEXT_H_

#include <string>

#include "absl/strings/string_view.h"

namespace seqpoint::client {

// A file of at most kMostSearched bytes is searched as a whole. A larger program (some carry
// gigabytes of data, which a start cannot wait for) is searched in its sections of names, wherever
// they lie: .dynstr has those that it is linked with, .rodata those that it looks up at run time. A
// file without sections is searched at both ends. At most kMostSearched bytes of each.
inline constexpr size_t kMostSearched = 64 << 20;
bool ProgramHolds(const std::string& path, absl::string_view name);

// An ELF file, as programs and libraries are.
bool IsProgram(const std::string& path);

}  // namespace seqpoint::client

#endif  // CLIENT_FILES_PROGRAM_TEXT_H_
