// GPU activities as text, one per line, in the order of their starts:
//
//   #names: id<TAB>name
//   #0<TAB>[CUDA memset]
//   #1<TAB>volta_sgemm_128x64_nn
//   start_us,dur_us,stream,name_id,size
//   23060.000,0.896,7,0,4B
//   23070.000,78.079,7,1,(64 1 1)|(256 1 1)
//
// `size` is the bytes of a copy or memset (B, KB, MB, GB: powers of 1024) or the grid and block of
// a kernel. There are no calls: the launches are not known.
//
// Threading: none. Ownership: the builder outlives this.
#ifndef DAEMON_TRACES_ACTIVITY_CSV_H_
#define DAEMON_TRACES_ACTIVITY_CSV_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "daemon/traces/trace_builder.h"

namespace seqpoint::traces {

class ActivityCsv {
 public:
  explicit ActivityCsv(TraceBuilder* builder) : builder_(builder) {}

  void Add(std::string_view piece);
  void Finish();

 private:
  void TakeLine(std::string_view line, uint64_t at);
  bool TakeActivity(std::string_view line);

  TraceBuilder* builder_;
  std::string line_;  // whose end did not come yet
  uint64_t line_at_ = 0;
  absl::flat_hash_map<int64_t, uint32_t> names_;  // of the trace, by the file's
};

}  // namespace seqpoint::traces

#endif  // DAEMON_TRACES_ACTIVITY_CSV_H_
