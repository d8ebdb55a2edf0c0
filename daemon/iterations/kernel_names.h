// Names of kernels and numbers for sentences.
//
// Threading: free functions. Ownership: values.
#ifndef DAEMON_ITERATIONS_KERNEL_NAMES_H_
#define DAEMON_ITERATIONS_KERNEL_NAMES_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace seqpoint::iterations {

// A kernel's name without template and call arguments.
std::string ShortName(std::string_view name);
// "1st", "2nd", ...
std::string Ordinal(uint32_t n);

}  // namespace seqpoint::iterations

#endif  // DAEMON_ITERATIONS_KERNEL_NAMES_H_
