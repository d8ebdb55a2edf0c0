// Figures and tables for people: three to five digits, a unit, and an interval whose digits fit its
// width. ASCII only, so that logs and any terminal can show it.
// Threading: pure functions; a Table belongs to one thread.
#ifndef CLIENT_TEXT_PLAIN_TEXT_H_
#define CLIENT_TEXT_PLAIN_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace seqpoint::client {

std::string FormatCount(int64_t count);                           // 5,000
std::string FormatCount(int64_t count, const std::string& noun);  // 1 iteration, 5,000 iterations
std::string FormatShare(double share);                            // 12.5 %; "< 0.01 %" for less
std::string FormatRoundedShare(double share);                     // 12 %, 2.5 %
std::string FormatTime(int64_t epoch_ns);  // 2026-01-02 10:15:00, local; "-" for 0

// `unit` is a Projection's: "B" becomes kB ... PB, "1" k ... P, others likewise; "ns" becomes us
// ... s, and from two minutes on "3 min 20.0 s", "2 h 15 min", "3 d 4 h".
std::string FormatQuantity(double value, std::string_view unit);

// Without an upper end the value is the lower one, rounded down, and the interval "or more".
struct FormattedEstimate {
  std::string value;      // 20.00 s
  std::string interval;   // 19.92 to 20.08 s
  std::string precision;  // +-0.40 %; empty for an exact value
};
std::string FormatReach(double share);  // of an error to both sides: +-0.25 %, +-140 %
FormattedEstimate FormatInterval(double value, double low, double high, std::string_view unit);

// "37" or "37 x 12"; "-" when there is none.
template <typename Lengths>
std::string FormatLengths(const Lengths& lengths) {
  std::string text;
  for (int64_t length : lengths) {
    if (!text.empty()) text += " x ";
    text += FormatCount(length);
  }
  return text.empty() ? "-" : text;
}

// At most `width` bytes; "..." where something was cut off.
std::string Cut(const std::string& text, size_t width);

// EscapeUnprintable, where line ends stay.
std::string Printable(const std::string& text);
// Printable, in quotes, and not longer than a person reads.
std::string Quote(const std::string& text);
inline constexpr int kTextColumns = 98;  // of sentences
// Lines of at most `width` columns (0: unlimited) that begin with `first`, then with as many
// spaces.
std::string Wrap(const std::string& first, const std::string& text, int width = kTextColumns);

// A C++ symbol as it was written; other names as they are.
std::string Demangle(const std::string& name);

// Columns of equal width, two spaces apart, without trailing spaces. A column that is empty in
// every row is left out.
//
//   Table table({"NAME", ">TIME"});
//   table.AddRow({"gnmt", "2.1 s"});
class Table {
 public:
  // A title behind ">" has its column aligned to the right.
  explicit Table(std::vector<std::string> titles) : titles_(std::move(titles)) {}

  void AddRow(std::vector<std::string> cells);  // as many as there are columns
  bool empty() const { return rows_.empty(); }
  // With `max_width` > 0 the last column is cut with "..." to fit.
  std::string ToString(int max_width = 0) const;

 private:
  std::vector<std::string> titles_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace seqpoint::client

#endif  // CLIENT_TEXT_PLAIN_TEXT_H_
