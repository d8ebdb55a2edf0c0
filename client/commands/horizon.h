// How long the run is (--lengths, --iterations and theirs): the same options wherever it can be
// said.
// Threading: values. Ownership: the options outlive the app that reads them.
#ifndef CLIENT_COMMANDS_HORIZON_H_
#define CLIENT_COMMANDS_HORIZON_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "client/files/lengths.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::client {

struct HorizonOptions {
  LengthsOptions lengths;
  int32_t data_parallel = 0;
  std::string order = "shuffle";
  int64_t iterations = 0;
  int64_t epochs = 0;  // 0: not said, as 1

  void AddTo(CLI::App* app);
  bool given() const { return iterations > 0 || !lengths.path.empty(); }
  // Reads the file of lengths. Errors: of the file, or of options that do not go together.
  absl::StatusOr<v1::Horizon> Read() const;
};

}  // namespace seqpoint::client

#endif  // CLIENT_COMMANDS_HORIZON_H_
