// A file that appears under its name only when it is whole, and one that is read whole.
//
//   absl::StatusOr<WholeFile> file = WholeFile::Open("trace.json");
//   for (...) if (absl::Status status = file->Write(piece); !status.ok()) return status;
//   return file->Close();
//
// It grows beside it, as NAME.part-PROCESS-NUMBER, so that several processes may write one file,
// and the last one to end is the one that stays. A symbolic link stays one: the file it leads to is
// written. A process that is killed leaves its part behind.
//
// Threading: one thread at a time. Ownership: owns its file, and removes what was written unless
// Close() came to its end. Errors are Internal and name the file and the reason.
#ifndef CLIENT_FILES_WHOLE_FILE_H_
#define CLIENT_FILES_WHOLE_FILE_H_

#include <stdio.h>

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace seqpoint::client {

class WholeFile {
 public:
  // "-" is standard output, which shows every piece at once.
  static absl::StatusOr<WholeFile> Open(const std::string& path);
  WholeFile(WholeFile&&) = default;
  ~WholeFile();

  absl::Status Write(std::string_view data);
  absl::Status Close();

 private:
  static int Keep(FILE*) { return 0; }  // standard output stays open
  using File = std::unique_ptr<FILE, int (*)(FILE*)>;
  WholeFile(std::string path, std::string target, std::string part, File file)
      : path_(std::move(path)),
        target_(std::move(target)),
        part_(std::move(part)),
        file_(std::move(file)) {}

  std::string path_;    // as it was given, for messages
  std::string target_;  // where its links lead
  std::string part_;    // where it grows; empty: standard output, a pipe or a device
  File file_;           // null: closed
};

absl::Status WriteWhole(const std::string& path, std::string_view text);

// The bytes of a file. InvalidArgument: "cannot read FILE: why".
absl::StatusOr<std::string> ReadWhole(const std::string& path);

}  // namespace seqpoint::client

#endif  // CLIENT_FILES_WHOLE_FILE_H_
