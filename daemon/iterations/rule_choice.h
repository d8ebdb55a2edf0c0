// Makes a rule that the matcher can follow from a found loop: the cheapest reliable event at the
// start of an iteration, and events that only a training iteration has. An evaluation phase that
// was not seen yet may copy the same batches and run the same forward pass.
//
// Threading: free functions over constant input.
#ifndef DAEMON_ITERATIONS_RULE_CHOICE_H_
#define DAEMON_ITERATIONS_RULE_CHOICE_H_

#include <optional>
#include <string>
#include <vector>

#include "daemon/iterations/launch_log.h"
#include "daemon/iterations/loop.h"
#include "daemon/iterations/replay.h"
#include "injection/abi/control.h"

namespace seqpoint::iterations {

struct ChosenRule {
  abi::Rule rule{};                           // without lengths
  std::vector<ReplayedIteration> iterations;  // the iterations that it finds in the stream
  uint32_t verified_iterations = 0;  // loop iterations in which it found exactly one iteration
  uint32_t micro_batches = 1;
  bool evaluation_seen = false;
  std::string boundary_words;
};

// Nothing when no pattern finds each loop iteration exactly once.
std::optional<ChosenRule> ChooseRule(const LaunchLog& stream, const Occurrences& occurrences,
                                     const Loop& loop);

// The rule of a stream whose iterations have framework marks; nothing with fewer than `min_marks`.
std::optional<ChosenRule> ChooseMarkRule(const LaunchLog& stream, size_t min_marks);

// The rule of a stream in which a framework adapter marks forward passes and optimiser steps;
// nothing with fewer than two iterations.
std::optional<ChosenRule> ChooseFrameworkRule(const LaunchLog& stream);

}  // namespace seqpoint::iterations

#endif  // DAEMON_ITERATIONS_RULE_CHOICE_H_
