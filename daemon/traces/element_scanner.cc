#include "daemon/traces/element_scanner.h"

#include <algorithm>
#include <bit>

#include "daemon/traces/json_text.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace seqpoint::traces {
namespace {

constexpr size_t kBlock = 64;
constexpr size_t kChunkBytes = size_t{128} << 10;   // of the input, in the buffer at a time
constexpr size_t kMaxRestBytes = size_t{1} << 20;   // more is not gathered
constexpr size_t kLook = ElementScanner::kPadding;  // bytes of an element that tell its begin

// Which of 64 bytes are what; bit i: byte i.
struct Masks {
  uint64_t quote = 0, backslash = 0, open = 0, close = 0;
};

#if defined(__SSE2__)

Masks Classify(const char* bytes) {
  Masks masks;
  for (size_t i = 0; i < kBlock; i += 16) {
    const __m128i chunk = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes + i));
    // '[' and '{', ']' and '}' differ in one bit only.
    const __m128i folded = _mm_or_si128(chunk, _mm_set1_epi8(0x20));
    const auto where = [i](__m128i equal) {
      return static_cast<uint64_t>(static_cast<uint32_t>(_mm_movemask_epi8(equal))) << i;
    };
    masks.quote |= where(_mm_cmpeq_epi8(chunk, _mm_set1_epi8('"')));
    masks.backslash |= where(_mm_cmpeq_epi8(chunk, _mm_set1_epi8('\\')));
    masks.open |= where(_mm_cmpeq_epi8(folded, _mm_set1_epi8('{')));
    masks.close |= where(_mm_cmpeq_epi8(folded, _mm_set1_epi8('}')));
  }
  return masks;
}

#else

Masks Classify(const char* bytes) {
  Masks masks;
  for (size_t i = 0; i < kBlock; ++i) {
    masks.quote |= uint64_t{bytes[i] == '"'} << i;
    masks.backslash |= uint64_t{bytes[i] == '\\'} << i;
    masks.open |= uint64_t{(bytes[i] | 0x20) == '{'} << i;
    masks.close |= uint64_t{(bytes[i] | 0x20) == '}'} << i;
  }
  return masks;
}

#endif

// Bit i: an odd number of bits is set in 0..i.
uint64_t PrefixXor(uint64_t bits) {
  for (int shift = 1; shift < 64; shift *= 2) bits ^= bits << shift;
  return bits;
}

// Bytes that a backslash before them escapes. `escaped`: the first byte; becomes: the one behind.
uint64_t Escaped(uint64_t backslash, bool* escaped) {
  uint64_t result = *escaped ? 1 : 0;
  backslash &= ~result;
  *escaped = false;
  while (backslash != 0) {  // few blocks have any
    const int at = std::countr_zero(backslash);
    if (at == 63) {
      *escaped = true;
      break;
    }
    result |= uint64_t{2} << at;
    backslash &= ~(uint64_t{3} << at);
  }
  return result;
}

// The key before the value that begins at the end of `text`: of {"a": 1, "b": it is b.
std::string_view LastKey(std::string_view text) {
  const auto trim = [&text] {
    while (!text.empty() && Blank(text.back())) text.remove_suffix(1);
  };
  trim();
  if (text.empty() || text.back() != ':') return "";
  text.remove_suffix(1);
  trim();
  if (text.empty() || text.back() != '"') return "";
  text.remove_suffix(1);
  const size_t quote = text.rfind('"');
  return quote == std::string_view::npos ? "" : text.substr(quote + 1);
}

}  // namespace

void ElementScanner::Add(std::string_view piece) {
  while (!piece.empty()) {
    const size_t n = std::min(piece.size(), kChunkBytes);
    buffer_.append(piece.substr(0, n));
    piece.remove_prefix(n);
    end_ = buffer_.size();
    Scan();
    Compact();
  }
}

void ElementScanner::Finish() {
  buffer_.append(kBlock + kLook, ' ');  // so that the last bytes are a block
  Scan();
  truncated_ = state_ != State::kDone && !(bare_ && state_ == State::kEvents && depth_ == 0);
}

void ElementScanner::Scan() {
  while (next_ + kBlock + kLook <= buffer_.size() && next_ < end_) ScanBlock();
}

void ElementScanner::ScanBlock() {
  const size_t block = next_;
  const char* bytes = buffer_.data() + block;
  if (state_ == State::kDone) {
    const size_t n = std::min(kBlock, end_ - block);
    trailing_bytes_ += static_cast<uint64_t>(
        std::count_if(bytes, bytes + n, [](char c) { return !Blank(c) && c != 0; }));
    next_ = block + kBlock;
    return;
  }
  const Masks masks = Classify(bytes);
  const uint64_t quotes = masks.quote & ~Escaped(masks.backslash, &escaped_);
  const uint64_t strings = PrefixXor(quotes) ^ (in_string_ ? ~uint64_t{0} : 0);
  in_string_ = (strings >> 63) != 0;
  next_ = block + kBlock;
  uint64_t brackets = (masks.open | masks.close) & ~(strings & masks.close);
  while (brackets != 0) {
    const int i = std::countr_zero(brackets);
    brackets &= brackets - 1;
    const size_t at = block + static_cast<size_t>(i);
    if ((masks.close >> i & 1) != 0) {
      OnClose(at);
      if (state_ == State::kDone) return GoOnAt(at + 1);
    } else if ((strings >> i & 1) == 0) {
      OnOpen(at);
    } else if (bytes[i] == '{' && BeginsElement(at, true) && Resync(at)) {
      return GoOnAt(at + 1);
    }
  }
  if (depth_ > 0 && state_ == State::kEvents && !dropped_ && next_ - element_ > kMaxElementBytes) {
    sink_->OnDamage(first_ + element_);
    dropped_ = true;
  }
}

