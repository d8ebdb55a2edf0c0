// The arguments of an operator, by its schema.
//
// Threading: a free function. Ownership: values.
#ifndef DAEMON_PLACEMENT_OPERATOR_ARGUMENTS_H_
#define DAEMON_PLACEMENT_OPERATOR_ARGUMENTS_H_

#include <string_view>
#include <vector>

namespace seqpoint::placement {

struct Argument {
  bool parameter = false;  // by its name
  bool written = false;    // "Tensor(a!) self"
};

// The arguments of "aten::mul_.Tensor(Tensor(a!) self, Tensor other, *, int[2] x=[1, 2]) -> ...".
std::vector<Argument> ArgumentsOf(std::string_view schema);

}  // namespace seqpoint::placement

#endif  // DAEMON_PLACEMENT_OPERATOR_ARGUMENTS_H_
