#include "daemon/iterations/outer_loop.h"

#include <algorithm>
#include <cmath>

namespace seqpoint::iterations {
namespace {

using abi::CallRecord;
using abi::Op;
using Positions = absl::Span<const uint32_t>;

// A learning rate or a loss scale is one number; a batch has more bytes.
constexpr uint64_t kNumberBytes = 8;
// Groups that show a period.
constexpr size_t kFewest = 3;

// Calls that follow one another without a launch in between are one group, which stands where its
// first call does. A group belongs to the turn that begins with the next launch: `turn`.
struct Group {
  uint32_t call;
  size_t turn;
  double bytes;
};

// Groups of the calls that `belongs` names, from the copy before the first turn to the last turn.
template <typename Predicate>
std::vector<Group> FindGroups(const CallStream& stream, Positions turns, Predicate belongs) {
  const std::vector<CallRecord>& calls = stream.calls();
  uint32_t from = turns.front();
  while (from > 0 && !IsLaunch(calls[from - 1].op)) --from;
  std::vector<Group> groups;
  bool apart = true;
  size_t turn = 0;
  for (uint32_t i = from; i <= turns.back(); ++i) {
    while (turn < turns.size() && turns[turn] < i) ++turn;
    if (IsLaunch(calls[i].op)) apart = true;
    if (!belongs(calls[i])) continue;
    if (apart) groups.push_back({i, turn, 0});
    groups.back().bytes += static_cast<double>(calls[i].bytes);
    apart = false;
  }
  return groups;
}

bool IsBatchCopy(const CallRecord& call) {
  return call.op == static_cast<uint8_t>(Op::kCopyH2D) && call.bytes > kNumberBytes;
}

bool IsReadBack(const CallRecord& call) {
  const auto op = static_cast<Op>(call.op);
  return op == Op::kCopyD2H || op == Op::kStreamSync || op == Op::kEventSync ||
         op == Op::kContextSync;
}

// Turns from each group to the next.
std::vector<double> TurnsBetween(const std::vector<Group>& groups) {
  std::vector<double> between;
  for (size_t i = 0; i + 1 < groups.size(); ++i) {
    between.push_back(static_cast<double>(groups[i + 1].turn - groups[i].turn));
  }
  return between;
}

// The same number of turns, two at least, from each to the next. Warm-up and noise may differ.
bool Regular(const std::vector<double>& between) {
  std::vector<double> sorted = between;
  std::sort(sorted.begin(), sorted.end());
  const double median = sorted[sorted.size() / 2];
  const auto same = std::count(sorted.begin(), sorted.end(), median);
  return median >= 2 && static_cast<size_t>(same) * 5 >= sorted.size() * 4;
}

// More turns where more bytes were copied: the batch's length decides how many there are.
bool FollowBytes(const std::vector<double>& between, const std::vector<Group>& groups) {
  const auto n = static_cast<double>(between.size());
  double sum = 0, bytes = 0, squares = 0, byte_squares = 0, products = 0;
  for (size_t i = 0; i < between.size(); ++i) {
    sum += between[i];
    bytes += groups[i].bytes;
    squares += between[i] * between[i];
    byte_squares += groups[i].bytes * groups[i].bytes;
    products += between[i] * groups[i].bytes;
  }
  const double variances = (squares - sum * sum / n) * (byte_squares - bytes * bytes / n);
  return sum >= 2 * n && variances > 0 && (products - sum * bytes / n) / std::sqrt(variances) > 0.9;
}

// Every second one is alike, neighbours are not: two kinds of copies in an iteration.
bool Alternate(const std::vector<double>& between) {
  size_t alike = 0, neighbours = 0;
  for (size_t i = 2; i < between.size(); ++i) {
    alike += between[i] == between[i - 2];
    neighbours += between[i] == between[i - 1];
  }
  return alike * 5 + 8 >= between.size() * 4 && neighbours * 2 <= alike;
}

}  // namespace

OuterLoop FindOuterLoop(const CallStream& stream, Positions turns) {
  OuterLoop outer;
  const std::vector<Group> batches = FindGroups(stream, turns, IsBatchCopy);
  size_t with_batch = 0;
  for (size_t i = 0; i < batches.size(); ++i) {
    with_batch += i == 0 || batches[i].turn != batches[i - 1].turn;
  }
  // Each turn takes a batch.
  if (with_batch * 10 >= turns.size() * 9) return outer;
  if (batches.size() >= kFewest) {
    const std::vector<double> between = TurnsBetween(batches);
    const double spanned = static_cast<double>(batches.back().turn - batches.front().turn);
    // Evaluation copies its batches in phases; a loop over batches has them all the time.
    const bool throughout = spanned * 10 >= static_cast<double>(turns.size()) * 6;
    if (throughout &&
        (Regular(between) || (FollowBytes(between, batches) && !Alternate(between)))) {
      for (const Group& group : batches) outer.batches.push_back(group.call);
      return outer;
    }
    outer.unsure = outer.batches_astray = throughout;
  }
  const std::vector<Group> read = FindGroups(stream, turns, IsReadBack);
  outer.unsure = outer.unsure || (read.size() >= kFewest && Regular(TurnsBetween(read)));
  return outer;
}

}  // namespace seqpoint::iterations
