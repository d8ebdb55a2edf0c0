#include "daemon/whatif/language/words.h"

#include "daemon/whatif/graph.h"

namespace seqpoint::whatif {

const Words<Verb>& Verbs() {
  static const auto* words = new Words<Verb>{
      {"scale", Verb::kScale},          {"set", Verb::kSet},   {"remove", Verb::kRemove},
      {"insert", Verb::kInsert},        {"fuse", Verb::kFuse}, {"capture", Verb::kCapture},
      {"reschedule", Verb::kReschedule}};
  return *words;
}
const Words<Target>& Targets() {
  static const auto* words = new Words<Target>{{"work", Target::kWork},
                                               {"kernels", Target::kKernels},
                                               {"copies", Target::kCopies},
                                               {"memsets", Target::kMemsets},
                                               {"collectives", Target::kCollectives},
                                               {"launches", Target::kLaunches},
                                               {"calls", Target::kCalls},
                                               {"gaps", Target::kGaps},
                                               {"iterations", Target::kIterations}};
  return *words;
}
const Words<Field>& Fields() {
  static const auto* words =
      new Words<Field>{{"name", Field::kName},         {"in", Field::kIn},
                       {"thread", Field::kThread},     {"stream", Field::kStream},
                       {"duration", Field::kDuration}, {"bytes", Field::kBytes},
                       {"bound", Field::kBound},       {"phase", Field::kPhase},
                       {"counter", Field::kCounter}};
  return *words;
}
const Words<Compare>& Compares() {
  static const auto* words = new Words<Compare>{
      {"~", Compare::kMatches},   {"!~", Compare::kMatchesNot}, {"=", Compare::kEqual},
      {"!=", Compare::kNotEqual}, {"<", Compare::kLess},        {">", Compare::kGreater}};
  return *words;
}
const Words<Made>& Mades() {
  static const auto* words = new Words<Made>{{"kernel", Made::kKernel},
                                             {"copy", Made::kCopy},
                                             {"collective", Made::kCollective},
                                             {"call", Made::kCall}};
  return *words;
}

bool IsText(Field field) {
  return field == Field::kName || field == Field::kIn || field == Field::kThread;
}
bool IsOneOf(Field field, const std::string& word) {
  if (field == Field::kBound) return word == "compute" || word == "memory" || word == "latency";
  return PhaseOf(word).has_value();
}
const char* WordsOf(Field field) {
  return field == Field::kBound ? "one of compute, memory, latency"
                                : "one of forward, backward, optimizer, loading, other, unknown";
}

}  // namespace seqpoint::whatif
