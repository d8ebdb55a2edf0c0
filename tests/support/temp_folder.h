// A folder of a test's own, which goes with it.
//
//   TempFolder folder;
//   std::ofstream(folder.path() / "log.csv") << "length,time_ms\n";
//
// Threading: a value of one thread. Ownership: removes the folder and all that is in it; what holds
// files in it open must be gone before, so in a fixture it is the first member.
#ifndef TESTS_SUPPORT_TEMP_FOLDER_H_
#define TESTS_SUPPORT_TEMP_FOLDER_H_

#include <stdlib.h>

#include <filesystem>
#include <stdexcept>
#include <string>

namespace seqpoint {

class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "seqpoint.XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("cannot make " + pattern);
    path_ = pattern;
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder() {
    if (keep_) return;
    std::error_code error;  // what is left is left
    std::filesystem::remove_all(path_, error);
  }

  // It stays, so that somebody can look at what is in it.
  void Keep() { keep_ = true; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  bool keep_ = false;
};

}  // namespace seqpoint

#endif  // TESTS_SUPPORT_TEMP_FOLDER_H_