// The next block begins at `at`, outside of a string.
void ElementScanner::GoOnAt(size_t at) {
  next_ = at;
  in_string_ = false;
  escaped_ = false;
}

void ElementScanner::OnOpen(size_t at) {
  if (state_ == State::kTop) {
    TopOpen(at);
  } else if (depth_ > 0 && buffer_[at] == '{' && BeginsElement(at, false)) {
    Resync(at);  // the one before was not closed
  } else if (depth_++ == 0) {
    element_ = at;
    dropped_ = false;
  }
}

void ElementScanner::TopOpen(size_t at) {
  ++depth_;
  if (depth_ == 1) {
    rest_from_ = at;
    if (buffer_[at] == '[') {
      bare_ = true;
      events_seen_ = true;
      state_ = State::kEvents;
      depth_ = 0;
    }
    return;
  }
  if (depth_ != 2) return;
  GatherRest(at);
  const std::string_view key = LastKey(rest_);
  if (key == "traceEvents" && buffer_[at] == '[') {
    rest_ += "null";
    rest_at_end_ = rest_.size();
    events_seen_ = true;
    state_ = State::kEvents;
    depth_ = 0;
  } else if (key != "deviceProperties" && key != "distributedInfo") {
    rest_ += "null";
    rest_skips_ = true;
  }
}

void ElementScanner::OnClose(size_t at) {
  if (state_ == State::kEvents) {
    if (depth_ > 0) {
      if (--depth_ == 0 && !dropped_) {
        sink_->OnElement(std::string_view(buffer_).substr(element_, at + 1 - element_),
                         first_ + element_);
      }
    } else if (buffer_[at] == ']' && !FieldFollows(at)) {
      state_ = bare_ ? State::kDone : State::kTop;
      depth_ = 1;
      rest_from_ = at + 1;
    } else {  // of an element whose begin was not seen
      sink_->OnDamage(first_ + at);
    }
    return;
  }
  if (depth_ == 0) return;  // nothing has begun
  --depth_;
  if (depth_ == 0) {
    GatherRest(at + 1);
    state_ = State::kDone;
  } else if (depth_ == 1 && rest_skips_) {
    rest_skips_ = false;
    rest_from_ = at + 1;
  }
}

// An element begins at `at` although none can there. False: this is not among the events.
bool ElementScanner::Resync(size_t at) {
  if (!events_seen_) return false;
  if (state_ == State::kTop) {  // the array had not ended
    state_ = State::kEvents;
    rest_.resize(rest_at_end_);
    rest_skips_ = false;
    sink_->OnDamage(first_ + at);
  } else if (depth_ == 0) {
    sink_->OnDamage(first_ + at);
  } else if (!dropped_) {
    std::string_view broken = std::string_view(buffer_).substr(element_, at - element_);
    while (Blank(broken.back()) || broken.back() == ',') broken.remove_suffix(1);
    sink_->OnElement(broken, first_ + element_);
  }
  element_ = at;
  depth_ = 1;
  dropped_ = false;
  return true;
}

// Whether the brace at `at` starts an element in a place where none should. In JSON, no string can
// hold `{"ph":`, as its quotes are escaped. In an element that is not closed only "ph" counts, as
// arguments may have names, too, and only where a value cannot be.
bool ElementScanner::BeginsElement(size_t at, bool in_string) const {
  const char* text = buffer_.data() + at + 1;
  const char* const end = buffer_.data() + at + kLook;
  while (text < end && Blank(*text)) ++text;
  if (text == end || *text++ != '"') return false;
  const char* const key = text;
  while (text < end && *text >= 'a' && *text <= 'z') ++text;
  const std::string_view name(key, static_cast<size_t>(text - key));
  if (text == end || *text++ != '"') return false;
  while (text < end && Blank(*text)) ++text;
  if (text == end || *text != ':') return false;
  if (name != "ph") {
    if (!in_string) return false;
    constexpr std::string_view kKeys[] = {"name", "cat", "pid", "tid", "ts", "dur", "id", "args"};
    if (std::find(std::begin(kKeys), std::end(kKeys), name) == std::end(kKeys)) return false;
  }
  if (state_ != State::kEvents || depth_ == 0 || dropped_) return true;  // the text before is gone
  size_t before = at - 1;
  while (before > element_ && Blank(buffer_[before])) --before;
  return buffer_[before] == ',' || buffer_[before] == '}';
}

// Whether the bracket at `at` cannot be the end of the events: no comma and no other bracket
// follows.
bool ElementScanner::FieldFollows(size_t at) const {
  const char* text = buffer_.data() + at + 1;
  const char* const end = buffer_.data() + at + kLook;
  while (text < end && Blank(*text)) ++text;
  return text < end && *text == '"';
}

// Adds the part of the text up to `to` that belongs to the rest.
void ElementScanner::GatherRest(size_t to) {
  if (rest_skips_ || to <= rest_from_ || rest_.size() >= kMaxRestBytes) return;
  rest_.append(buffer_, rest_from_, std::min(to - rest_from_, kMaxRestBytes - rest_.size()));
  rest_from_ = to;
}

void ElementScanner::Compact() {
  if (state_ == State::kTop && depth_ > 0) GatherRest(next_);
  size_t keep = next_;
  if (state_ == State::kEvents && depth_ > 0 && !dropped_) keep = element_;
  buffer_.erase(0, keep);
  first_ += keep;
  next_ -= keep;
  element_ = element_ > keep ? element_ - keep : 0;
  rest_from_ = rest_from_ > keep ? rest_from_ - keep : 0;
}

}  // namespace seqpoint::traces
