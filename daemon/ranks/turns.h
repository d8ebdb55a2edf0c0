// Whether ranks are slow in turn: one after the other, so that none of them is to be replaced.
//
// Threading: free functions. Ownership: values.
#ifndef SEQPOINT_DAEMON_RANKS_TURNS_H_
#define SEQPOINT_DAEMON_RANKS_TURNS_H_

#include <cstdint>
#include <set>

#include "daemon/ranks/verdict.h"

namespace seqpoint::ranks {

// The ranks of the last episodes that follow each other, each of another rank than the one before.
// Empty where these are fewer than three, and where the last one lasts much longer than the others:
// it has come to stay.
std::set<int32_t> RanksInTurn(const Verdicts& verdicts);

}  // namespace seqpoint::ranks

#endif  // SEQPOINT_DAEMON_RANKS_TURNS_H_
