#include "daemon/iterations/loop.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/iterations/graph_period.h"
#include "daemon/iterations/outer_loop.h"

namespace seqpoint::iterations {
namespace {

using abi::CallRecord;
using abi::Op;
using Positions = absl::Span<const uint32_t>;

// A launch over all parameters of a model has at least as many.
constexpr double kManyThreads = 16384;
// How many launches two turns are compared over.
constexpr uint32_t kMaxWalk = 600;
// Different sizes of turns that time steps do not have, and turns after which something that
// happens around them would have been recognised.
constexpr size_t kManySizes = 8;
constexpr uint32_t kOftenEnough = 12;
constexpr uint32_t kNever = std::numeric_limits<uint32_t>::max();

Op OpOf(const CallRecord& call) { return static_cast<Op>(call.op); }

bool BlocksHost(Op op) {
  return op == Op::kStreamSync || op == Op::kEventSync || op == Op::kContextSync;
}

bool IsHostCall(const CallRecord& call) {
  const Op op = OpOf(call);
  return op == Op::kCopyH2D || op == Op::kCopyD2H || op == Op::kMark || BlocksHost(op);
}

// Brings a batch, or waits for one.
bool IsFeed(const CallRecord& call) {
  return OpOf(call) == Op::kCopyH2D || OpOf(call) == Op::kStreamWait;
}

double Threads(const CallRecord& call) {
  return static_cast<double>(call.grid_x) * call.grid_y * call.grid_z * call.block_x *
         call.block_y * call.block_z;
}

uint32_t CountIn(Positions at, uint32_t begin, uint32_t end) {
  return static_cast<uint32_t>(std::lower_bound(at.begin(), at.end(), end) -
                               std::lower_bound(at.begin(), at.end(), begin));
}

// The most frequent value and the share of entries that have it.
std::pair<uint32_t, double> Mode(const std::vector<uint32_t>& values) {
  absl::flat_hash_map<uint32_t, uint32_t> counts;
  std::pair<uint32_t, uint32_t> best{0, 0};
  for (uint32_t value : values) {
    const uint32_t n = ++counts[value];
    if (n > best.second) best = {value, n};
  }
  return {best.first, values.empty()
                          ? 0
                          : static_cast<double>(best.second) / static_cast<double>(values.size())};
}

class Finder {
 public:
  Finder(const LaunchLog& stream, const Occurrences& occurrences)
      : stream_(stream), calls_(stream.calls()), occurrences_(occurrences) {}

  std::optional<Loop> Find(size_t min_turns);

 private:
  struct Segment {
    uint32_t begin, end;
  };
  // A fixed place of a turn: a launch at, or behind, a call that happens once in each.
  struct Place {
    Member member;              // symbol 0: the batch's copy
    std::vector<uint32_t> at;   // one launch per turn between anchors
    std::vector<uint32_t> all;  // those outside of complete turns, too
  };
  using Skeleton = std::vector<Place>;  // in cyclic order
  struct Evidence {
    double points = 0;
    std::vector<std::string> words;
  };

  uint64_t TimeBetween(uint32_t from, uint32_t to) const;
  double Coverage(Positions at, uint32_t end) const;
  double GraphShare(uint32_t begin, uint32_t end) const;
  double BatchCopiesIn(const std::vector<Segment>& segments, uint64_t least_bytes) const;
  bool IsOwnLaunch(const Member& member) const;
  const Family* Base(const std::vector<Family>& families) const;
  const Family* Climb(const Family& from, double strongest,
                      const std::vector<Family>& families) const;
  bool IsStepOf(const Family& step, const Family& inner, double strongest) const;
  std::vector<Segment> Segments(Positions at, Positions special, bool want_special) const;
  double MeanLaunches(const std::vector<Segment>& segments) const;
  absl::flat_hash_map<uint32_t, uint32_t> CountWhat(const Segment& segment) const;
  std::vector<uint32_t> BatchCopies(Positions anchors) const;
  bool OnlyReadsBack(const Family& family) const;
  const Family* AtBatches(const std::vector<Family>& families, Family* own) const;
  Skeleton MakeSkeleton(const Family& family) const;
  uint32_t Region(uint32_t launch) const;
  uint32_t RareEnds(const Loop& loop) const;
  bool FirstTurnDiffers(const Loop& loop) const;
  bool SizesVary(const Loop& loop) const;
  bool OthersPending(const Loop& loop) const;
  Positions GraphsFrom(uint32_t begin) const;
  bool FindGraphTurns(const Family& family, Loop* loop);
  void MarkIrregular(const std::vector<Family>& families, Loop* loop) const;
  std::vector<Evidence> Judge(const Skeleton& skeleton, const Family& step,
                              const Family& inner) const;
  void JudgeFirstEver(const Skeleton& skeleton, std::vector<Evidence>* places) const;
  void JudgePauses(const Skeleton& skeleton, std::vector<Evidence>* places) const;
  void JudgeRareCalls(const Skeleton& skeleton, std::vector<Evidence>* places) const;
  void JudgeGeometry(const Skeleton& skeleton, std::vector<Evidence>* places) const;
  uint32_t CountLaunches(uint32_t begin, uint32_t end) const;
  uint32_t SameLaunches(uint32_t a, uint32_t b, int direction) const;
  void JudgeThreads(const Skeleton& skeleton, std::vector<Evidence>* places) const;
  void JudgeStepCalls(const Skeleton& skeleton, const Family& step, const Family& inner,
                      std::vector<Evidence>* places) const;

