// What would be otherwise: a what-if as values. parser.h reads it from text, printer.h writes it.
//
// Threading: plain values. Ownership: values.
#ifndef DAEMON_WHATIF_LANGUAGE_REQUEST_H_
#define DAEMON_WHATIF_LANGUAGE_REQUEST_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace seqpoint::whatif {

enum class Verb : uint8_t { kScale, kSet, kRemove, kInsert, kFuse, kCapture, kReschedule };

enum class What : uint8_t {
  kWork,  // everything that runs on a GPU
  kKernels,
  kCopies,
  kMemsets,
  kCollectives,
  kLaunches,  // calls that put work on a GPU
  kCalls,     // all calls
  kGaps,      // CPU time between calls
  // Of the run: how many there are. Can only be scaled, all of them.
  kIterations,
};

enum class Field : uint8_t {
  kName,      // of a task
  kIn,        // the annotation that it, or its launch, lies in
  kThread,    // text
  kStream,    // number
  kDuration,  // nanoseconds
  kBytes,     // of a copy or memset
  kBound,     // "compute", "memory" or "latency": what a kernel is limited by
  kPhase,     // of the iteration: "forward", ... "unknown" (PhaseName in graph.h)
  kCounter,   // number: a metric that was measured for the kernel
};
enum class Compare : uint8_t { kMatches, kMatchesNot, kEqual, kNotEqual, kLess, kGreater };

struct Condition {
  Field field = Field::kName;
  Compare compare = Compare::kMatches;
  std::string text;       // a regular expression (RE2), a word, or the name of a counter
  double number = 0;      // nanoseconds, bytes
  std::string parameter;  // not empty: instead of the text; a preset's, see ParseChange
  friend bool operator==(const Condition&, const Condition&) = default;
};

struct Selection {
  What what = What::kKernels;
  std::vector<Condition> conditions;  // all hold
  friend bool operator==(const Selection&, const Selection&) = default;
};

enum class Unit : uint8_t { kNumber, kTime, kBytes, kRate };

// "3", "2us", "$compute", "bytes/2GB/s", "allreduce_ring(bytes, 8, $bandwidth, 5us)": a term, or
// two of them with * or /.
struct Amount {
  struct Term {
    double number = 0;  // nanoseconds, bytes, bytes per nanosecond
    Unit unit = Unit::kNumber;
    std::string parameter;  // not empty: instead of the number
    // Not empty: instead of the number what this makes of the arguments; "bytes" and "duration",
    // without arguments, are those of the selected task.
    std::string function;
    std::vector<Term> arguments;
    friend bool operator==(const Term&, const Term&) = default;
  };
  Term first;
  char operation = 0;  // '*', '/' or 0
  Term second;
  bool time = false;  // nanoseconds
  friend bool operator==(const Amount&, const Amount&) = default;
};

// What kInsert makes; kCall: time of the CPU in front of the call that launches the selected work.
enum class Made : uint8_t { kKernel, kCopy, kCollective, kCall };

struct Step {
  Verb verb = Verb::kScale;
  Selection selection;
  Amount amount;        // factor of kScale, time of kSet and kInsert
  std::string name;     // of what kInsert and kFuse make
  bool before = false;  // kInsert: before each one selected, else after it
  // kInsert, not empty: into a queue of this name, beside the streams.
  std::string queue;
  Made made = Made::kKernel;
  bool with = false;  // starts with each one selected, else after it
  // The selected tasks of an iteration share so many bytes, by their durations; one task is
  // inserted for each piece of them, else for each selected one.
  std::optional<Amount> shared, piece;
  // The next one of these waits for it; `reversed`: of the next iteration's, the one that is as far
  // from the begin as what was selected is from its end.
  std::optional<Selection> needed_by;
  bool reversed = false;
  bool chains = false;   // kFuse: what follows each other in a queue, else all of an iteration
  bool longest = false;  // kFuse: takes as long as the longest, else as the work of all
  bool first = false;    // kReschedule: before all else, else in the order in which it is needed
  friend bool operator==(const Step&, const Step&) = default;
};

struct Request {
  std::vector<Step> steps;
  friend bool operator==(const Request&, const Request&) = default;
};

}  // namespace seqpoint::whatif

#endif  // DAEMON_WHATIF_LANGUAGE_REQUEST_H_
