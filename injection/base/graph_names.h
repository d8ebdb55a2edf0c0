// CUDA graphs have no names: each executable graph gets "graph#1", "graph#2", ... in the order in
// which they are first launched, so that the ranks of one job call the same graph the same.
// Threading: any thread.
#ifndef SEQPOINT_INJECTION_BASE_GRAPH_NAMES_H_
#define SEQPOINT_INJECTION_BASE_GRAPH_NAMES_H_

#include <cuda.h>
#include <stdint.h>

#include "injection/base/names.h"
#include "injection/base/system.h"

namespace seqpoint::inject {

class GraphNames {
 public:
  explicit GraphNames(Names* names) : names_(names) {}

  // Null when more graphs are alive than the table holds, or a program that makes graphs all the
  // time has used up the names.
  const char* Name(CUgraphExec graph);
  // The graph is being destroyed; its handle may come back as another graph.
  void Forget(CUgraphExec graph);

 private:
  static constexpr uint32_t kCapacity = 1024;
  static constexpr uint32_t kMaxNames = 4096;
  struct Entry {
    CUgraphExec graph;  // null: free
    const char* name;
  };

  Names* const names_;
  SpinLock lock_;
  Entry entries_[kCapacity] = {};
  uint32_t used_ = 0;   // entries that were ever taken
  uint32_t count_ = 0;  // graphs named so far
};

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_BASE_GRAPH_NAMES_H_
