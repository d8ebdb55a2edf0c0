// Reads or writes the fields of the monitor's values as one list of numbers.
//
//   template <typename Archive> void Visit(Archive& archive) { archive(count_, sums_); }
//
// One description of the fields serves both directions. Integers beyond 2^53 are split in halves.
//
// Threading, ownership: values. Errors: a Loader that meets too few or impossible numbers leaves
// what it was to fill as it is from then on, and is not ok().
#ifndef SEQPOINT_DAEMON_RANKS_ARCHIVE_H_
#define SEQPOINT_DAEMON_RANKS_ARCHIVE_H_

#include <array>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <map>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/types/span.h"

namespace seqpoint::ranks {

// The shape of containers and of structs with Visit, for both directions. `Self` has
// Number(double&) and Size(size_t).
template <typename Self>
class ArchiveBase {
 public:
  template <typename... T>
  void operator()(T&... fields) {
    (Field(fields), ...);
  }

 private:
  Self& self() { return static_cast<Self&>(*this); }

  void Field(double& value) { self().Number(value); }
  template <typename T>
  requires std::integral<T> || std::is_enum_v<T>
  void Field(T& value) {
    const auto bits = static_cast<uint64_t>(value);
    double high = static_cast<double>(bits >> 32), low = static_cast<double>(bits & 0xffffffff);
    self().Number(high);
    self().Number(low);
    if (high >= 0 && high < 0x1p32 && low >= 0 && low < 0x1p32)
      value = static_cast<T>(static_cast<uint64_t>(high) << 32 | static_cast<uint64_t>(low));
  }
  template <typename T, size_t n>
  void Field(std::array<T, n>& values) {
    for (T& value : values) Field(value);
  }
  template <typename A, typename B>
  void Field(std::pair<A, B>& pair) {
    Field(pair.first);
    Field(pair.second);
  }
  template <typename T>
  void Field(std::vector<T>& values) {
    values.resize(self().Size(values.size()));
    for (T& value : values) Field(value);
  }
  template <typename K, typename V>
  void Field(std::map<K, V>& map) {
    std::vector<std::pair<K, V>> entries(map.begin(), map.end());
    Field(entries);
    map = std::map<K, V>(entries.begin(), entries.end());
  }
  template <typename T>
  requires requires(T& value, Self& archive) { value.Visit(archive); }
  void Field(T& value) { value.Visit(self()); }
};

class Saver : public ArchiveBase<Saver> {
 public:
  std::vector<double> numbers;

  void Number(double value) { numbers.push_back(value); }
  size_t Size(size_t size) {
    numbers.push_back(static_cast<double>(size));
    return size;
  }
};

class Loader : public ArchiveBase<Loader> {
 public:
  explicit Loader(absl::Span<const double> numbers) : numbers_(numbers) {}

  // All numbers were read, and all made sense.
  bool ok() const { return !failed_ && numbers_.empty(); }

  void Number(double& value) {
    if (numbers_.empty() || !std::isfinite(numbers_.front())) {
      failed_ = true;
    } else if (!failed_) {
      value = numbers_.front();
      numbers_.remove_prefix(1);
    }
  }
  // No container has more elements than there are numbers left.
  size_t Size(size_t) {
    double size = 0;
    Number(size);
    if (!(size >= 0 && size <= static_cast<double>(numbers_.size()))) {
      failed_ = true;
      size = 0;
    }
    return static_cast<size_t>(size);
  }

 private:
  absl::Span<const double> numbers_;
  bool failed_ = false;
};

}  // namespace seqpoint::ranks

#endif  // SEQPOINT_DAEMON_RANKS_ARCHIVE_H_
