// Unpacks gzip as it comes in: any number of members, cut anywhere.
//
// Threading: none. Ownership: the function is called from within Add only.
#ifndef DAEMON_TRACES_GUNZIP_H_
#define DAEMON_TRACES_GUNZIP_H_

#include <zlib.h>

#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/functional/function_ref.h"

namespace seqpoint::traces {

class Gunzip {
 public:
  Gunzip();
  ~Gunzip();
  Gunzip(const Gunzip&) = delete;
  Gunzip& operator=(const Gunzip&) = delete;

  // `write` takes the unpacked bytes, in pieces.
  void Add(std::string_view piece, absl::FunctionRef<void(std::string_view)> write);

  // Whether the bytes so far are whole members; false when the file was cut or is damaged.
  bool complete() const { return state_ == State::kBetween || state_ == State::kTrailing; }
  // Behind the last member, without zeros.
  uint64_t trailing_bytes() const { return trailing_bytes_; }

 private:
  static constexpr size_t kWindowBytes = size_t{128} << 10;
  enum class State { kMember, kBetween, kTrailing, kDamaged };

  z_stream stream_ = {};
  std::unique_ptr<char[]> window_;
  State state_ = State::kMember;
  uint64_t trailing_bytes_ = 0;
};

}  // namespace seqpoint::traces

#endif  // DAEMON_TRACES_GUNZIP_H_