  const LaunchLog& stream_;
  const std::vector<CallRecord>& calls_;
  const Occurrences& occurrences_;
  uint32_t begin_ = 0, end_ = 0;  // calls that are looked at
  OuterLoop outer_;
};

uint64_t Finder::TimeBetween(uint32_t from, uint32_t to) const {
  return calls_[to].api_ns > calls_[from].api_ns ? calls_[to].api_ns - calls_[from].api_ns : 0;
}

// Share of what follows the first occurrence, to the end of the stream, during which occurrences
// follow each other at a usual distance. In time, or in calls: a host that runs ahead of the GPU is
// fast at first and then waits at each launch.
double Finder::Coverage(Positions at, uint32_t end) const {
  if (at.size() < 2) return 0;
  constexpr size_t kSample = 128;  // gives the median well enough
  std::vector<uint64_t> distances(at.size() - 1), sorted;
  const auto covered = [&](uint64_t all) {
    sorted.clear();
    const size_t stride = distances.size() / kSample + 1;
    for (size_t i = 0; i < distances.size(); i += stride) sorted.push_back(distances[i]);
    const auto middle = sorted.begin() + static_cast<ptrdiff_t>(sorted.size() / 2);
    std::nth_element(sorted.begin(), middle, sorted.end());
    uint64_t sum = 0;
    for (uint64_t distance : distances) sum += distance <= 8 * *middle ? distance : *middle;
    return all > 0 ? static_cast<double>(sum) / static_cast<double>(all) : 0;
  };
  for (size_t i = 0; i < distances.size(); ++i) distances[i] = TimeBetween(at[i], at[i + 1]);
  const double in_time = covered(TimeBetween(at.front(), end - 1));
  for (size_t i = 0; i < distances.size(); ++i) distances[i] = at[i + 1] - at[i];
  return std::max(in_time, covered(end - 1 - at.front()));
}

// Share of graph launches that follow one another with no other launch in between.
double Finder::GraphShare(uint32_t begin, uint32_t end) const {
  const Positions at = occurrences_.Of(
      Alphabet::kSized, stream_.SymbolOf(Alphabet::kSized, Op::kGraphLaunch), begin, end);
  uint32_t alone = 0;
  for (size_t i = 1; i < at.size(); ++i) alone += CountLaunches(at[i - 1], at[i]) == 1;
  return at.size() < 2 ? 0 : static_cast<double>(alone) / static_cast<double>(at.size() - 1);
}

bool Finder::IsOwnLaunch(const Member& member) const {
  return IsLaunch(calls_[member.at[0]].op) &&
         (member.alphabet == Alphabet::kWhat || member.alphabet == Alphabet::kSized);
}

// Stretches between consecutive occurrences, those that hold an occurrence of `special` or those
// that hold none. A few suffice.
std::vector<Finder::Segment> Finder::Segments(Positions at, Positions special,
                                              bool want_special) const {
  constexpr size_t kEnough = 8;
  std::vector<Segment> segments;
  for (size_t i = at.size() - 1; i-- > 0 && segments.size() < kEnough;) {
    if ((CountIn(special, at[i], at[i + 1]) > 0) == want_special) {
      segments.push_back({at[i], at[i + 1]});
    }
  }
  return segments;
}

double Finder::MeanLaunches(const std::vector<Segment>& segments) const {
  double launches = 0;
  for (const Segment& segment : segments) launches += CountLaunches(segment.begin, segment.end);
  return launches / static_cast<double>(segments.size());
}

// Host-to-device copies of at least so many bytes, in the mean.
double Finder::BatchCopiesIn(const std::vector<Segment>& segments, uint64_t least_bytes) const {
  double copies = 0;
  for (const Segment& segment : segments) {
    for (uint32_t i = segment.begin; i < segment.end; ++i) {
      copies += OpOf(calls_[i]) == Op::kCopyH2D && calls_[i].bytes >= least_bytes;
    }
  }
  return copies / static_cast<double>(segments.size());
}

absl::flat_hash_map<uint32_t, uint32_t> Finder::CountWhat(const Segment& segment) const {
  absl::flat_hash_map<uint32_t, uint32_t> counts;
  for (uint32_t i = segment.begin; i < segment.end; ++i) {
    if (IsLaunch(calls_[i].op)) ++counts[stream_.symbols()[i].of[0]];
  }
  return counts;
}

// Is `step` the loop of which `inner` is only a part? `strongest`: the strength of the strongest
// loop found within so far. Cheap questions first.
bool Finder::IsStepOf(const Family& step, const Family& inner, double strongest) const {
  if (step.count() >= inner.count()) return false;
  if (std::none_of(step.members.begin(), step.members.end(),
                   [this](const Member& m) { return IsOwnLaunch(m); })) {
    return false;
  }
  const Positions at = step.at();
  // A kernel that is picked for some lengths only comes and goes; a loop spans its parts.
  const size_t spanned = CountIn(inner.at(), at.front(), at.back());
  if (spanned * 10 < inner.count() * 6) return false;
  std::vector<uint32_t> inner_counts;
  for (size_t i = 0; i + 1 < at.size(); ++i) {
    inner_counts.push_back(CountIn(inner.at(), at[i], at[i + 1]));
  }
  if (inner_counts.size() < 2) return false;
  const auto [mode, share] = Mode(inner_counts);
  if (mode == 0) return false;

  const bool regular = mode > 1 && share >= 0.8 && inner_counts.size() >= 3;
  const bool comparable = step.strength * (mode == 1 ? 2 : 4) >= strongest;
  if (!regular && !comparable) return false;
  const std::vector<Segment> special = Segments(inner.at(), at, true);
  const std::vector<Segment> plain = Segments(inner.at(), at, false);
  if (special.size() < 2 || plain.empty()) return false;
  // Forward passes without a step: evaluation shares the forward calls of training, and is shorter.
  // A kernel that is only picked for some lengths is absent now and then, too.
  if (mode == 1) return MeanLaunches(plain) < 0.75 * MeanLaunches(special);

  // Batches are copied in an evaluation phase between iterations, and not for a step.
  uint64_t batch_bytes = 0;
  for (const Segment& segment : plain) {
    for (uint32_t i = segment.begin; i < segment.end; ++i) {
      if (OpOf(calls_[i]) == Op::kCopyH2D) batch_bytes = std::max(batch_bytes, calls_[i].bytes);
    }
  }
  const double copies = BatchCopiesIn(plain, batch_bytes / 4);
  // A step does not have few batches now and many then.
  if (copies > 0 && !regular) return false;
  if (copies > 0 && BatchCopiesIn(special, batch_bytes / 4) >= 2 * copies) return false;

  std::vector<absl::flat_hash_map<uint32_t, uint32_t>> in_special, in_plain;
  for (const Segment& segment : special) in_special.push_back(CountWhat(segment));
  for (const Segment& segment : plain) in_plain.push_back(CountWhat(segment));

  // Most of what is launched, is launched only around the step: `inner` repeats within a turn (time
  // steps, layers).
  absl::flat_hash_set<uint32_t> all, repeated;
  for (const auto& counts : in_special) {
    for (const auto& [symbol, count] : counts) all.insert(symbol);
  }
  for (const auto& counts : in_plain) {
    for (const auto& [symbol, count] : counts) {
      all.insert(symbol);
      repeated.insert(symbol);
    }
  }
  if (comparable && repeated.size() * 10 <= all.size() * 7) return true;

  // What happens once in each plain stretch and again in each special one is an evaluation phase
  // between iterations, not a step over several of them.
  if (!regular) return false;
  uint32_t again = 0;
  for (const auto& [symbol, count] : in_plain[0]) {
    const auto happens = [symbol = symbol](const auto& counts) {
      auto it = counts.find(symbol);
      return it == counts.end() ? 0u : it->second;
    };
    again += std::all_of(in_plain.begin(), in_plain.end(),
                         [&](const auto& counts) { return happens(counts) == 1; }) &&
             std::all_of(in_special.begin(), in_special.end(),
                         [&](const auto& counts) { return happens(counts) >= 2; });
  }
  if (again >= std::max<uint32_t>(2, inner.weight / 5)) return false;

  // Gradient accumulation, or several optimisers: launches over all parameters, which a loss that
  // is logged every n-th iteration has not.
  std::vector<double> inner_threads;
  for (const Member& member : inner.members) {
    if (IsOwnLaunch(member)) inner_threads.push_back(Threads(calls_[member.at[0]]));
  }
  double median = 0;
  if (!inner_threads.empty()) {
    std::nth_element(inner_threads.begin(),
                     inner_threads.begin() + static_cast<ptrdiff_t>(inner_threads.size() / 2),
                     inner_threads.end());
    median = inner_threads[inner_threads.size() / 2];
  }
  uint32_t own_launches = 0;
  bool large = false;
  for (const Member& member : step.members) {
    if (!IsOwnLaunch(member)) continue;
    if (member.alphabet == Alphabet::kSized) ++own_launches;
    const CallRecord& call = calls_[member.at[0]];
    large |= OpOf(call) == Op::kGraphLaunch || Threads(call) >= std::min(median, kManyThreads);
  }
  return large || own_launches >= 3;
}

// The strongest family, unless it only comes and goes with some lengths while another one goes on:
// then that one.
const Family* Finder::Base(const std::vector<Family>& families) const {
  const Family* base = &families[0];
  for (int i = 0; i < 4; ++i) {
    const Family* finer = nullptr;
    for (const Family& family : families) {
      if (family.score < 0.5 * base->score) break;
      if (family.count() * 5 < base->count() * 6 || IsStepOf(*base, family, family.strength))
        continue;
      finer = &family;
      break;
    }
    if (finer == nullptr) break;
    base = finer;
  }
  return base;
}

const Family* Finder::Climb(const Family& from, double strongest,
                            const std::vector<Family>& families) const {
  const Family* best = nullptr;
  for (const Family& family : families) {
    if (&family == &from || family.count() < 3) continue;
    // The least step up first: forward pass to training iteration, then micro-steps to steps.
    if (best != nullptr && family.count() <= best->count()) continue;
    if (IsStepOf(family, from, strongest)) best = &family;
  }
  return best;
}

// The family's calls only read back or wait, as where each tenth iteration logs its loss.
bool Finder::OnlyReadsBack(const Family& family) const {
  return std::all_of(family.members.begin(), family.members.end(), [this](const Member& member) {
    const Op op = OpOf(calls_[member.at[0]]);
    return !IsOwnLaunch(member) && (op == Op::kLaunch || op == Op::kCopyD2H || BlocksHost(op) ||
                                    op == Op::kEventRecord || op == Op::kStreamWait);
  });
}

// The strongest family that takes turns with the batches; without one `own`, made of them alone.
const Family* Finder::AtBatches(const std::vector<Family>& families, Family* own) const {
  const std::vector<uint32_t>& batches = outer_.batches;
  const Family* best = nullptr;
  for (const Family& family : families) {
    if (best != nullptr && family.strength <= best->strength) continue;
    // The loop may go on a little before the first batch that is counted, and behind the last.
    const Positions at = family.at();
    const auto first = std::lower_bound(at.begin(), at.end(), batches.front());
    const auto end = std::upper_bound(first, at.end(), batches.back());
    const Positions between(first, static_cast<size_t>(end - first));
    if (at.size() <= batches.size() + 2 && Interleave(batches, between)) best = &family;
  }
  if (best != nullptr) return best;
  own->members.push_back({Alphabet::kWhat, 0, batches});
  own->weight = 1;
  own->strength = 1;
  return own;
}

// The large host-to-device copies, each group of them once: the batch, where its bytes follow the
// length and no symbol is the same twice.
std::vector<uint32_t> Finder::BatchCopies(Positions anchors) const {
  const Positions all = occurrences_.Of(
      Alphabet::kWhat, stream_.SymbolOf(Alphabet::kWhat, Op::kCopyH2D), begin_, end_);
  uint64_t threshold = UINT64_MAX;
  auto next = std::lower_bound(all.begin(), all.end(), anchors[0]);
  for (size_t turn = 0; turn + 1 < anchors.size(); ++turn) {
    uint64_t largest = 0;
    for (; next != all.end() && *next < anchors[turn + 1]; ++next) {
      largest = std::max(largest, calls_[*next].bytes);
    }
    threshold = std::min(threshold, largest);
  }
  threshold /= 4;
  std::vector<uint32_t> copies;
  if (threshold == 0) return copies;
  const uint32_t group =
      (anchors.back() - anchors[0]) / static_cast<uint32_t>(anchors.size() - 1) / 20;
  uint32_t last = 0;
  for (uint32_t i : all) {
    if (calls_[i].bytes < threshold) continue;
    if (copies.empty() || i - last > group) {
      // Before the first anchor only the last one counts: others are evaluation's.
      if (i <= anchors[0]) copies.clear();
      copies.push_back(i);
    }
    last = i;
  }
  return copies;
}

Finder::Skeleton Finder::MakeSkeleton(const Family& family) const {
  const Positions anchors = family.at();
  const size_t turns = anchors.size() - 1;
  Skeleton places;
  const auto add = [&](const Member& member, Positions at) {
    Place place{member, {}, {}};
    // The launch that a place before, or at, a call belongs to. In rising order: each call is
    // looked at once.
    uint32_t next = begin_;
    for (uint32_t call : at) {
      next = std::max(next, call);
      while (next < end_ && !IsLaunch(calls_[next].op)) ++next;
      if (next == end_) break;
      place.all.push_back(next);
    }
    size_t turn = 0;
    for (uint32_t launch : place.all) {
      if (launch < anchors[turn]) continue;
      if (launch >= anchors[turn + 1]) return;
      place.at.push_back(launch);
      if (++turn == turns) break;
    }
    if (place.at.size() == turns) places.push_back(std::move(place));
  };
  for (const Member& member : family.members) add(member, member.at);
  const std::vector<uint32_t> copies = BatchCopies(anchors);
  if (Interleave(copies, anchors)) add(Member{Alphabet::kWhat, 0, {}}, copies);

  const size_t middle = turns / 2;
  std::stable_sort(places.begin(), places.end(), [middle](const Place& a, const Place& b) {
    return a.at[middle] < b.at[middle];
  });
  Skeleton skeleton;
  for (Place& place : places) {
    if (!skeleton.empty()) {
      // Another symbol of the same launch, or one whose order changes from turn to turn.
      bool ascending = true;
      for (size_t turn = 0; turn < turns; ++turn) {
        ascending &= place.at[turn] > skeleton.back().at[turn];
      }
      if (!ascending) continue;
    }
    skeleton.push_back(std::move(place));
  }
  return skeleton;
}

uint32_t Finder::Region(uint32_t launch) const {
  uint32_t region = launch;
  while (region > begin_ && !IsLaunch(calls_[region - 1].op)) --region;
  return region;
}

// The members' first launches ever, in order: the process itself began at the begin.
void Finder::JudgeFirstEver(const Skeleton& skeleton, std::vector<Evidence>* places) const {
  const size_t n = skeleton.size();
  std::vector<std::pair<uint32_t, size_t>> first;
  for (size_t i = 0; i < n; ++i) {
    const Member& member = skeleton[i].member;
    if (member.symbol == 0 || !IsLaunch(calls_[member.at[0]].op)) continue;
    const Positions ever = occurrences_.Of(member.alphabet, member.symbol, 0, end_);
    // A symbol that was also used while parameters were made says nothing.
    if (ever.size() > member.at.size() + 1) continue;
    first.push_back({ever[0], i});
  }
  if (first.size() < 2 || n < 2) return;
  std::sort(first.begin(), first.end());
  // In cyclic order the sequence descends exactly once, at the begin.
  size_t descents = 0;
  for (size_t i = 0; i + 1 < first.size(); ++i) descents += first[i + 1].second < first[i].second;
  if (descents > 1 + first.size() / 10) return;
  // A place that is recognised by what came before it is missing from the first turn; if its
  // launch was there all the same, the loop began with it.
  size_t begin = first[0].second;
  while (true) {
    const size_t before = begin == 0 ? n - 1 : begin - 1;
    const Member& member = skeleton[before].member;
    if (member.symbol != 0 && IsOwnLaunch(member)) break;
    const uint32_t what = stream_.symbols()[skeleton[before].at[0]].of[0];
    const Positions ever = occurrences_.Of(Alphabet::kWhat, what, 0, end_);
    if (ever.empty() || ever[0] >= first[0].first || before == first[0].second) break;
    begin = before;
  }
  Evidence& place = (*places)[begin];
  if (stream_.from_process_start()) {
    place.points += 3;
    place.words.push_back("the process' first launch of the loop");
  } else {
    place.points += 0.5;
    place.words.push_back("first launch of the recorded stream");
  }
}

// A gap that now and then holds far more calls than usual: evaluation runs between iterations.
void Finder::JudgePauses(const Skeleton& skeleton, std::vector<Evidence>* places) const {
  const size_t n = skeleton.size();
  const size_t turns = skeleton[0].at.size();
  if (turns < 4) return;
  std::vector<uint32_t> lengths;
  std::vector<std::vector<uint32_t>> gaps(n);
  for (size_t turn = 0; turn + 1 < turns; ++turn) {
    lengths.push_back(skeleton[0].at[turn + 1] - skeleton[0].at[turn]);
    for (size_t i = 0; i < n; ++i) {
      const uint32_t to = i == 0 ? skeleton[0].at[turn + 1] : skeleton[i].at[turn];
      const uint32_t from = i == 0 ? skeleton[n - 1].at[turn] : skeleton[i - 1].at[turn];
      gaps[i].push_back(to - from);
    }
  }
  std::vector<uint32_t> sorted = lengths;
  std::nth_element(sorted.begin(), sorted.begin() + static_cast<ptrdiff_t>(sorted.size() / 2),
                   sorted.end());
  const double usual_length = sorted[sorted.size() / 2];
  for (size_t i = 0; i < n; ++i) {
    std::vector<uint32_t> g = gaps[i];
    std::nth_element(g.begin(), g.begin() + static_cast<ptrdiff_t>(g.size() / 2), g.end());
    const double usual = g[g.size() / 2];
    size_t pauses = 0;
    for (uint32_t gap : gaps[i]) pauses += gap > 4 * usual + 8 && gap > 0.25 * usual_length;
    if (pauses == 0 || pauses * 2 > gaps[i].size()) continue;
    // Of a gap that usually holds much (repeated layers), a long sequence is the likelier reason.
    if (usual > 0.1 * usual_length) continue;
    (*places)[i].points += 3;
    (*places)[i].words.push_back("training pauses here for evaluation");
  }
}

// What stands directly before the launch: the batch's copy, a wait for it, the host's long pause.
void Finder::JudgeRareCalls(const Skeleton& skeleton, std::vector<Evidence>* places) const {
  const size_t n = skeleton.size();
  const size_t turns = skeleton[0].at.size();
  struct Share {
    double copied = 0, copied_turns = 0, batches = 0, waits = 0, syncs = 0, nvtx = 0, pauses = 0;
  };
  std::vector<Share> shares(n);
  const size_t first_turn = turns > 24 ? turns - 24 : 0;
  const std::vector<uint32_t> batches = BatchCopies(skeleton[0].at);
  for (size_t turn = first_turn; turn < turns; ++turn) {
    const uint32_t from = skeleton[0].at[turn];
    const uint32_t to = turn + 1 < turns ? skeleton[0].at[turn + 1] : end_;
    double bytes = 0;
    uint64_t longest_pause = 0;
    uint32_t longest_at = 0;
    for (uint32_t i = from + 1; i <= to && i < end_; ++i) {
      if (OpOf(calls_[i]) == Op::kCopyH2D) bytes += static_cast<double>(calls_[i].bytes);
      uint64_t pause = calls_[i].api_ns - calls_[i - 1].api_ns;
      if (calls_[i].api_ns < calls_[i - 1].api_ns) pause = 0;
      if (BlocksHost(OpOf(calls_[i - 1]))) pause -= std::min(pause, calls_[i - 1].bytes);
      if (pause > longest_pause) {
        longest_pause = pause;
        longest_at = i;
      }
    }
    for (size_t i = 0; i < n; ++i) {
      if (i == 0 && turn + 1 == turns) continue;
      const uint32_t launch = i == 0 ? skeleton[0].at[turn + 1] : skeleton[i].at[turn];
      const uint32_t region = Region(launch);
      bool wait = false, sync = false, nvtx = false;
      double copied = 0;
      for (uint32_t c = region; c < launch; ++c) {
        const Op op = OpOf(calls_[c]);
        if (op == Op::kCopyH2D) copied += static_cast<double>(calls_[c].bytes);
        wait |= op == Op::kStreamWait;
        sync |= BlocksHost(op);
        nvtx |= op == Op::kNvtxPush || op == Op::kNvtxMark || op == Op::kMark;
      }
      if (copied > 0) {
        shares[i].copied += copied / bytes;
        shares[i].copied_turns += 1;
      }
      shares[i].batches += CountIn(batches, region, launch) > 0;
      shares[i].waits += wait;
      shares[i].syncs += sync;
      shares[i].nvtx += nvtx;
      shares[i].pauses += longest_at >= region && longest_at <= launch;
    }
  }
  for (size_t i = 0; i < n; ++i) {
    const double all = static_cast<double>(turns - first_turn) - (i == 0 ? 1 : 0);
    if (all < 1) continue;
    Evidence& place = (*places)[i];
    const auto add = [&](double share, double points, std::string_view words) {
      if (share < 0.2) return;
      place.points += points * share;
      place.words.push_back(std::string(words));
    };
    if (shares[i].copied_turns >= 0.8 * all) {
      add(0.2 + 0.8 * shares[i].copied / all, 1, "host-to-device copy");
    }
    if (shares[i].batches >= 0.8 * all) add(1, 1.5, "the batch's copy");
    add(shares[i].pauses / all, 1, "longest pause of the host");
    add(shares[i].waits / all, 0.7, "a stream waits");
    add(shares[i].syncs / all, 0.3, "the host waits for the GPU");
    add(shares[i].nvtx / all, 0.3, "NVTX");
  }
}

// Optimiser launches keep their geometry whatever the length; the forward pass follows the length.
// How far do turns of different length agree, walking backwards from each place, and how far
// forwards?
void Finder::JudgeGeometry(const Skeleton& skeleton, std::vector<Evidence>* places) const {
  constexpr size_t kMaxPairs = 6;
  const size_t n = skeleton.size();
  const size_t turns = skeleton[0].at.size();
  std::vector<double> behind(n, 0), ahead(n, 0);
  size_t pairs = 0;
  size_t looked_at = 0;
  for (size_t turn = turns - 1; turn >= 2 && pairs < kMaxPairs; --turn) {
    ++looked_at;
    // Turns of the same length agree everywhere and say nothing.
    const uint32_t launches = CountLaunches(skeleton[0].at[turn - 1], skeleton[0].at[turn]);
    if (SameLaunches(skeleton[0].at[turn - 1], skeleton[0].at[turn - 2], 1) >=
        std::min(launches, kMaxWalk)) {
      continue;
    }
    ++pairs;
    for (size_t i = 0; i < n; ++i) {
      behind[i] += SameLaunches(skeleton[i].at[turn - 1], skeleton[i].at[turn - 2], -1);
      ahead[i] += SameLaunches(skeleton[i].at[turn - 1], skeleton[i].at[turn - 2], 1);
    }
  }
  // A stray difference now and then is not the length's.
  if (pairs * 2 < looked_at || pairs == 0) return;
  const double most = *std::max_element(behind.begin(), behind.end());
  if (most < static_cast<double>(pairs)) return;
  for (size_t i = 0; i < n; ++i) {
    const double share = behind[i] / most * (1 - std::min(1.0, ahead[i] / most));
    if (share < 0.4) continue;
    (*places)[i].points += 1.5 * share * std::min(1.0, static_cast<double>(pairs) / 4);
    if (share > 0.8) (*places)[i].words.push_back("only launches after it follow the length");
  }
}

uint32_t Finder::CountLaunches(uint32_t begin, uint32_t end) const {
  uint32_t launches = 0;
  for (uint32_t i = begin; i < end; ++i) launches += IsLaunch(calls_[i].op);
  return launches;
}

// Number of launches, from two calls on (direction 1) or before them (-1), that agree in name and
// geometry.
uint32_t Finder::SameLaunches(uint32_t a, uint32_t b, int direction) const {
  const auto next = [&](uint32_t* call) {
    do {
      *call += static_cast<uint32_t>(direction);
    } while (*call<end_&& * call> begin_ && !IsLaunch(calls_[*call].op));
  };
  uint32_t same = 0;
  if (direction < 0) {
    next(&a);
    next(&b);
  }
  while (same < kMaxWalk && a < end_ && b < end_ && a > begin_ && b > begin_ &&
         stream_.symbols()[a].of[1] == stream_.symbols()[b].of[1]) {
    ++same;
    next(&a);
    next(&b);
  }
  return same;
}

// Where launching goes over from one thread to another, the backward pass begins or ends; and a
// thread that copies no batch and waits for nothing runs the backward pass alone.
void Finder::JudgeThreads(const Skeleton& skeleton, std::vector<Evidence>* places) const {
  const size_t turns = skeleton[0].at.size();
  absl::flat_hash_map<uint32_t, uint32_t> hosts;
  for (uint32_t i = skeleton[0].at[0]; i < skeleton[0].at[turns - 1]; ++i) {
    const Op op = OpOf(calls_[i]);
    if (op == Op::kCopyH2D || op == Op::kCopyD2H || BlocksHost(op)) ++hosts[calls_[i].thread_id];
  }
  for (size_t i = 0; i < skeleton.size(); ++i) {
    uint32_t changes = 0, elsewhere = 0;
    for (uint32_t launch : skeleton[i].at) {
      const uint32_t region = Region(launch);
      changes += region > begin_ && calls_[region - 1].thread_id != calls_[launch].thread_id;
      elsewhere += !hosts.empty() && !hosts.contains(calls_[launch].thread_id);
    }
    if (changes * 2 > turns) (*places)[i].points -= 2;
    if (elsewhere * 2 > turns) (*places)[i].points -= 1;
  }
}

// With micro-steps the begin follows the launches that only the step has.
void Finder::JudgeStepCalls(const Skeleton& skeleton, const Family& step, const Family& inner,
                            std::vector<Evidence>* places) const {
  if (&step == &inner) return;
  absl::flat_hash_set<uint32_t> step_only;
  for (const Member& member : step.members) {
    if (member.alphabet == Alphabet::kWhat) step_only.insert(member.symbol);
  }
  const auto what = [this](uint32_t call) { return stream_.symbols()[call].of[0]; };
  const auto times = [&](uint32_t call) {
    return occurrences_.Of(Alphabet::kWhat, what(call), begin_, end_).size();
  };
  // The launch before `region` belongs to the step.
  const auto after_step = [&](uint32_t region) {
    if (region == 0) return false;
    const size_t n = times(region - 1);
    return step_only.contains(what(region - 1)) || (n >= step.count() && n < inner.count());
  };
  // Launched in (almost) every turn of `inner`, not many times in each step.
  const auto in_each = [&](uint32_t call) {
    const Positions at = occurrences_.Of(Alphabet::kWhat, what(call), begin_, end_);
    const Positions turns = inner.at();
    size_t holding = 0;
    for (auto it = at.begin(); it != at.end();) {
      const auto end = std::upper_bound(turns.begin(), turns.end(), *it);
      ++holding;
      it = end == turns.end() ? at.end() : std::lower_bound(it, at.end(), *end);
    }
    return holding + 2 >= turns.size();
  };
  const size_t middle = skeleton[0].at.size() / 2;
  for (size_t i = 0; i < skeleton.size(); ++i) {
    const uint32_t launch = skeleton[i].at[middle];
    if (step_only.contains(what(launch)) || !after_step(Region(launch)) || !in_each(launch)) {
      continue;
    }
    // What only the step launches behind the batch's copy clears the gradients: the begin lies
    // before it.
    size_t place = i;
    for (size_t before = i; before > 0 && place == i; --before) {
      const uint32_t clears = skeleton[before - 1].at[middle];
      if (!step_only.contains(what(clears))) break;
      const uint32_t region = Region(clears);
      const bool fed = std::any_of(calls_.begin() + region, calls_.begin() + clears, IsFeed);
      if (fed && after_step(region)) place = before - 1;
    }
    (*places)[place].points += 3;
    (*places)[place].words.push_back("follows what only the step launches");
  }
}

std::vector<Finder::Evidence> Finder::Judge(const Skeleton& skeleton, const Family& step,
                                            const Family& inner) const {
  std::vector<Evidence> places(skeleton.size());
  JudgeFirstEver(skeleton, &places);
  JudgePauses(skeleton, &places);
  JudgeRareCalls(skeleton, &places);
  JudgeGeometry(skeleton, &places);
  JudgeThreads(skeleton, &places);
  JudgeStepCalls(skeleton, step, inner, &places);
  return places;
}

// A turn in which something that usually happens the same number of times happens more often.
void Finder::MarkIrregular(const std::vector<Family>& families, Loop* loop) const {
  for (const Family& family : families) {
    if (family.weight < 2 || family.weight * 10 < loop->family_weight) break;
    std::vector<uint32_t> counts;
    for (size_t turn = 0; turn < loop->turns.size(); ++turn) {
      counts.push_back(CountIn(family.at(), loop->turns[turn].first_launch, loop->EndOf(turn)));
    }
    const auto [mode, share] = Mode(counts);
    if (mode == 0 || share < 0.7) continue;
    for (size_t turn = 0; turn < counts.size(); ++turn) {
      loop->turns[turn].regular &= counts[turn] <= mode;
    }
  }
}

// Turns that end with a launch that only such turns make, and few: the optimiser step of many
// micro-steps, of which too few were seen yet.
uint32_t Finder::RareEnds(const Loop& loop) const {
  absl::flat_hash_map<uint32_t, uint32_t> ends;  // what -> turns
  for (size_t turn = 0; turn < loop.turns.size(); ++turn) {
    const uint32_t end = loop.EndRegionOf(turn) - 1;
    if (OpOf(calls_[end]) != Op::kGraphLaunch) ++ends[stream_.symbols()[end].of[0]];
  }
  uint32_t rare = 0;
  for (const auto& [what, turns] : ends) {
    if (turns * 2 >= loop.turns.size()) continue;
    uint32_t holding = 0;
    auto behind = loop.turns.begin();  // the turn after that of the last one
    for (const uint32_t at :
         occurrences_.Of(Alphabet::kWhat, what, loop.turns[0].first_launch, loop.end)) {
      const auto next = std::partition_point(
          behind, loop.turns.end(), [at](const Turn& turn) { return turn.first_launch <= at; });
      holding += next != behind ? 1 : 0;
      behind = next;
    }
    if (holding == turns) rare += turns;
  }
  return rare;
}

// The first of several micro-steps differs from the others: gradients are cleared before it, or it
// writes them where the others add to them. In doubt it differs; that only costs time.
bool Finder::FirstTurnDiffers(const Loop& loop) const {
  constexpr size_t kEnoughTurns = 64;
  constexpr uint64_t kManyBytes = 65536;  // a memset of more than counters and scalars
  if (begin_ != 0 || !stream_.from_process_start() || loop.turns.size() < 2) return true;
  const auto what = [this](uint32_t call) { return stream_.symbols()[call].of[0]; };
  size_t turns = std::min(loop.turns.size(), kEnoughTurns);
  Turn first = loop.turns[0];
  uint32_t first_end = loop.EndRegionOf(0);
  uint32_t later = 1;  // index of the first of the other turns
  // What ends a turn stands before the first one: that one began before, and was not recognised.
  if (first.region > 0 && what(first.region - 1) == what(loop.turns[turns - 1].region - 1)) {
    const Positions same =
        occurrences_.Of(Alphabet::kWhat, what(first.first_launch), 0, first.region);
    if (same.empty()) return true;
    first_end = first.region;
    first = {same[0], Region(same[0]), true};
    later = 0;
    const uint32_t usual =
        (loop.end_region - loop.turns[0].region) / static_cast<uint32_t>(loop.turns.size());
    const uint32_t length = first_end - first.first_launch;
    if (length * 3 < usual || length > usual * 3) return true;
  }
  struct Presence {
    uint32_t turns = 0;    // of the later ones
    uint32_t regions = 0;  // before their first launches
    uint32_t last_turn = kNever, last_region = kNever;
    bool in_first = false, in_first_region = false;
  };
  std::vector<Presence> presence(stream_.symbol_count(Alphabet::kWhat));
  for (uint32_t i = first.region; i < first_end; ++i) {
    presence[what(i)].in_first = true;
    presence[what(i)].in_first_region |= i < first.first_launch;
  }
  for (uint32_t turn = later; turn < turns; ++turn) {
    for (uint32_t i = loop.turns[turn].region; i < loop.EndRegionOf(turn); ++i) {
      Presence& here = presence[what(i)];
      here.turns += here.last_turn != turn;
      here.last_turn = turn;
      if (i >= loop.turns[turn].first_launch) continue;
      here.regions += here.last_region != turn;
      here.last_region = turn;
    }
  }
  turns -= later;
  const auto always = [turns](uint32_t n) { return n * 10 >= turns * 9; };
  const auto hardly = [turns](uint32_t n) { return n * 10 <= turns; };
  for (uint32_t i = first.region; i < first_end; ++i) {
    const Op op = OpOf(calls_[i]);
    const bool nvtx = op == Op::kNvtxPush || op == Op::kNvtxMark;
    if (!nvtx && op != Op::kMemset) continue;
    const bool in_region = i < first.first_launch;
    if (hardly(in_region ? presence[what(i)].regions : presence[what(i)].turns) &&
        (nvtx || !in_region || calls_[i].bytes > kManyBytes)) {
      return true;
    }
  }
  // What initialises parameters on the GPU looks like what clears gradients.
  if (first.region > 0 && presence[what(first.region - 1)].turns == 0) return true;
  const size_t last = turns + later - 1;
  for (uint32_t i = loop.turns[last].region; i < loop.EndRegionOf(last); ++i) {
    const Op op = OpOf(calls_[i]);
    const Presence& here = presence[what(i)];
    const bool launches = IsLaunch(calls_[i].op) || op == Op::kMemset || op == Op::kCopyD2D;
    if (launches && always(here.turns) && !here.in_first) return true;
    if (IsFeed(calls_[i]) && always(here.regions) && !here.in_first_region) return true;
  }
  return false;
}

// What comes back after the same number of turns, and not after one.
bool Periodic(const std::vector<uint32_t>& values) {
  constexpr size_t kMaxPeriod = 32;
  for (size_t period = 1; period <= kMaxPeriod && period * 2 < values.size(); ++period) {
    size_t same = 0;
    for (size_t i = period; i < values.size(); ++i) same += values[i] == values[i - period];
    if (same * 10 >= (values.size() - period) * 9) return period > 1;
  }
  return false;
}

// Neighbours that are alike in pairs, or threes, are the parts of one iteration, and so are turns
// of different launches that come back in the same order.
bool Finder::SizesVary(const Loop& loop) const {
  absl::flat_hash_set<double> sizes;
  size_t reversals = 0, changes = 0;
  std::vector<uint32_t> launches;
  double last = 0;
  int direction = 0;  // of the last change
  for (size_t turn = 0; turn < loop.turns.size(); ++turn) {
    double size = 0;
    for (uint32_t i = loop.turns[turn].first_launch; i < loop.EndOf(turn); ++i) {
      if (OpOf(calls_[i]) == Op::kGraphLaunch) size += stream_.symbols()[i].of[0];
      if (OpOf(calls_[i]) == Op::kLaunch) size += Threads(calls_[i]);
    }
    sizes.insert(size);
    launches.push_back(CountLaunches(loop.turns[turn].first_launch, loop.EndOf(turn)));
    const int change = (size > last) - (size < last);
    if (turn > 0 && change != 0) {
      ++changes;
      reversals += change == -direction;
      direction = change;
    }
    last = size;
  }
  return sizes.size() >= kManySizes && reversals * 4 >= loop.turns.size() &&
         changes * 4 >= (loop.turns.size() - 1) * 3 && !Periodic(launches);
}

bool Finder::OthersPending(const Loop& loop) const {
  std::vector<uint32_t> turns(stream_.symbol_count(Alphabet::kWhat));
  std::vector<size_t> last(turns.size(), SIZE_MAX);
  for (size_t turn = 0; turn <= loop.turns.size(); ++turn) {
    const bool complete = turn < loop.turns.size();
    const uint32_t begin = complete ? loop.turns[turn].first_launch : loop.end;
    const uint32_t end = complete ? loop.EndOf(turn) : end_;
    for (uint32_t i = begin; i < end; ++i) {
      const uint32_t what = stream_.symbols()[i].of[0];
      turns[what] += last[what] != turn;
      last[what] = turn;
    }
  }
  const uint32_t often = std::min(kOftenEnough, static_cast<uint32_t>(loop.turns.size()));
  return std::any_of(turns.begin(), turns.end(),
                     [often](uint32_t n) { return n > 0 && n < often; });
}

Positions Finder::GraphsFrom(uint32_t begin) const {
  return occurrences_.Of(Alphabet::kSized, stream_.SymbolOf(Alphabet::kSized, Op::kGraphLaunch),
                         begin, end_);
}

// Where each turn of `family` is one graph launch: are these micro-steps? True with their turns in
// `loop`.
bool Finder::FindGraphTurns(const Family& family, Loop* loop) {
  const Positions anchors = family.at();
  Positions at = GraphsFrom(begin_);
  if (at.size() * 10 < anchors.size() * 9 || at.size() * 9 > anchors.size() * 10) return false;
  uint32_t single = 0;
  for (size_t i = 0; i + 1 < anchors.size(); ++i) {
    single += CountIn(at, anchors[i], anchors[i + 1]) == 1;
  }
  if (single * 10 < (anchors.size() - 1) * 9) return false;
  at = GraphsFrom(static_cast<uint32_t>(stream_.after_hole()));
  GraphLaunches launches;
  launches.from_start = stream_.from_process_start() && stream_.after_hole() == 0;
  for (uint32_t i = 0; i < at.size(); ++i) {
    launches.graphs.push_back(stream_.symbols()[at[i]].of[0]);
    for (uint32_t call = i == 0 ? at[0] : at[i - 1] + 1; call < at[i]; ++call) {
      const Op op = OpOf(calls_[call]);
      launches.prefetched |= op == Op::kCopyH2D && calls_[call].stream != calls_[at[i]].stream;
      if (!BlocksHost(op) && op != Op::kCopyD2H && !IsLaunch(calls_[call].op)) continue;
      if (launches.waits.empty() || launches.waits.back() != i) launches.waits.push_back(i);
    }
  }
  const GraphPeriod period = FindGraphPeriod(launches);
  const uint32_t n = loop->graph_period = period.period;
  if (n == 1) {
    // A job that waits for each of them waits for its iterations.
    loop->graph_period_unsure =
        period.unsure && launches.waits.size() * 10 < (launches.graphs.size() - 1) * 9;
    return false;
  }
  const auto best = std::max_element(period.begin_points.begin(), period.begin_points.end());
  loop->begin_evidence = *best;
  loop->begin_margin = *best;
  for (auto it = period.begin_points.begin(); it != period.begin_points.end(); ++it) {
    if (it != best) loop->begin_margin = std::min(loop->begin_margin, *best - *it);
  }
  begin_ = static_cast<uint32_t>(stream_.after_hole());
  loop->evidence = absl::StrCat("of ", n,
                                " graph launches the last, or the first, has graphs of "
                                "its own");
  for (size_t i = static_cast<size_t>(best - period.begin_points.begin()); i < at.size(); i += n) {
    loop->turns.push_back({at[i], Region(at[i]), true});
  }
  loop->inner_turns = n;
  return true;
}

std::optional<Loop> Finder::Find(size_t min_turns) {
  const auto size = static_cast<uint32_t>(stream_.size());
  const auto hole = static_cast<uint32_t>(stream_.after_hole());
  // Start-up and warm-up calls hide the families at the begin of the stream; drop as little of it
  // as gives about the most.
  std::vector<Family> families;
  for (uint32_t part : {0u, 1u, 2u}) {
    const uint32_t begin = hole + (size - hole) / 4 * part;
    std::vector<Family> found =
        FindFamilies(stream_, occurrences_, begin, size, std::max<size_t>(3, min_turns));
    // What only evaluation does takes turns as well, but not all the time.
    double strongest = 0;
    for (const Family& family : found) strongest = std::max(strongest, family.strength);
    // Nor is it more than what the graphs hold that training launches.
    if (GraphShare(begin, size) >= 0.6) {
      for (Family& family : found) family.strength += family.graphs ? strongest : 0;
      strongest *= 2;
    }
    for (Family& family : found) {
      if (family.strength < strongest / 8) continue;
      family.score = family.strength * Coverage(family.at(), size);
    }
    std::stable_sort(found.begin(), found.end(),
                     [](const Family& a, const Family& b) { return a.score > b.score; });
    if (found.empty() || (!families.empty() && found[0].score * 3 <= families[0].score * 4)) {
      continue;
    }
    families = std::move(found);
    begin_ = begin;
    // Nothing hides much of a family like this.
    if (families[0].strength >= 8 && families[0].score >= 0.8 * families[0].strength) break;
  }
  end_ = size;
  if (families.empty()) return std::nullopt;

  const Family* step = Base(families);
  const Family* inner = step;
  const auto climb = [&] {
    double strongest = step->strength;
    while (const Family* above = Climb(*step, strongest, families)) {
      // The forward pass alone is not a loop inside the iteration, only its part.
      inner = step;
      step = above;
      strongest = std::max(strongest, step->strength);
    }
  };
  climb();
  if (step->count() < 2) return std::nullopt;

  Loop loop;
  Family batches;
  bool reads_back = false;
  // A loop with a step of its own around its parts is none of an iteration's parts.
  const bool small = step->weight < kWholeNetwork;
  const bool parts = inner->count() * 5 >= step->count() * 9 &&
                     CountIn(inner->at(), step->at()[1], step->at()[1] + 1) == 0;
  outer_ = FindOuterLoop(stream_, step->at());
  if (small && !parts) loop.turns_per_batch = outer_.turns_per_batch;
  if (small && !parts && !outer_.batches.empty() && !outer_.unsure) {
    loop.copy_alone = outer_.copy_alone;
    step = inner = AtBatches(families, &batches);
    climb();
  } else {
    loop.shares_batches = !outer_.batches.empty();
    reads_back = !parts && OnlyReadsBack(*step);
    loop.outer_unsure = small && !parts && (outer_.unsure || reads_back);
  }
  if (step->count() < min_turns + 1) return std::nullopt;

  loop.family_weight = step->weight;
  for (const Family& family : families) {
    if (&family != step) loop.runner_up_weight = std::max(loop.runner_up_weight, family.weight);
  }
  if (!FindGraphTurns(*step, &loop)) {
    const Skeleton skeleton = MakeSkeleton(*step);
    if (skeleton.empty()) return std::nullopt;
    const std::vector<Evidence> places = Judge(skeleton, *step, *inner);
    size_t best = 0;
    for (size_t i = 1; i < places.size(); ++i) {
      if (places[i].points > places[best].points) best = i;
    }
    double second = 0;
    for (size_t i = 0; i < places.size(); ++i) {
      if (i != best) second = std::max(second, places[i].points);
    }
    loop.begin_evidence = places[best].points;
    loop.begin_margin = places[best].points - second;
    loop.evidence = absl::StrJoin(places[best].words, ", ");
    for (size_t i = 0; i < places.size(); ++i) {
      if (places[i].points == 0) continue;
      loop.places.push_back(
          {skeleton[i].at.back(), places[i].points, absl::StrJoin(places[i].words, ", ")});
    }
    if (inner != step) {
      std::vector<uint32_t> counts;
      for (size_t i = 0; i + 1 < step->count(); ++i) {
        counts.push_back(CountIn(inner->at(), step->at()[i], step->at()[i + 1]));
      }
      const auto [mode, share] = Mode(counts);
      if (share >= 0.8) loop.inner_turns = std::max(1u, mode);
    }
    for (uint32_t at : skeleton[best].all) loop.turns.push_back({at, Region(at), true});
  }
  if (loop.turns.size() < 2) return std::nullopt;
  // The last one opens an incomplete turn.
  loop.end = loop.turns.back().first_launch;
  loop.end_region = loop.turns.back().region;
  loop.turns.pop_back();
  if (loop.turns.size() < min_turns) return std::nullopt;
  MarkIrregular(families, &loop);
  size_t with_host = 0, with_threads = 0;
  for (size_t turn = 0; turn < loop.turns.size(); ++turn) {
    const auto begin = calls_.begin() + loop.turns[turn].region;
    const auto end = calls_.begin() + loop.EndRegionOf(turn);
    const bool threads = std::any_of(begin, end, [begin](const CallRecord& call) {
      return IsLaunch(call.op) && call.thread_id != begin->thread_id;
    });
    with_threads += threads;
    with_host += threads || std::any_of(begin, end, IsHostCall);
  }
  loop.outer_unsure = loop.outer_unsure && with_threads * 2 < loop.turns.size();
  loop.rare_ends = RareEnds(loop);
  loop.first_differs = loop.graph_period == 0 && FirstTurnDiffers(loop);
  loop.host_share = static_cast<double>(with_host) / static_cast<double>(loop.turns.size());
  if (loop.host_share < 0.5 || loop.outer_unsure) {
    loop.sizes_vary = !reads_back && !outer_.batches_astray && SizesVary(loop);
    loop.others_pending = OthersPending(loop);
  }
  return loop;
}

}  // namespace

std::optional<Loop> FindLoop(const LaunchLog& stream, const Occurrences& occurrences,
                             size_t min_turns) {
  return Finder(stream, occurrences).Find(min_turns);
}

}  // namespace seqpoint::iterations
