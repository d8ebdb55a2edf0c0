// Horizon: what is known of the length of a run and of the sequence lengths to come.
//
// Threading: values.
#ifndef DAEMON_SEQPOINT_HORIZON_H_
#define DAEMON_SEQPOINT_HORIZON_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/seqpoint/key.h"

namespace seqpoint {

inline constexpr int64_t kMaxIterations = int64_t{1} << 50;

struct KeyCount {
  Key key;
  int64_t count = 0;
};

struct Horizon {
  enum class Kind : uint8_t {
    kUnknown,
    kIterations,    // only the number of iterations of the whole run
    kHistogram,     // exactly how often each key occurs in the whole run
    kDistribution,  // the expected number of each key (shuffled batches): keys are drawn from it
  };
  Kind kind = Kind::kUnknown;
  int64_t iterations = 0;           // of the whole run; with a histogram its sum
  std::vector<KeyCount> histogram;  // of the whole run
  // Where keys are sums: the micro-batches' keys in the whole run. Empty: not known.
  std::vector<KeyCount> parts;
  bool parts_certain = false;  // each of them will occur; else these are expected numbers
  // The question is about another run, of which nothing has run yet. The iterations so far only
  // teach the models. Not stored.
  bool another = false;

  static Horizon Unknown() { return {}; }
  static Horizon Iterations(int64_t iterations);
  // `histogram` is that of one epoch and is taken `epochs` times.
  static Horizon Histogram(std::vector<KeyCount> histogram, int64_t epochs = 1);
  static Horizon Distribution(std::vector<KeyCount> histogram, int64_t epochs = 1);

  // One entry per key, in key order; a horizon without iterations is unknown. InvalidArgument for
  // negative counts or keys, and for more than the engine handles.
  static absl::StatusOr<Horizon> Checked(Horizon horizon);
};

}  // namespace seqpoint

#endif  // DAEMON_SEQPOINT_HORIZON_H_
