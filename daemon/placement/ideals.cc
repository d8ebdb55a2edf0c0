#include "daemon/placement/ideals.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "absl/hash/hash.h"
#include "absl/types/span.h"

namespace seqpoint::placement {

std::optional<Ideals> Ideals::List(const std::vector<std::vector<int>>& predecessors, int64_t most,
                                   const std::function<bool()>& stop) {
  Ideals ideals;
  const int classes = static_cast<int>(predecessors.size());
  const size_t words = std::max<size_t>(1, (predecessors.size() + 63) / 64);
  ideals.classes_ = classes;
  ideals.words_ = words;
  std::vector<uint64_t>& bits = ideals.bits_;
  std::vector<std::vector<int>> successors(classes);
  for (int c = 0; c < classes; ++c) {
    for (const int before : predecessors[c]) successors[before].push_back(c);
  }

  // The ideals of one size give those with one class more; each class that may come next is a bit
  // of `ready`.
  const auto key = [&](int32_t ideal) {
    return absl::Span<const uint64_t>(bits.data() + ideal * words, words);
  };
  const auto hash = [&](int32_t ideal) { return absl::Hash<decltype(key(0))>()(key(ideal)); };
  const auto equal = [&](int32_t a, int32_t b) { return key(a) == key(b); };
  absl::flat_hash_set<int32_t, decltype(hash), decltype(equal)> known(0, hash, equal);
  struct Grown {
    int32_t ideal;
    Step step;
  };
  std::vector<Grown> grown;
  std::vector<uint64_t> ready(words, 0), next_ready;
  for (int c = 0; c < classes; ++c) {
    if (predecessors[c].empty()) ready[c / 64] |= uint64_t{1} << (c % 64);
  }
  bits.assign(words, 0);
  ideals.first_of_size_ = {0, 1};
  ideals.first_step_ = {0, 0};
  for (int size = 0; size < classes; ++size) {
    const int begin = ideals.first_of_size_[size], end = ideals.first_of_size_[size + 1];
    int32_t count = end;
    known.clear();
    grown.clear();
    next_ready.clear();
    for (int ideal = begin; ideal < end; ++ideal) {
      if (ideal % 1024 == 0 && stop && stop()) return std::nullopt;
      const uint64_t* may = ready.data() + (ideal - begin) * words;
      for (size_t word = 0; word < words; ++word) {
        for (uint64_t left = may[word]; left != 0; left &= left - 1) {
          const int c = static_cast<int>(word * 64) + __builtin_ctzll(left);
          bits.resize((count + size_t{1}) * words);
          std::copy_n(bits.begin() + ideal * words, words, bits.begin() + count * words);
          bits[count * words + word] |= uint64_t{1} << (c % 64);
          const auto [known_one, is_new] = known.insert(count);
          grown.push_back({*known_one, {c, ideal}});
          if (!is_new) continue;
          next_ready.insert(next_ready.end(), may, may + words);
          uint64_t* next = next_ready.data() + next_ready.size() - words;
          next[word] &= ~(uint64_t{1} << (c % 64));
          for (const int after : successors[c]) {
            const bool waits = std::any_of(predecessors[after].begin(), predecessors[after].end(),
                                           [&](int p) { return !ideals.Contains(count, p); });
            if (!waits) next[after / 64] |= uint64_t{1} << (after % 64);
          }
          if (++count > most) return std::nullopt;
        }
      }
    }
    std::sort(grown.begin(), grown.end(), [](const Grown& a, const Grown& b) {
      return a.ideal != b.ideal ? a.ideal < b.ideal : a.step.taken > b.step.taken;
    });
    for (const Grown& one : grown) {
      ideals.first_step_.resize(one.ideal + 2, ideals.steps_.size());
      ideals.steps_.push_back(one.step);
      ideals.first_step_.back() = ideals.steps_.size();
    }
    ready.swap(next_ready);
    ideals.first_of_size_.push_back(count);
  }
  bits.resize(ideals.first_of_size_.back() * words);
  ideals.first_of_size_.push_back(ideals.first_of_size_.back());
  return ideals;
}

Ideals Ideals::OfChain(int classes) {
  Ideals ideals;
  ideals.classes_ = classes;
  ideals.first_step_ = {0, 0};
  ideals.first_of_size_ = {0};
  for (int32_t size = 1; size <= classes; ++size) {
    ideals.steps_.push_back({size - 1, size - 1});
    ideals.first_step_.push_back(ideals.steps_.size());
    ideals.first_of_size_.push_back(size);
  }
  ideals.first_of_size_.push_back(classes + 1);
  return ideals;
}

}  // namespace seqpoint::placement
