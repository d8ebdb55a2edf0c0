// What-ifs that people ask for, as files that say their source and their assumption
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
#include "daemon/whatif/transform/transform.h"

namespace seqpoint::whatif {

struct Parameter {
  std::string name;
  std::optional<double> value;  // the default; none: it has to be given
  std::string meaning;
  Unit unit = Unit::kNumber;  // a time is in nanoseconds
  bool is_text = false;       // an expression that names match; `text` is the default
  std::optional<std::string> text;
};

// Tasks that the trace must have, or must not have, for the assumption to hold.
struct Requirement {
  bool wanted = true;
  Selection selection;
  std::string because;  // a sentence for a trace that does not meet it; may be empty
};

// The answer is doubtful for the share of the time that these tasks take.
struct Doubt {
  Selection selection;
  std::string because;
};

struct Preset {
  std::string name;  // "amp"
  std::string text;  // the text of its file
  std::string title;
  std::string source;
  std::string assumption;
  // Standard deviation of the errors of judged answers, as a share of the time after; 0: none was
  // judged.
  double off_by = 0;
  std::vector<Requirement> requirements;
  std::vector<Doubt> unfit;
  std::vector<Parameter> parameters;
  Request request;
};

// Reads a file's text. InvalidArgument names the line and the mistake.
absl::StatusOr<Preset> ParsePreset(std::string_view name, std::string_view text);

// All built-in presets, by name.
const std::vector<Preset>& Presets();
// NotFound lists those that there are.
absl::StatusOr<Preset> FindPreset(std::string_view name);

// A what-if to apply, with the values of its parameters.
struct Change {
  std::string name;  // the preset's; "steps" where steps were given
  Request request;
  std::map<std::string, double> parameters;
  std::map<std::string, std::string> texts;  // the request has them already
};

// "amp", "amp,compute=4,memory=1.5": a preset with parameters; texts may stand in quotation marks.
// InvalidArgument: one that the preset does not have, no number, or one that has no value.
absl::StatusOr<Change> ParseChange(std::string_view text);
// The same for any preset. `parameters`: "compute=4,memory=1.5", or empty.
absl::StatusOr<Change> WithParameters(Preset preset, std::string_view parameters);

// Whether the preset fits the trace. `applies` is false when it could change nothing, and `why_not`
// says why.
struct Fit {
  bool applies = true;
  std::string why_not;
  // The shares of the time for which it is doubtful, by the text that follows the share: "of the
  // time of kernels: these run in half precision".
  std::map<std::string, double> doubtful;
};
// `change` has the texts that were given; nullptr: the defaults.
Fit FitOf(const Preset& preset, const Bounds& bounds, const Graph& graph,
          const Change* change = nullptr);

// The doubts over several traces: one sentence for each reason, with the range of the shares.
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
