#include "client/whole_file.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"

namespace seqpoint::client {
namespace {

absl::Status Failed(const std::string& path) {
  return absl::InternalError(absl::StrCat("cannot write ", path, ": ", strerror(errno)));
}

}  // namespace

absl::StatusOr<WholeFile> WholeFile::Open(const std::string& path) {
  if (path == "-") return WholeFile("standard output", "", File(stdout, &Keep));
  struct stat there = {};
  const bool exists = stat(path.c_str(), &there) == 0;
  if (exists && S_ISDIR(there.st_mode)) {
    errno = EISDIR;
    return Failed(path);
  }
  // A pipe or a device (/dev/null) is written to; a file in its place would not be the same.
  const bool special = exists && !S_ISREG(there.st_mode);
  std::string part = special ? "" : path + ".part";
  if (special) {
    File file(fopen(path.c_str(), "w"), &fclose);
    if (file == nullptr) return Failed(path);
    return WholeFile(path, "", std::move(file));
  }
  File file(fopen(part.c_str(), "w"), &fclose);
  if (file == nullptr) return Failed(path);
  return WholeFile(path, std::move(part), std::move(file));
}

WholeFile::~WholeFile() {
  if (file_ != nullptr && !part_.empty()) unlink(part_.c_str());
}

absl::Status WholeFile::Write(std::string_view data) {
  if (fwrite(data.data(), 1, data.size(), file_.get()) == data.size()) return absl::OkStatus();
  return Failed(path_);
}

absl::Status WholeFile::Close() {
  if (fflush(file_.get()) != 0) return Failed(path_);
  if (part_.empty()) return absl::OkStatus();
  if (fclose(file_.release()) == 0 && rename(part_.c_str(), path_.c_str()) == 0) {
    return absl::OkStatus();
  }
  const absl::Status status = Failed(path_);
  unlink(part_.c_str());
  return status;
}

absl::Status WriteWhole(const std::string& path, std::string_view text) {
  absl::StatusOr<WholeFile> file = WholeFile::Open(path);
  if (!file.ok()) return file.status();
  if (absl::Status status = file->Write(text); !status.ok()) return status;
  return file->Close();
}

absl::StatusOr<std::string> ReadWhole(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return absl::InvalidArgumentError(absl::StrCat("cannot read ", path, ": it is a folder"));
  }
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), {});
  if (!file.is_open() || file.bad()) {
    return absl::InvalidArgumentError(absl::StrCat("cannot read ", path, ": ", strerror(errno)));
  }
  return text;
}

}  // namespace seqpoint::client
