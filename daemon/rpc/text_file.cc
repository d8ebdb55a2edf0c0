#include "daemon/rpc/text_file.h"

#include <errno.h>
#include <string.h>

#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"

namespace seqpoint::rpc {

absl::StatusOr<std::string> ReadTextFile(const char* what, const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  if (!file || text.str().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot read ", what, " ", path, ": ", strerror(errno)));
  }
  return text.str();
}

}  // namespace seqpoint::rpc
