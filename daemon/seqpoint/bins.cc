#include "daemon/seqpoint/bins.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace seqpoint {
namespace {

using Dimension = int64_t Key::*;

class Cutter {
 public:
  Cutter(absl::Span<const Key> keys, absl::Span<const double> mass)
      : keys_(keys), mass_(mass), order_(keys.size()), bin_(keys.size(), 0) {
    std::iota(order_.begin(), order_.end(), 0);
    const auto varies = [&](Dimension dimension) {
      return std::any_of(keys.begin(), keys.end(),
                         [&](const Key& key) { return key.*dimension != keys.front().*dimension; });
    };
    two_dimensional_ = varies(&Key::first) && varies(&Key::second);
    if (two_dimensional_) {
      unit_[0] = Spread(&Key::first, 0, order_.size());
      unit_[1] = Spread(&Key::second, 0, order_.size());
    } else {
      Sort(&Key::first, 0, order_.size());
    }
  }

  std::vector<int> Cut(int max_bins) {
    if (!keys_.empty()) Cut(0, order_.size(), std::max(max_bins, 1));
    return std::move(bin_);
  }

 private:
  void Sort(Dimension dimension, size_t begin, size_t end) {
    const auto before = [&](int a, int b) {
      return std::pair(keys_[a].*dimension, keys_[a]) < std::pair(keys_[b].*dimension, keys_[b]);
    };
    if (!std::is_sorted(order_.begin() + begin, order_.begin() + end, before)) {
      std::sort(order_.begin() + begin, order_.begin() + end, before);
    }
  }

  double Spread(Dimension dimension, size_t begin, size_t end) const {
    double weight = 0, mean = 0, m2 = 0;
    for (size_t i = begin; i < end; ++i) {
      // A key without mass still has a place to be cut at.
      const double w = mass_[order_[i]] + 1e-12;
      const double x = static_cast<double>(keys_[order_[i]].*dimension);
      weight += w;
      const double delta = x - mean;
      mean += delta * (w / weight);  // exact for equal values, whose spread is then exactly 0
      m2 += w * delta * (x - mean);
    }
    return std::sqrt(std::max(0.0, m2 / weight));
  }

  // Puts the range into order along the dimension to be cut; none where all keys are equal.
  Dimension WiderSide(size_t begin, size_t end) {
    if (!two_dimensional_) {
      const Key &low = keys_[order_[begin]], &high = keys_[order_[end - 1]];
      if (low.first != high.first) return &Key::first;
      return low.second != high.second ? &Key::second : nullptr;
    }
    const double first = Spread(&Key::first, begin, end) / unit_[0];
    const double second = Spread(&Key::second, begin, end) / unit_[1];
    if (first <= 0 && second <= 0) return nullptr;
    const Dimension wider = first >= second ? &Key::first : &Key::second;
    Sort(wider, begin, end);
    return wider;
  }

  void Cut(size_t begin, size_t end, int bins) {
    const Dimension dimension = bins > 1 ? WiderSide(begin, end) : nullptr;
    if (dimension == nullptr) {
      for (size_t i = begin; i < end; ++i) bin_[order_[i]] = next_bin_;
      ++next_bin_;
      return;
    }
    double total = 0;
    for (size_t i = begin; i < end; ++i) total += mass_[order_[i]];
    const int left_bins = bins / 2;
    const double target = total * left_bins / bins;
    // The border between two different values that is nearest to the target.
    size_t border = 0;
    double border_miss = 0, border_mass = 0, mass = 0;
    for (size_t i = begin; i + 1 < end; ++i) {
      mass += mass_[order_[i]];
      if (keys_[order_[i]].*dimension == keys_[order_[i + 1]].*dimension) continue;
      const double miss = std::abs(mass - target);
      if (border == 0 || miss < border_miss) {
        border = i + 1;
        border_miss = miss;
        border_mass = mass;
      } else if (mass > target) {
        break;
      }
    }
    const double share = total > 0 ? border_mass / total : 0.5;
    const int left = std::clamp(static_cast<int>(std::lround(bins * share)), 1, bins - 1);
    Cut(begin, border, left);
    Cut(border, end, bins - left);
  }

  absl::Span<const Key> keys_;
  absl::Span<const double> mass_;
  std::vector<int> order_;
  std::vector<int> bin_;
  bool two_dimensional_ = false;
  double unit_[2];  // in two dimensions
  int next_bin_ = 0;
};

}  // namespace

std::vector<int> CutIntoBins(absl::Span<const Key> keys, absl::Span<const double> mass,
                             int max_bins) {
  return Cutter(keys, mass).Cut(max_bins);
}

}  // namespace seqpoint
