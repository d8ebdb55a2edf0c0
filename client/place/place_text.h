// The answer of `seqpoint place` as text, as JSON and as a graph (docs/using/placement.md, "What is
// printed").
// Threading: pure functions.
#ifndef CLIENT_PLACE_PLACE_TEXT_H_
#define CLIENT_PLACE_PLACE_TEXT_H_

#include <optional>
#include <string>
#include <vector>

#include "daemon/placement/planner.h"
#include "daemon/placement/problem.h"

namespace seqpoint::client {

// Another placement beside the answer.
struct Alternative {
  std::string name;
  std::optional<double> value;  // none: the objective has none for it
  std::string why_not;          // the rule that it breaks; empty: it is allowed
};

struct PlaceAnswer {
  std::string source;  // the problem's file, or what was recorded
  std::string unit = "Times have the unit of the file (published ones: ms).";
  placement::Problem problem;
  placement::PlannerOptions options;  // what was asked for
  placement::Plan plan;
  std::vector<Alternative> alternatives;
  double seconds = 0;  // that planning took
  // The part about recordings (client/place/recordings.h): lines, and fields of the JSON object.
  std::string more_text, more_json;
};

// One accelerator, equal layers: what people do without a planner.
std::vector<Alternative> ObviousAlternatives(const placement::Problem& problem,
                                             const placement::PlannerOptions& options);
Alternative Judged(const std::string& name, const placement::Problem& problem,
                   const placement::Placement& placement, const placement::PlannerOptions& options);

std::string PlaceText(const PlaceAnswer& answer);
std::string PlaceJson(const PlaceAnswer& answer);
// For Graphviz: a color for each device.
std::string PlaceDot(const placement::Problem& problem, const placement::Placement& placement);

}  // namespace seqpoint::client

#endif  // CLIENT_PLACE_PLACE_TEXT_H_
