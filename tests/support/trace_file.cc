#include "tests/support/trace_file.h"

#include <cstdio>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/base/status_macros.h"
#include "daemon/traces/trace_reader.h"

namespace seqpoint {

absl::StatusOr<trace::Trace> ReadTraceFile(const std::string& path) {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (file == nullptr) return absl::NotFoundError(absl::StrCat("cannot open ", path));
  traces::TraceReader reader({.name = path.substr(path.rfind('/') + 1)});
  std::vector<char> piece(size_t{1} << 18);
  while (const size_t n = std::fread(piece.data(), 1, piece.size(), file.get())) {
    SEQPOINT_RETURN_IF_ERROR(reader.Add({piece.data(), n}));
  }
  return reader.Finish();
}

}  // namespace seqpoint
