// Finds the elements of a Chrome trace's array of events in a stream of bytes, without holding the
// document: one element at a time is handed on as text, for a JSON parser.
//
// Borders are found by strings, escapes and brackets alone, 64 bytes at a time. Where that fails (a
// quote that was not escaped, a missing brace), reading goes on at the next place that can only be
// the start of an element; the text before it is passed on as a broken element.
//
// Text that is not an event (the keys next to traceEvents) is gathered as a small document of its
// own.
//
// The elements depend on the bytes alone, not on how they were cut into pieces.
//
// Threading: none. Ownership: the sink outlives the scanner.
#ifndef DAEMON_TRACES_ELEMENT_SCANNER_H_
#define DAEMON_TRACES_ELEMENT_SCANNER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace seqpoint::traces {

class ElementSink {
 public:
  virtual ~ElementSink() = default;
  // `element`: text from its bracket to the matching one; a broken one ends where the next starts.
  // kPadding bytes after it can be read. `at`: its first byte in the input.
  virtual void OnElement(std::string_view element, uint64_t at) = 0;
  // Something that is not handed on: longer than kMaxElementBytes, or what no element begins with.
  virtual void OnDamage(uint64_t at) = 0;
};

class ElementScanner {
 public:
  static constexpr size_t kPadding = 64;
  static constexpr size_t kMaxElementBytes = size_t{4} << 20;

  explicit ElementScanner(ElementSink* sink) : sink_(sink) {}

  // The document's bytes in order.
  void Add(std::string_view piece);
  // After the last byte.
  void Finish();

  bool events_seen() const { return events_seen_; }  // the array of events has begun
  // The document did not end. A bare array may end behind any of its elements.
  bool truncated() const { return truncated_; }
  uint64_t trailing_bytes() const { return trailing_bytes_; }  // behind its end, without blanks
  // The document without its events: only the keys that the reader needs have values that are not
  // null. Not always JSON: the input may not have been. Empty for a bare array.
  const std::string& rest() const { return rest_; }

 private:
  enum class State { kTop, kEvents, kDone };

  void Scan();
  void ScanBlock();
  void OnOpen(size_t at);
  void OnClose(size_t at);
  void TopOpen(size_t at);
  bool Resync(size_t at);
  void GoOnAt(size_t at);
  bool BeginsElement(size_t at, bool in_string) const;
  bool FieldFollows(size_t at) const;
  void GatherRest(size_t to);
  void Compact();

  ElementSink* sink_;
  // The input from byte first_ on: the part that is still needed.
  std::string buffer_;
  uint64_t first_ = 0;
  size_t next_ = 0;  // first byte of the next block
  size_t end_ = 0;   // of the input in buffer_; behind it there may be padding

  bool in_string_ = false;  // at next_
  bool escaped_ = false;    // the byte at next_
  State state_ = State::kTop;
  bool bare_ = false;  // the document is an array
  bool events_seen_ = false;
  uint32_t depth_ = 0;    // brackets open: of the document, or within the array of events
  size_t element_ = 0;    // start of the open one
  bool dropped_ = false;  // the open element is too long

  std::string rest_;
  size_t rest_from_ = 0;     // gathered up to here
  bool rest_skips_ = false;  // within a value that is not needed
  size_t rest_at_end_ = 0;   // size of rest_ when the array of events ended

  bool truncated_ = false;
  uint64_t trailing_bytes_ = 0;
};

}  // namespace seqpoint::traces

#endif  // DAEMON_TRACES_ELEMENT_SCANNER_H_
