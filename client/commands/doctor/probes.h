// Libraries and programs that are tried out in a child process, so that a crash of theirs is only a
// finding.
// Threading: they fork; call them before any thread was started.
#ifndef CLIENT_COMMANDS_DOCTOR_PROBES_H_
#define CLIENT_COMMANDS_DOCTOR_PROBES_H_

#include <string>

namespace seqpoint::client {

// The facts that a child process found by loading a library.
struct LibraryFacts {
  std::string path;     // that was loaded; empty: not found
  std::string version;  // in words
  std::string detail;   // devices; for CUPTI: what subscribing gave
  std::string error;    // empty: all is well
};

LibraryFacts FindDriver();  // libcuda.so.1
LibraryFacts FindCupti();
LibraryFacts TryInject(const std::string& path);  // libseqpoint_inject.so
// `adapter`: the folder of the PyTorch adapter; empty: none.
LibraryFacts AskPython(const std::string& python, const std::string& adapter);

}  // namespace seqpoint::client

#endif  // CLIENT_COMMANDS_DOCTOR_PROBES_H_
