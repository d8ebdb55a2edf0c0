// Names of C++ symbols as a person wrote them.
//
// Threading: free functions. Ownership: values.
#ifndef DAEMON_BASE_DEMANGLE_H_
#define DAEMON_BASE_DEMANGLE_H_

#include <cxxabi.h>

#include <cstdlib>
#include <memory>
#include <string>

namespace seqpoint {

// A C++ symbol as it was written; other names as they are.
inline std::string Demangle(const std::string& name) {
  if (name.rfind("_Z", 0) != 0) return name;
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> plain(
      ::abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), &std::free);
  return status == 0 ? plain.get() : name;
}

}  // namespace seqpoint

#endif  // DAEMON_BASE_DEMANGLE_H_
