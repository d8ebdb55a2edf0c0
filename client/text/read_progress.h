// How far a long read of a file is, on standard error: nothing within the first second; then a line
// that is written over on a terminal, elsewhere a line now and then.
//
// Threading: one thread.
#ifndef CLIENT_TEXT_READ_PROGRESS_H_
#define CLIENT_TEXT_READ_PROGRESS_H_

#include <chrono>
#include <cstdint>
#include <string>

namespace seqpoint::client {

class ReadProgress {
 public:
  explicit ReadProgress(std::string path);
  ReadProgress(ReadProgress&& other) noexcept;
  ~ReadProgress();

  // `bytes` of the file were read; a packed one counts as it is on disk.
  void At(int64_t bytes);

 private:
  using Clock = std::chrono::steady_clock;

  std::string path_;
  int64_t size_ = 0;  // 0: unknown, as of a pipe
  bool terminal_ = false;
  bool shown_ = false;
  Clock::time_point start_ = Clock::now();
  Clock::time_point next_;  // when to say something again
};

// "train.csv: 45 % of 2.1 GB read, 212 MB/s"; a size of 0 is not known.
std::string ReadProgressText(const std::string& path, int64_t bytes, int64_t size, double seconds);

}  // namespace seqpoint::client

#endif  // CLIENT_TEXT_READ_PROGRESS_H_
