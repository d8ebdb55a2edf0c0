// What would be otherwise: a what-if as text, the same in a file, on a command line and in the gRPC
// request (docs/whatif.md has the grammar).
//
//   scale kernels where name ~ "gemm|conv" by 1/3
//   remove gaps where in ~ "DataLoader"
//
// Threading: free functions, plain values. Ownership: values.
#ifndef DAEMON_WHATIF_REQUEST_H_
#define DAEMON_WHATIF_REQUEST_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace seqpoint::whatif {

enum class Verb : uint8_t { kScale, kSet, kRemove, kInsert, kFuse, kCapture };

enum class What : uint8_t {
  kWork,  // everything that runs on a GPU
  kKernels,
  kCopies,
  kMemsets,
  kCollectives,
  kLaunches,  // calls that put work on a GPU
  kCalls,     // all calls
  kGaps,      // CPU time between calls
};

enum class Field : uint8_t {
  kName,      // of a task
  kIn,        // the annotation that it, or its launch, lies in
  kThread,    // text
  kStream,    // number
  kDuration,  // nanoseconds
  kBytes,     // of a copy or memset
  kBound,     // "compute", "memory" or "latency": what a kernel is limited by
};
enum class Compare : uint8_t { kMatches, kMatchesNot, kEqual, kNotEqual, kLess, kGreater };

struct Condition {
  Field field = Field::kName;
  Compare compare = Compare::kMatches;
  std::string text;   // a regular expression (RE2) or a word
  double number = 0;  // nanoseconds, bytes
  friend bool operator==(const Condition&, const Condition&) = default;
};

struct Selection {
  What what = What::kKernels;
  std::vector<Condition> conditions;  // all hold
  friend bool operator==(const Selection&, const Selection&) = default;
};

// A number, a time, a parameter "$compute", or two of them with * or /.
struct Amount {
  struct Term {
    double number = 0;
    std::string parameter;  // not empty: instead of the number
    friend bool operator==(const Term&, const Term&) = default;
  };
  Term first;
  char operation = 0;  // '*', '/' or 0
  Term second;
  bool time = false;  // nanoseconds
  friend bool operator==(const Amount&, const Amount&) = default;
};

struct Step {
  Verb verb = Verb::kScale;
  Selection selection;
  Amount amount;        // factor of kScale, time of kSet and kInsert
  std::string name;     // of what kInsert and kFuse make
  bool before = false;  // kInsert: before each one selected, else after it
  friend bool operator==(const Step&, const Step&) = default;
};

struct Request {
  std::vector<Step> steps;
  friend bool operator==(const Request&, const Request&) = default;
};

// One step a line, or parted by ';'. "# ..." is a comment. InvalidArgument names the line, what was
// read there, and what could have been.
absl::StatusOr<Request> ParseRequest(std::string_view text);
// The text that reads as the same request, a step a line.
std::string FormatRequest(const Request& request);

std::string FormatSelection(const Selection& selection);

// Values of the parameters that a request names; InvalidArgument for one that is not given, a
// division by 0, a result that is no finite number >= 0.
absl::StatusOr<double> Evaluate(const Amount& amount,
                                const std::map<std::string, double>& parameters);

// "12us", "1.5 ms", "0": nanoseconds. InvalidArgument for anything else.
absl::StatusOr<double> ParseTimeNs(std::string_view text);

}  // namespace seqpoint::whatif

#endif  // DAEMON_WHATIF_REQUEST_H_
