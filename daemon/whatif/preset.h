// What-ifs that people ask for, as files with their source and their assumption
// (daemon/whatif/presets/*.whatif, built into the program).
//
//   source: Daydream (Zhu et al., ATC 2020), section 5.1
//   needs: kernels where bound = compute
//   param compute = 3: how many times as fast kernels bound by compute become
//   steps:
//   scale kernels where bound = compute by 1/$compute
//
// Threading: free functions; the presets are made once and never change. Ownership: values.
#ifndef DAEMON_WHATIF_PRESET_H_
#define DAEMON_WHATIF_PRESET_H_

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/whatif/graph.h"
#include "daemon/whatif/language/request.h"
#include "daemon/whatif/transform.h"

namespace seqpoint::whatif {

struct Parameter {
  std::string name;
  std::optional<double> value;  // by default; none: it has to be given
  bool time = false;            // nanoseconds
  std::string meaning;
  Unit unit = Unit::kNumber;
  bool is_text = false;  // a part of names, an expression; then by default:
  std::optional<std::string> text;
};

// What must be in the trace, or must not be, for the assumption to hold.
struct Requirement {
  bool wanted = true;
  Selection selection;
  std::string because;  // a sentence for where it is otherwise; may be empty
};

// With these tasks in the trace it is doubtful, for their share of the time, and why.
struct Doubt {
  Selection selection;
  std::string because;
};

struct Preset {
  std::string name;  // "amp"
  std::string text;  // of its file
  std::string title;
  std::string source;
  std::string assumption;
  // By how much judged answers were off, a standard deviation, of the time after; 0: none was
  // judged.
  double off_by = 0;
  // Without these tasks in the trace it makes no sense: the first of the requirements.
  Selection needs;
  std::vector<Requirement> requirements;
  std::vector<Doubt> unfit;
  std::vector<Parameter> parameters;
  Request request;
};

// Of a file's text. InvalidArgument names the line and what is wrong with it.
absl::StatusOr<Preset> ParsePreset(std::string_view name, std::string_view text);

// All that are built in, by name.
const std::vector<Preset>& Presets();
// NotFound lists those that there are.
absl::StatusOr<Preset> FindPreset(std::string_view name);

// What is to be done, with the values of its parameters.
struct Change {
  std::string name;  // of the preset; "steps" of steps that were given
  Request request;
  std::map<std::string, double> parameters;
  std::map<std::string, std::string> texts;  // the request has them already
};

// "amp", "amp,compute=4,memory=1.5": a preset with parameters; texts may stand in quotation marks.
// InvalidArgument: one that the preset does not have, no number, or one that has no value.
absl::StatusOr<Change> ParseChange(std::string_view text);
// The same of any preset; `parameters`: "compute=4,memory=1.5", or empty.
absl::StatusOr<Change> WithParameters(Preset preset, std::string_view parameters);

// Does the preset fit the trace? `applies`: false when there is nothing that it could change, and
// `why_not` says why.
struct Fit {
  bool applies = true;
  std::string why_not;
  // For which share of the time it is doubtful, by what is said behind it: "of the time of kernels:
  // these run in half precision".
  std::map<std::string, double> doubtful;
};
// `change` has the texts that were given; nullptr: those by default.
Fit FitOf(const Preset& preset, const Bounds& bounds, const Graph& graph,
          const Change* change = nullptr);

// What is doubtful in some of the traces: one sentence for each reason, whatever the traces'
// shares.
class Doubts {
 public:
  void Add(const Fit& fit);
  std::vector<std::string> InWords() const;

 private:
  struct Shares {
    double least = 1, most = 0;
  };
  std::map<std::string, Shares> shares_;
};

}  // namespace seqpoint::whatif

#endif  // DAEMON_WHATIF_PRESET_H_
