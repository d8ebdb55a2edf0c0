// FileStamp: whether a file is another one than before. It follows links, as a mounted Kubernetes
// secret needs.
//
// Threading: a pure function over the file system.
#ifndef DAEMON_BASE_FILE_STAMP_H_
#define DAEMON_BASE_FILE_STAMP_H_

#include <sys/stat.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace seqpoint {

// Changes when the file is replaced or written. Take it before the file is read: what is written
// meanwhile shows the next time. Empty: there is no such file.
inline std::string FileStamp(const std::string& path) {
  struct stat file;
  if (stat(path.c_str(), &file) != 0) return "";
  return absl::StrCat(file.st_dev, " ", file.st_ino, " ", file.st_size, " ", file.st_mtim.tv_sec,
                      " ", file.st_mtim.tv_nsec);
}

}  // namespace seqpoint

#endif  // DAEMON_BASE_FILE_STAMP_H_
