#include "daemon/iterations/outer_loop.h"

#include <algorithm>
#include <cmath>

#include "daemon/base/statistics.h"
#include "daemon/iterations/log_window.h"

namespace seqpoint::iterations {
namespace {

using abi::CallRecord;
using abi::Op;

// A learning rate or a loss scale is one number; a batch has more bytes.
constexpr uint64_t kNumberBytes = 8;
// The fewest groups that show a period.
constexpr size_t kFewest = 3;
// This many loop iterations in a row are taken for iterations where each copies or reads back
// (LearnerOptions::min_iterations). A single copy is no evidence against so many.
constexpr double kManyIterations = 12;

// Calls that follow one another without a launch in between are one group at the place of its first
// call. It belongs to the loop iteration that starts with the next launch: `iteration`.
struct Group {
  uint32_t call;
  size_t iteration;
  double bytes;
};

// Groups of the calls for which `belongs` holds, from the copy before the first loop iteration to
// the last loop iteration.
template <typename Predicate>
std::vector<Group> FindGroups(const LaunchLog& stream, Positions iterations, Predicate belongs) {
  const std::vector<CallRecord>& calls = stream.calls();
  uint32_t from = iterations.front();
  while (from > 0 && !IsLaunch(calls[from - 1].op)) --from;
  std::vector<Group> groups;
  bool apart = true;
  size_t iteration = 0;
  for (uint32_t i = from; i <= iterations.back(); ++i) {
    while (iteration < iterations.size() && iterations[iteration] < i) ++iteration;
    if (IsLaunch(calls[i].op)) apart = true;
    if (!belongs(calls[i])) continue;
    if (apart) groups.push_back({i, iteration, 0});
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
  return op == Op::kCopyD2H || BlocksHost(op);
}

// Loop iterations from each group to the next.
std::vector<double> IterationsBetween(const std::vector<Group>& groups) {
  std::vector<double> between;
  for (size_t i = 0; i + 1 < groups.size(); ++i) {
    between.push_back(static_cast<double>(groups[i + 1].iteration - groups[i].iteration));
  }
  return between;
}

// Whether there is the same number of loop iterations, two at least, from each to the next. Warm-up
// and noise may differ.
bool Regular(const std::vector<double>& between) {
  const double median = Median(between);
  const auto same = std::count(between.begin(), between.end(), median);
  return median >= 2 && static_cast<size_t>(same) * 5 >= between.size() * 4;
}

// Whether some loop iterations have several and others none.
bool Uneven(const std::vector<Group>& groups) {
  bool several = false, none = false;
  for (size_t i = 1; i < groups.size(); ++i) {
    const size_t step = groups[i].iteration - groups[i - 1].iteration;
    several |= step == 0;
    none |= step > 1;
  }
  return several && none;
}

// Whether there are more loop iterations where more bytes were copied: the batch's length decides
// their number.
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

// Whether every second one is alike and neighbours are not: two kinds of copies in an iteration.
bool Alternate(const std::vector<double>& between) {
  size_t alike = 0, neighbours = 0;
  for (size_t i = 2; i < between.size(); ++i) {
    alike += between[i] == between[i - 2];
    neighbours += between[i] == between[i - 1];
  }
  return alike * 5 + 8 >= between.size() * 4 && neighbours * 2 <= alike;
}

// Whether each is at the end, or at another fixed place, of a batch. Evaluation and noise may
// differ.
bool OncePerBatch(const std::vector<Group>& read, const std::vector<Group>& batches) {
  // Loop iterations since the last batch, and to the next one.
  std::vector<uint32_t> behind, before;
  for (const Group& group : read) {
    const auto next = std::partition_point(batches.begin(), batches.end(), [&](const Group& batch) {
      return batch.iteration < group.iteration;
    });
    if (next == batches.begin() || next == batches.end()) continue;
    before.push_back(static_cast<uint32_t>(next->iteration - group.iteration));
    behind.push_back(static_cast<uint32_t>(group.iteration - std::prev(next)->iteration));
  }
  const auto fixed = [](const std::vector<uint32_t>& places) {
    return places.empty() || Mode(places).second >= 0.8;
  };
  return fixed(before) || fixed(behind);
}

// The number of threads launched in each loop iteration.
std::vector<double> Sizes(const LaunchLog& stream, Positions iterations) {
  std::vector<double> sizes(iterations.size() - 1);
  for (size_t iteration = 0; iteration + 1 < iterations.size(); ++iteration) {
    for (uint32_t i = iterations[iteration]; i < iterations[iteration + 1]; ++i) {
      const CallRecord& call = stream.calls()[i];
      if (call.op != static_cast<uint8_t>(Op::kLaunch)) continue;
      sizes[iteration] += Threads(call);
    }
  }
  return sizes;
}

// Whether the loop iterations of one batch are alike and those of another batch differ: the batch
// has the length.
bool SizesFollow(const std::vector<Group>& batches, const std::vector<double>& sizes) {
  size_t within = 0, alike = 0, changes = 0;
  double last = -1;
  for (size_t i = 0; i + 1 < batches.size(); ++i) {
    // A loop iteration may start in the middle of the repeated calls: the last one has some of the
    // next batch.
    const size_t end = std::min(batches[i + 1].iteration, sizes.size());
    if (batches[i].iteration + 2 >= end) continue;
    const std::vector<double> own(sizes.begin() + static_cast<ptrdiff_t>(batches[i].iteration),
                                  sizes.begin() + static_cast<ptrdiff_t>(end) - 1);
    const double usual = Median(own);
    within += own.size();
    alike += static_cast<size_t>(std::count(own.begin(), own.end(), usual));
    changes += usual != last;
    last = usual;
  }
  return within > 0 && alike * 5 >= within * 4 && changes * 2 >= batches.size();
}

}  // namespace

OuterLoop FindOuterLoop(const LaunchLog& stream, Positions iterations) {
  OuterLoop outer;
  const std::vector<Group> batches = FindGroups(stream, iterations, IsBatchCopy);
  size_t with_batch = 0;
  for (size_t i = 0; i < batches.size(); ++i) {
    with_batch += i == 0 || batches[i].iteration != batches[i - 1].iteration;
  }
  outer.batches_uneven = Uneven(batches);
  // Each loop iteration takes a batch.
  if (with_batch * 10 >= iterations.size() * 9) return outer;
  const std::vector<Group> read = FindGroups(stream, iterations, IsReadBack);
  if (batches.size() >= kFewest) {
    const std::vector<double> between = IterationsBetween(batches);
    const double spanned =
        static_cast<double>(batches.back().iteration - batches.front().iteration);
    // Evaluation copies its batches in phases; a loop over batches has them all the time.
    const bool throughout = spanned * 10 >= static_cast<double>(iterations.size()) * 6;
    const bool follow = FollowBytes(between, batches) && !Alternate(between);
    if (throughout && (Regular(between) || follow)) {
      for (const Group& group : batches) outer.batches.push_back(group.call);
      const double usual = Median(between);
      outer.iterations_per_batch = static_cast<uint32_t>(usual);
      const bool lengths = follow || SizesFollow(batches, Sizes(stream, iterations));
      outer.copy_alone = !lengths && read.size() < kFewest;
      outer.unsure = !OncePerBatch(read, batches) || (usual >= kManyIterations && !lengths);
      return outer;
    }
    outer.unsure = outer.batches_astray = throughout;
  }
  outer.unsure = outer.unsure || (read.size() >= kFewest && Regular(IterationsBetween(read)));
  return outer;
}

}  // namespace seqpoint::iterations
