// --from, --to, --epoch: a part of a run, the same options wherever one can be asked about.
// Threading: values.
#ifndef CLIENT_COMMANDS_PART_H_
#define CLIENT_COMMANDS_PART_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>

#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::client {

struct PartOptions {
  std::optional<int64_t> from, to;
  int32_t epoch = 0;

  void AddTo(CLI::App* command);
  bool given() const { return from.has_value() || to.has_value() || epoch != 0; }
  // Into a request, where one was given.
  template <typename Request>
  void SetIn(Request* request) const {
    if (!given()) return;
    v1::Part& part = *request->mutable_part();
    if (from) part.set_from(*from);
    if (to) part.set_to(*to);
    part.set_epoch(epoch);
  }
};

}  // namespace seqpoint::client

#endif  // CLIENT_COMMANDS_PART_H_
