#include "daemon/iterations/first_call.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "injection/abi/matcher.h"

namespace seqpoint::iterations {
namespace {

bool Counts(const abi::Rule& rule) {
  return rule.boundary.every > 1 || rule.clock.every > 1 || rule.step.every > 1;
}

// Begins() of the result: is a call like those of the pattern, whatever was before it?
abi::Matcher Alike(abi::EventPattern pattern) {
  pattern.match &= ~(abi::kMatchPrevious | abi::kMatchNotPrevious);
  abi::Rule rule = {};
  rule.boundary = pattern;
  return abi::Matcher(rule);
}

// The calls since the last step that are like the boundary or the clock.
class Lead {
 public:
  void Add(size_t call, uint32_t flags, bool alike) {
    if ((flags & abi::kMatchedBoundary) != 0) {
      begin_ = clock_.value_or(calls_.size());
      clock_.reset();
      grows_ = true;
    } else if ((flags & abi::kMatchedClock) != 0) {
      clock_ = calls_.size();
    }
    if (alike) calls_.push_back(call);
    grows_ = grows_ && alike;
    if (grows_) end_ = calls_.size();
  }
  // How many there are from the iteration's first event to the end of the boundary's group.
  size_t size() const { return end_ - begin_; }
  // The call of which so many are left, and the last of them.
  std::optional<std::pair<size_t, size_t>> Left(size_t count) const {
    if (count == 0 || count > end_) return std::nullopt;
    return std::pair(calls_[end_ - count], calls_[end_ - 1]);
  }

 private:
  std::vector<size_t> calls_;
  // Positions in calls_, of the last boundary's iteration.
  size_t begin_ = 0, end_ = 0;
  std::optional<size_t> clock_;  // since the last boundary
  bool grows_ = false;
};

}  // namespace

std::optional<size_t> FirstCall(absl::Span<const abi::CallRecord> calls, const NameTable& names,
                                const abi::Rule& rule) {
  if (Counts(rule)) return std::nullopt;
  abi::Matcher matcher(rule);
  const abi::Matcher boundary = Alike(rule.boundary), clock = Alike(rule.clock);
  std::optional<Lead> first;
  std::map<size_t, size_t> sizes;        // of later iterations: how many have so many
  uint64_t step_ns = 0, longest_ns = 0;  // of later iterations
  Lead open;
  for (size_t i = 0; i < calls.size(); ++i) {
    if ((rule.watched_ops >> (calls[i].op & 31) & 1) == 0) continue;
    const abi::MatchEvent event = ToMatchEvent(calls[i], names);
    const uint32_t flags = matcher.OnEvent(event);
    if ((flags & abi::kMatchedStep) != 0) {
      if (first) {
        ++sizes[open.size()];
        longest_ns = std::max(longest_ns, calls[i].api_ns - std::min(calls[i].api_ns, step_ns));
      } else {
        first = std::move(open);
      }
      step_ns = calls[i].api_ns;
      open = {};
    }
    open.Add(i, flags, boundary.Begins(event) || clock.Begins(event));
  }
  size_t usual = 0, most = 0, later = 0;
  for (const auto& [size, count] : sizes) {
    later += count;
    if (count > most) usual = size, most = count;
  }
  if (2 * most <= later || usual == first->size()) return std::nullopt;
  const auto left = first->Left(usual);
  // An iteration's own calls do not come earlier than a whole iteration takes.
  if (!left || calls[left->second].api_ns - calls[left->first].api_ns > longest_ns) {
    return std::nullopt;
  }
  return left->first;
}

}  // namespace seqpoint::iterations
