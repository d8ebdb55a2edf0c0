#include "daemon/jobs/rule_codec.h"

#include <cstring>
#include <iterator>
#include <string>

namespace seqpoint::jobs {

v1::LearnedRule EncodeRule(const iterations::LearnedRule& from) {
  v1::LearnedRule to;
  to.set_rule(std::string(reinterpret_cast<const char*>(&from.rule), sizeof(abi::Rule)));
  to.set_boundary_words(from.boundary_words);
  to.set_length_words(from.length_words);
  to.set_confidence(from.confidence);
  return to;
}

std::optional<iterations::LearnedRule> DecodeRule(const v1::LearnedRule& from) {
  if (from.rule().size() != sizeof(abi::Rule)) return std::nullopt;
  iterations::LearnedRule rule;
  std::memcpy(&rule.rule, from.rule().data(), sizeof(abi::Rule));
  if (rule.rule.length_count > std::size(rule.rule.length)) return std::nullopt;
  rule.boundary_words = from.boundary_words();
  rule.length_words = from.length_words();
  rule.confidence = from.confidence();
  return rule;
}

bool SameEvents(const abi::Rule& a, const abi::Rule& b) {
  abi::Rule other = b;
  other.generation = a.generation;
  return std::memcmp(&a, &other, sizeof(abi::Rule)) == 0;
}

}  // namespace seqpoint::jobs
