#include "daemon/whatif/language/words.h"

#include "daemon/whatif/graph.h"

namespace seqpoint::whatif {

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
