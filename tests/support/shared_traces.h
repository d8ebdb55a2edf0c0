// Recorded traces, which are not part of the repository, for tests and judges: the environment
// variable SEQPOINT_SHARED_DATA names the folder that holds traces/.
//
// Threading: free functions. Ownership: values.
#ifndef TESTS_SUPPORT_SHARED_TRACES_H_
#define TESTS_SUPPORT_SHARED_TRACES_H_

#include <string>
#include <vector>

namespace seqpoint {

std::string SharedData();
std::string SharedTraces();  // its folder traces/

// Files of SharedTraces(), relative to it, in order: JSON and CSV, packed. Empty: it is not there.
std::vector<std::string> SharedTraceFiles();
// For the parameters of a test: "none" where there are no files, so that the skipped test says why.
std::vector<std::string> OrNone(std::vector<std::string> files);
// A file's name up to its first dot, as a test may be called.
std::string TestNameOf(const std::string& file);

}  // namespace seqpoint

#endif  // TESTS_SUPPORT_SHARED_TRACES_H_
