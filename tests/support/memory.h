// The memory that a process holds, by default this one, for benchmarks.
//
//   const double before = StartPeakMemory();
//   ...
//   state.counters["peak_mib"] = (PeakMemory() - before) / (1 << 20);
//
// Threading: the whole process is measured, whichever thread asks.
#ifndef TESTS_SUPPORT_MEMORY_H_
#define TESTS_SUPPORT_MEMORY_H_

#include <malloc.h>

#include <fstream>
#include <string>

namespace seqpoint {

// A line of /proc/PID/status, in bytes; 0: there is none. `pid` 0: this process.
inline double MemoryStatus(const std::string& key, int pid = 0) {
  std::ifstream status("/proc/" + (pid == 0 ? "self" : std::to_string(pid)) + "/status");
  std::string word;
  while (status >> word) {
    double kib = 0;
    if (word == key && status >> kib) return kib * 1024;
  }
  return 0;
}

// Starts the peak again. Returns what is held now, in bytes; what is free was given back.
inline double StartPeakMemory() {
  malloc_trim(0);
  std::ofstream("/proc/self/clear_refs") << "5";
  return MemoryStatus("VmRSS:");
}

// The most that was held since the start of the peak, in bytes.
inline double PeakMemory() { return MemoryStatus("VmHWM:"); }

}  // namespace seqpoint

#endif  // TESTS_SUPPORT_MEMORY_H_
