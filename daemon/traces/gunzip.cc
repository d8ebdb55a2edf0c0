#include "daemon/traces/gunzip.h"

#include <algorithm>
#include <limits>

namespace seqpoint::traces {

Gunzip::Gunzip() : window_(new char[kWindowBytes]) {
  constexpr int kGzipOnly = 16;
  if (inflateInit2(&stream_, MAX_WBITS + kGzipOnly) != Z_OK) state_ = State::kDamaged;
}

Gunzip::~Gunzip() { inflateEnd(&stream_); }

void Gunzip::Add(std::string_view piece, absl::FunctionRef<void(std::string_view)> write) {
  while (!piece.empty() && state_ != State::kDamaged) {
    if (state_ == State::kBetween) {
      if (piece[0] == '\x1f') {
        inflateReset(&stream_);
        state_ = State::kMember;
      } else {
        state_ = State::kTrailing;
      }
    }
    if (state_ == State::kTrailing) {
      trailing_bytes_ +=
          piece.size() - static_cast<size_t>(std::count(piece.begin(), piece.end(), '\0'));
      return;
    }
    const size_t n = std::min<size_t>(piece.size(), std::numeric_limits<uInt>::max());
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(piece.data()));
    stream_.avail_in = static_cast<uInt>(n);
    int result = Z_OK;
    do {
      stream_.next_out = reinterpret_cast<Bytef*>(window_.get());
      stream_.avail_out = kWindowBytes;
      result = inflate(&stream_, Z_NO_FLUSH);
      if (const size_t unpacked = kWindowBytes - stream_.avail_out; unpacked > 0) {
        write(std::string_view(window_.get(), unpacked));
      }
    } while (result == Z_OK && (stream_.avail_in > 0 || stream_.avail_out == 0));
    piece.remove_prefix(n - stream_.avail_in);
    if (result == Z_STREAM_END) {
      state_ = State::kBetween;
    } else if (result != Z_OK && result != Z_BUF_ERROR) {
      state_ = State::kDamaged;
    }
  }
}

}  // namespace seqpoint::traces
