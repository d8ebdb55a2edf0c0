// A file of sequence lengths becomes a Horizon: how often each length occurs in the whole run.
//
// The file is CSV, plain or gzip, with a header. A row is an iteration, or, with `batch` > 0, an
// example; then iterations are put together as training does it: examples in `order`, cut into
// batches, each padded to its longest example. Lengths with fractions are rounded.
//
// The file is read once, from end to end: what is kept is how often each length occurs. Examples
// whose lengths are alike have no order of their own then, but a random one.
//
// Threading: pure but for reading the file. Errors name file, line, value and the way out.
#ifndef CLIENT_FILES_LENGTHS_H_
#define CLIENT_FILES_LENGTHS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::client {

enum class ExampleOrder {
  kShuffle,  // a random permutation each epoch
  kBucket,   // a random permutation, sorted within windows of 100 batches
  kSorted,   // by length, ascending; with two lengths by their sum
  kFile,     // as in the file
};

struct LengthsOptions {
  std::string path;
  // One or two names. Empty: `len_total`, else the first two whose names contain "len", else all
  // columns if there are at most two.
  std::vector<std::string> columns;
  int64_t epochs = 1;
  int64_t batch = 0;  // examples per iteration; 0: a row is an iteration
  ExampleOrder order = ExampleOrder::kShuffle;
  bool drop_last = false;     // an incomplete last batch is left out
  int64_t pad_to = 1;         // lengths are rounded up to a multiple
  bool show_progress = true;  // on standard error, of a file that takes longer than a second
};

// KIND_HISTOGRAM where the lengths of the run are known exactly, KIND_DISTRIBUTION where they
// depend on chance.
absl::StatusOr<v1::Horizon> ReadLengths(const LengthsOptions& options);

}  // namespace seqpoint::client

#endif  // CLIENT_FILES_LENGTHS_H_
