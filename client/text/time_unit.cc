#include "client/text/time_unit.h"

namespace seqpoint::client {

double TimeUnitNs(std::string_view unit) {
  if (unit == "ns") return 1;
  if (unit == "us") return 1e3;
  if (unit == "ms") return 1e6;
  if (unit == "s") return 1e9;
  return 0;
}

double TimeUnitOfColumn(std::string_view name) {
  const size_t at = name.rfind('_');
  if (at == std::string_view::npos) return 0;
  if (name.substr(0, at).ends_with("_per")) return 0;
  const std::string_view unit = name.substr(at + 1);
  return TimeUnitNs(unit == "sec" ? "s" : unit);
}

}  // namespace seqpoint::client
