// The planners: programs of their own, which neither ask a daemon nor link its API. `seqpoint
// place` becomes `seqpoint-place`. Threading: call from the main thread.
#ifndef CLIENT_COMMANDS_PLANNERS_H_
#define CLIENT_COMMANDS_PLANNERS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace seqpoint::client {

struct Planner {
  const char* name;
  const char* help;
};

inline constexpr Planner kPlanners[] = {
    {"place", "Split a graph of operators over accelerators and CPU cores."},
    {"partition", "Choose which rank owns which rows of a sparse network."},
};

bool IsPlanner(const std::string& command);

// Returns only where the program cannot be started: NotFound, with the way out.
absl::Status StartPlanner(const std::string& name, const std::vector<std::string>& arguments);

}  // namespace seqpoint::client

#endif  // CLIENT_COMMANDS_PLANNERS_H_
