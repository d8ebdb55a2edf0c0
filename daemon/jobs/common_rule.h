// CommonRule: the rule that a job takes of those that its processes learned.
//
// Each process learns from its own calls, and one rule is for all. The rule of one stage of a
// pipeline may miscount another stage, which does the same in another order. This one counts three
// micro-batches of the first stage, where the last one has four:
//
//   boundary "copy", confirm "backward", step "adam"
//   last stage    copy forward backward  copy forward backward  copy …                  adam   4
//   first stage   copy forward copy forward backward  copy forward backward  copy …     adam   3
//                      └ not confirmed: the next copy replaces it
//
// A rule is therefore tried on the calls of every process that learns. Until one fits them all, the
// other processes have time to learn theirs.
//
// Threading: one thread at a time. Ownership: values only. Cost: a replay of the kept calls, about
// 10 ns each, when another process has a rule and when the time is over.
#ifndef DAEMON_JOBS_COMMON_RULE_H_
#define DAEMON_JOBS_COMMON_RULE_H_

#include <cstddef>
#include <optional>

#include "daemon/jobs/learning.h"
#include "daemon/jobs/process_table.h"

namespace seqpoint::jobs {

class CommonRule {
 public:
  // Nothing where no process has a rule. Nothing yet where none fits all and another process may
  // still learn one: until half as many calls came again, or `last_chance`.
  std::optional<LearnedRule> Choose(const ProcessTable& processes, bool last_chance = false);
  // Whether a rule that was learned elsewhere fits all processes that learn.
  static bool FitsAll(const LearnedRule& rule, const ProcessTable& processes);

 private:
  size_t rules_ = 0;  // at the last look
};

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_COMMON_RULE_H_
