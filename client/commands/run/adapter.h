// Whether the PyTorch adapter got into the Pythons of a run, and why it did not.
// Threading: one thread. Ownership: an AdapterEar owns its file.
#ifndef CLIENT_COMMANDS_RUN_ADAPTER_H_
#define CLIENT_COMMANDS_RUN_ADAPTER_H_

#include <string>
#include <vector>

namespace seqpoint::client {

// Where the adapters of a run tell that they got into a Python: a file for as long as this lives.
class AdapterEar {
 public:
  AdapterEar();
  ~AdapterEar();
  AdapterEar(const AdapterEar&) = delete;
  AdapterEar& operator=(const AdapterEar&) = delete;

  // Empty: there is none, and nothing will be heard.
  const std::string& path() const { return path_; }
  std::string Heard() const;

 private:
  std::string path_;
};

// Why the PyTorch adapter told no iterations of a Python program, and the way out: a sentence
// without its full stop. `told`: what adapters told in the file that SEQPOINT_ADAPTER_TOLD names:
// "p" for each Python and "t" for each torch that they got into, "u" for a training whose steps
// could not be seen. Answers nothing where one got into torch, or no Python is known to have run.
std::string AdapterMissing(const std::vector<std::string>& command, const std::string& told);

}  // namespace seqpoint::client

#endif  // CLIENT_COMMANDS_RUN_ADAPTER_H_
