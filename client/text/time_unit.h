// Units of time, as options and the names of columns have them.
// Threading: pure functions.
#ifndef CLIENT_TEXT_TIME_UNIT_H_
#define CLIENT_TEXT_TIME_UNIT_H_

#include <string_view>

namespace seqpoint::client {

// "ns", "us", "ms" or "s"; 0 for anything else.
double TimeUnitNs(std::string_view unit);
// As the column's name ends: _ns, _us, _ms, _s or _sec; 0 when it ends in none,
// or is a rate (tokens_per_s).
double TimeUnitOfColumn(std::string_view name);

}  // namespace seqpoint::client

#endif  // CLIENT_TEXT_TIME_UNIT_H_
