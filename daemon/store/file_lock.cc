#include "daemon/store/file_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace seqpoint {
namespace {

// The folder in which a daemon of this machine answers, as the kernel lists its sockets. Empty: it
// cannot be seen.
std::string SocketFolderOf(const std::string& pid) {
  std::vector<std::string> open;  // "socket:[4711]"
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator(absl::StrCat("/proc/", pid, "/fd"), error)) {
    std::error_code gone;
    open.push_back(std::filesystem::read_symlink(entry, gone));
  }
  std::ifstream sockets("/proc/net/unix");
  for (std::string line; std::getline(sockets, line);) {
    // "0000000000000000: 00000002 00000000 00010000 0001 01 4711 /run/seqpoint/api.sock"
    const size_t path = line.find('/');
    if (path == std::string::npos || !absl::EndsWith(line, "/api.sock")) continue;
    const std::vector<std::string> fields =
        absl::StrSplit(line.substr(0, path), ' ', absl::SkipEmpty());
    const std::string socket = absl::StrCat("socket:[", fields.back(), "]");
    if (std::find(open.begin(), open.end(), socket) != open.end()) {
      return std::filesystem::path(line.substr(path)).parent_path();
    }
  }
  return "";
}

// The process that holds the flock on a file, as the kernel lists it, and how to use it.
std::string OwnerOf(const struct stat& file) {
  std::ifstream locks("/proc/locks");
  const std::string inode = absl::StrCat(":", file.st_ino);
  for (std::string line; std::getline(locks, line);) {
    // "1: FLOCK  ADVISORY  WRITE 4711 fe:00:1234567 0 EOF"
    const std::vector<std::string> fields = absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (fields.size() > 5 && fields[1] == "FLOCK" && absl::EndsWith(fields[5], inode)) {
      const std::string folder = SocketFolderOf(fields[4]);
      return absl::StrCat(
          "process ", fields[4], "; ",
          folder.empty() ? "use that daemon" : "to use that daemon set SEQPOINT_DIR=" + folder);
    }
  }
  return "another process; use that daemon";
}

}  // namespace

absl::Status FileError(const char* operation, const std::string& path, int error) {
  std::string text = absl::StrCat("cannot ", operation, " ", path, ": ", strerror(error));
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return absl::ResourceExhaustedError(absl::StrCat(text, "; free space on its file system"));
    default:
      return absl::PermissionDeniedError(
          absl::StrCat(text, "; make the directory writable, or choose another file with --store"));
  }
}

absl::StatusOr<FileLock> FileLock::Take(const std::string& path) {
  struct stat named;
  if (stat(path.c_str(), &named) == 0 && !S_ISREG(named.st_mode)) {
    return absl::FailedPreconditionError(
        absl::StrCat("store ", path, " is not a regular file; choose another file with --store"));
  }
  FileLock lock(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (lock.fd_ < 0) return FileError("open", path, errno);
  struct stat locked;
  if (fstat(lock.fd_, &locked) != 0) return FileError("read", path, errno);
  // A file that has another name by now was moved aside by the daemon that has the new one.
  if (flock(lock.fd_, LOCK_EX | LOCK_NB) != 0 || stat(path.c_str(), &named) != 0 ||
      named.st_ino != locked.st_ino || named.st_dev != locked.st_dev) {
    return absl::AlreadyExistsError(absl::StrCat("store ", path, " is in use by ", OwnerOf(locked),
                                                 ", stop it, or choose another file with --store"));
  }
  return lock;
}

FileLock::~FileLock() {
  if (fd_ >= 0) close(fd_);
}

}  // namespace seqpoint
