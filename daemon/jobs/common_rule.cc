#include "daemon/jobs/common_rule.h"

#include <utility>
#include <vector>

#include "injection/abi/control.h"

namespace seqpoint::jobs {
namespace {

// The program or its framework says where iterations are, and how many micro-batches they have.
bool IsTold(const abi::Rule& rule) {
  return rule.step.op == 0 || rule.step.op == static_cast<uint8_t>(abi::Op::kStep);
}

std::vector<const Learning*> LearningOf(const ProcessTable& processes) {
  std::vector<const Learning*> all;
  for (const auto& [id, process] : processes) {
    if (process->learning && process->learning->has_calls()) all.push_back(&*process->learning);
  }
  return all;
}

size_t CountFitting(const LearnedRule& rule, const std::vector<const Learning*>& all) {
  if (IsTold(rule.rule)) return all.size();
  size_t fitting = 0;
  for (const Learning* const one : all) fitting += one->Fits(rule.rule) ? 1 : 0;
  return fitting;
}

struct Choice {
  size_t index = 0;
  size_t fitting = 0;  // processes
};

// The first of those that fit most processes.
Choice BestOf(const std::vector<const LearnedRule*>& rules,
              const std::vector<const Learning*>& all) {
  Choice best;
  for (size_t i = 0; i < rules.size() && best.fitting < all.size(); ++i) {
    const size_t fitting = CountFitting(*rules[i], all);
    if (fitting > best.fitting) best = {i, fitting};
  }
  return best;
}

}  // namespace

bool CommonRule::FitsAll(const LearnedRule& rule, const ProcessTable& processes) {
  const std::vector<const Learning*> all = LearningOf(processes);
  return CountFitting(rule, all) == all.size();
}

std::optional<LearnedRule> CommonRule::Choose(const ProcessTable& processes, bool last_chance) {
  const std::vector<const Learning*> all = LearningOf(processes);
  std::vector<const LearnedRule*> rules;
  for (const Learning* const one : all) {
    const LearnedRule* const rule = one->learned();
    if (rule == nullptr) continue;
    rules.push_back(rule);
    last_chance |= one->waited();
  }
  const bool more = std::exchange(rules_, rules.size()) != rules.size();
  if (rules.empty() || !(more || last_chance)) return std::nullopt;
  const Choice best = BestOf(rules, all);
  if (best.fitting < all.size() && rules.size() < all.size() && !last_chance) return std::nullopt;
  return *rules[best.index];
}

}  // namespace seqpoint::jobs
