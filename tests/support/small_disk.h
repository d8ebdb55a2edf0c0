// SmallDisk: a file system of a test's own that can be full. It needs a user who may mount.
//
//   SmallDisk disk(folder.path() / "node", /*mib=*/64);
//   if (!disk.error().empty()) GTEST_SKIP() << disk.error();
//   disk.Fill(); ... disk.Free();
//
// Threading: one thread. Ownership: unmounts it.
#ifndef TESTS_SUPPORT_SMALL_DISK_H_
#define TESTS_SUPPORT_SMALL_DISK_H_

#include <sys/mount.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

namespace seqpoint {

class SmallDisk {
 public:
  SmallDisk(const std::filesystem::path& folder, int mib) : folder_(folder) {
    std::filesystem::create_directories(folder_);
    const std::string size = "size=" + std::to_string(mib) + "m";
    if (mount("none", folder_.c_str(), "tmpfs", 0, size.c_str()) == 0) return;
    error_ = std::string("no small file system can be mounted: ") + std::strerror(errno);
  }
  ~SmallDisk() {
    if (error_.empty()) umount2(folder_.c_str(), MNT_DETACH);
  }
  const std::string& error() const { return error_; }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  // To the last byte.
  void Fill() const {
    std::ofstream file(folder_ / "filler", std::ios::binary);
    for (const std::string piece(1 << 20, 'x'); file.write(piece.data(), 1 << 20).flush();)
      continue;
    file.clear();
    while (file.put('x').flush()) continue;
  }
  void Free() const { std::filesystem::remove(folder_ / "filler"); }
  uint64_t available() const { return std::filesystem::space(folder_).available; }

 private:
  const std::filesystem::path folder_;
  std::string error_;
};

}  // namespace seqpoint

#endif  // TESTS_SUPPORT_SMALL_DISK_H_
