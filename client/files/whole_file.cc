#include "client/files/whole_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/invalid_argument.h"
#include "proto/status_macros.h"

namespace seqpoint::client {
namespace {

constexpr int kMostLinks = 40;   // as Linux follows, path_resolution(7)
constexpr int kMostParts = 100;  // of one process, or left by killed ones that had its number

absl::Status Failed(const std::string& path) {
  return absl::InternalError(absl::StrCat("cannot write ", path, ": ", strerror(errno)));
}

// The file that is written when `path` is opened: where its symbolic links lead, even if there is
// nothing yet.
std::filesystem::path Target(std::filesystem::path path) {
  std::error_code error;
  for (int links = 0; links < kMostLinks && std::filesystem::is_symlink(path, error); ++links) {
    const std::filesystem::path next = std::filesystem::read_symlink(path, error);
    path = next.is_absolute() ? next : path.parent_path() / next;
  }
  return path;
}

// A new file beside `target` that no other process has; -1 and errno where it cannot be made.
int OpenPart(const std::string& target, std::string* part) {
  int fd = -1;
  for (int i = 0; i < kMostParts && fd < 0 && (i == 0 || errno == EEXIST); ++i) {
    *part = absl::StrCat(target, ".part-", getpid(), "-", i);
    fd = open(part->c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  }
  return fd;
}

}  // namespace

absl::StatusOr<WholeFile> WholeFile::Open(const std::string& path) {
  struct stat there = {}, output = {};
  const bool exists = path != "-" && stat(path.c_str(), &there) == 0;
  // /dev/stdout of a shell that writes to a file: in its place another file would take the rest.
  const bool is_output = exists && S_ISREG(there.st_mode) && fstat(STDOUT_FILENO, &output) == 0 &&
                         there.st_dev == output.st_dev && there.st_ino == output.st_ino;
  if (path != "-" && !exists && errno != ENOENT) return Failed(path);
  if (path == "-" || is_output) return WholeFile("standard output", "", "", File(stdout, &Keep));
  if (exists && S_ISDIR(there.st_mode)) {
    errno = EISDIR;
    return Failed(path);
  }
  // A pipe or a device (/dev/null) is written to; a file in its place would not be the same.
  if (exists && !S_ISREG(there.st_mode)) {
    File file(fopen(path.c_str(), "w"), &fclose);
    if (file == nullptr) return Failed(path);
    return WholeFile(path, "", "", std::move(file));
  }
  const std::string target = Target(path);
  std::string part;
  const int fd = OpenPart(target, &part);
  if (fd < 0) return Failed(path);
  return WholeFile(path, target, std::move(part), File(fdopen(fd, "w"), &fclose));
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
  if (fclose(file_.release()) == 0 && rename(part_.c_str(), target_.c_str()) == 0) {
    return absl::OkStatus();
  }
  const absl::Status status = Failed(path_);
  unlink(part_.c_str());
  return status;
}

absl::Status WriteWhole(const std::string& path, std::string_view text) {
  SEQPOINT_ASSIGN_OR_RETURN(WholeFile file, WholeFile::Open(path));
  SEQPOINT_RETURN_IF_ERROR(file.Write(text));
  return file.Close();
}

absl::StatusOr<std::string> ReadWhole(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return InvalidArgument("cannot read ", path, ": it is a folder");
  }
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), {});
  if (!file.is_open() || file.bad()) {
    return InvalidArgument("cannot read ", path, ": ", strerror(errno));
  }
  return text;
}

}  // namespace seqpoint::client
