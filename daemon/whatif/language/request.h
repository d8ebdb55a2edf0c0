// A what-if as values. parser.h reads it from text, printer.h writes it.
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

enum class Target : uint8_t {
  kWork,  // all work of a GPU
  kKernels,
  kCopies,
  kMemsets,
  kCollectives,
  kLaunches,  // calls that launch work
  kCalls,     // all calls
  kGaps,      // CPU time between calls
  // The number of iterations of the run. It can only be scaled.
  kIterations,
};

enum class Field : uint8_t {
  kName,      // of a task
  kIn,        // the annotations around it, or around its launch
  kThread,    // text
  kStream,    // number
  kDuration,  // nanoseconds
  kBytes,     // of a copy or memset
  kBound,     // "compute", "memory" or "latency": the limit of a kernel
  kPhase,     // of the iteration: "forward", ... "unknown" (PhaseName in graph.h)
  kCounter,   // number: a metric that was measured for the kernel
};
enum class Compare : uint8_t { kMatches, kMatchesNot, kEqual, kNotEqual, kLess, kGreater };

struct Condition {
  Field field = Field::kName;
  Compare compare = Compare::kMatches;
  std::string text;   // a regular expression (RE2), a word, or the name of a counter
  double number = 0;  // nanoseconds, bytes
  std::string
      parameter;  // not empty: a preset's parameter that stands for the text, see ParseChange
  friend bool operator==(const Condition&, const Condition&) = default;
};

struct Selection {
  Target target = Target::kKernels;
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
    std::string parameter;  // not empty: it stands for the number
    // Not empty: the value of this function stands for the number. "bytes" and "duration", without
    // arguments, are those of the selected task.
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

// The kind of task that kInsert makes; kCall: CPU time before the call that launches the selected
// work.
enum class Made : uint8_t { kKernel, kCopy, kCollective, kCall };

struct Step {
  Verb verb = Verb::kScale;
  Selection selection;
  Amount amount;        // factor of kScale, time of kSet and kInsert
  std::string name;     // of the task that kInsert and kFuse make
  bool before = false;  // kInsert: before each one selected, else after it
  // kInsert, not empty: into an execution lane of this name, which is no stream.
  std::string lane;
  Made made = Made::kKernel;
  bool with = false;  // starts with each one selected, else after it
  // The selected tasks of an iteration share `shared` bytes in proportion to their durations. One
  // task is inserted for each transfer of these, or for each selected task.
  std::optional<Amount> shared, transfer;
  // The next one of these waits for it. `reversed`: the one of the next iteration that is as far
  // from its start as the selected task is from its iteration's end.
  std::optional<Selection> needed_by;
  bool reversed = false;
  bool chains = false;   // kFuse: tasks that follow each other in a lane, else all of an iteration
  bool longest = false;  // kFuse: takes as long as the longest, else as the work of all
  bool first = false;    // kReschedule: before all others, else in the order of need
  friend bool operator==(const Step&, const Step&) = default;
};

struct Request {
  std::vector<Step> steps;
  friend bool operator==(const Request&, const Request&) = default;
};

}  // namespace seqpoint::whatif

#endif  // DAEMON_WHATIF_LANGUAGE_REQUEST_H_
