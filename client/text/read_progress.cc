#include "client/text/read_progress.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/text/plain_text.h"

namespace seqpoint::client {
namespace {

constexpr std::chrono::seconds kSilence{1};
constexpr std::chrono::milliseconds kTerminalInterval{200};
constexpr std::chrono::seconds kLineInterval{10};

}  // namespace

ReadProgress::ReadProgress(std::string path)
    : path_(std::move(path)), terminal_(isatty(STDERR_FILENO) == 1), next_(start_ + kSilence) {
  struct stat info = {};
  if (stat(path_.c_str(), &info) == 0 && S_ISREG(info.st_mode)) size_ = info.st_size;
}

ReadProgress::ReadProgress(ReadProgress&& other) noexcept
    : path_(std::move(other.path_)),
      size_(other.size_),
      terminal_(other.terminal_),
      shown_(std::exchange(other.shown_, false)),
      start_(other.start_),
      next_(other.next_) {}

ReadProgress::~ReadProgress() {
  if (shown_ && terminal_) fputs("\r\033[K", stderr);
}

void ReadProgress::At(int64_t bytes) {
  const Clock::time_point now = Clock::now();
  if (now < next_) return;
  next_ = now + (terminal_ ? Clock::duration(kTerminalInterval) : Clock::duration(kLineInterval));
  shown_ = true;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const std::string text = Printable(ReadProgressText(path_, bytes, size_, seconds));
  fprintf(stderr, terminal_ ? "\r\033[K%s" : "%s\n", text.c_str());
  fflush(stderr);
}

std::string ReadProgressText(const std::string& path, int64_t bytes, int64_t size, double seconds) {
  const double share =
      size > 0 ? std::min(1.0, static_cast<double>(bytes) / static_cast<double>(size)) : 0;
  return absl::StrCat(
      path, ": ", size > 0 ? absl::StrCat(static_cast<int>(share * 100), " % of ") : std::string(),
      FormatQuantity(static_cast<double>(size > 0 ? size : bytes), "B"), " read, ",
      FormatQuantity(static_cast<double>(bytes) / seconds, "B"), "/s");
}

}  // namespace seqpoint::client
