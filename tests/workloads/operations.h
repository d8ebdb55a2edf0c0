// A file with the operations that a model writes on the tape, for planners: the launches of each,
// in their order, and who needs whom. docs/internals/workloads.md gives the format with an example.
//
// Threading: one thread. Owns its file.
#ifndef SEQPOINT_TESTS_WORKLOADS_OPERATIONS_H_
#define SEQPOINT_TESTS_WORKLOADS_OPERATIONS_H_

#include <cstdio>
#include <set>
#include <string>
#include <vector>

#include "tests/workloads/tape.h"

namespace seqpoint::workload {

class OperationsFile {
 public:
  // Does nothing at all when `path` is empty. A file that cannot be written ends the process with a
  // message.
  explicit OperationsFile(const std::string& path);
  ~OperationsFile();
  OperationsFile(const OperationsFile&) = delete;
  OperationsFile& operator=(const OperationsFile&) = delete;

  // After a backward pass: a line for each batch shape, the first time.
  void Write(const std::vector<int>& lengths, const Tape& tape, const Parameters& parameters);

 private:
  FILE* file_ = nullptr;
  std::set<std::vector<int>> written_;
};

}  // namespace seqpoint::workload

#endif  // SEQPOINT_TESTS_WORKLOADS_OPERATIONS_H_
