// Detects whether the PyTorch adapter was loaded into the Pythons of a run, and why it was not.
// Threading: one thread. Ownership: an AdapterEar owns its file.
#ifndef CLIENT_COMMANDS_RUN_ADAPTER_H_
#define CLIENT_COMMANDS_RUN_ADAPTER_H_

#include <string>
#include <vector>

namespace seqpoint::client {

// A temporary file to which the adapters of a run write that a Python loaded them.
class AdapterEar {
 public:
  AdapterEar();
  ~AdapterEar();
  AdapterEar(const AdapterEar&) = delete;
  AdapterEar& operator=(const AdapterEar&) = delete;

  // Empty: the file could not be made, and Heard() stays empty.
  const std::string& path() const { return path_; }
  std::string Heard() const;

 private:
  std::string path_;
};

// Why the PyTorch adapter reported no iterations of a Python program, and the way out: a message
// without its full stop. `heard`: the content of the file that SEQPOINT_ADAPTER_TOLD names: "p" for
// each Python and "t" for each torch that loaded an adapter, "u" for a training whose steps could
// not be seen. Empty where torch loaded an adapter, or no Python is known to have run.
std::string AdapterMissing(const std::vector<std::string>& command, const std::string& heard);

}  // namespace seqpoint::client

#endif  // CLIENT_COMMANDS_RUN_ADAPTER_H_
