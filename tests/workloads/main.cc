// seqpoint_workload: the training programs that the profiler is tested and shown with.
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "tests/workloads/options.h"
#include "tests/workloads/trainer.h"

// Address-sanitised builds: GPU memory, streams and events live until the process ends, by design.
extern "C" int __lsan_is_turned_off() { return 1; }

int main(int argc, char** argv) {
  using namespace seqpoint::workload;
  const auto parsed = ParseOptions(argc, argv);
  if (const Usage* usage = std::get_if<Usage>(&parsed)) {
    std::fputs(usage->text.c_str(), usage->code == 0 ? stdout : stderr);
    return usage->code;
  }
  const Options& options = std::get<Options>(parsed);
  const auto table = LoadLengths(options);
  if (!table.ok()) {
    std::fprintf(stderr, "seqpoint_workload: %s\n", std::string(table.status().message()).c_str());
    return 2;
  }
  if (!options.lengths_out.empty()) {
    if (WriteLengths(*table, options.lengths_out)) return 0;
    std::fprintf(stderr, "seqpoint_workload: --write-lengths %s: %s\n", options.lengths_out.c_str(),
                 std::strerror(errno));
    return 1;
  }
  return Train(options, *table);
}
