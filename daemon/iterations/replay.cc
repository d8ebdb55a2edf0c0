#include "daemon/iterations/replay.h"

#include <algorithm>

namespace seqpoint::iterations {

namespace {

std::vector<abi::EventPattern> PatternsOf(const abi::Rule& rule) {
  std::vector<abi::EventPattern> patterns = {rule.boundary, rule.confirm, rule.step, rule.clock};
  for (uint32_t i = 0; i < rule.length_count; ++i) patterns.push_back(rule.length[i].pattern);
  return patterns;
}

bool LooksBack(const abi::EventPattern& pattern) {
  return (pattern.match & (abi::kMatchPrevious | abi::kMatchNotPrevious)) != 0;
}

// Feeds a recorded stream to a matcher. Most calls match none of the rule's patterns. Only those
// that can, and the watched calls directly before them, are passed on.
class Feeder {
 public:
  Feeder(const LaunchLog& stream, const Occurrences& occurrences, const abi::Rule& rule,
         uint32_t from)
      : stream_(stream), rule_(rule), patterns_(PatternsOf(rule)), matcher_(rule), next_(from) {
    const auto size = static_cast<uint32_t>(stream_.size());
    for (uint32_t symbol = 1; symbol < stream_.symbol_count(Alphabet::kKind); ++symbol) {
      const auto at = occurrences.Of(Alphabet::kKind, symbol, from, size);
      if (!at.empty() && CanMatch(stream_.calls()[at[0]])) {
        calls_.insert(calls_.end(), at.begin(), at.end());
      }
    }
    std::sort(calls_.begin(), calls_.end());
    looks_back_ = std::any_of(patterns_.begin(), patterns_.end(), LooksBack);
  }

  // The calls from `from` on that can match, ascending.
  const std::vector<uint32_t>& calls() const { return calls_; }

  // Flags of OnEvent for the call.
  uint32_t Feed(uint32_t call) {
    if (looks_back_) {
      uint32_t previous = call;
      while (previous > next_ && !Watched(previous - 1)) --previous;
      if (previous > next_) Hand(previous - 1);
      next_ = call + 1;
    }
    return Hand(call);
  }
  const abi::MatchResult& result() const { return matcher_.result(); }

 private:
  bool Watched(uint32_t call) const {
    return (rule_.watched_ops >> (stream_.calls()[call].op & 31) & 1) != 0;
  }
  uint32_t Hand(uint32_t call) {
    return matcher_.OnEvent(ToMatchEvent(stream_.calls()[call], stream_.names()));
  }
  // By operation and name, which all calls of one symbol share.
  bool CanMatch(const abi::CallRecord& record) const {
    if ((rule_.watched_ops >> (record.op & 31) & 1) == 0) return false;
    const abi::MatchEvent event = ToMatchEvent(record, stream_.names());
    return std::any_of(patterns_.begin(), patterns_.end(), [&](const abi::EventPattern& pattern) {
      return pattern.op == event.op &&
             ((pattern.match & abi::kMatchName) == 0 || pattern.name_hash == event.name_hash);
    });
  }

  const LaunchLog& stream_;
  const abi::Rule& rule_;
  const std::vector<abi::EventPattern> patterns_;
  abi::Matcher matcher_;
  std::vector<uint32_t> calls_;
  bool looks_back_ = false;
  uint32_t next_;  // the calls before it were passed on, or skipped
};

}  // namespace

std::vector<ReplayedIteration> Replay(const LaunchLog& stream, const Occurrences& occurrences,
                                      const abi::Rule& rule, uint32_t from) {
  std::vector<ReplayedIteration> done;
  Feeder feeder(stream, occurrences, rule, from);
  ReplayedIteration open;
  bool ended = true;  // the last of `done` has its end
  bool end_timed = true;
  for (uint32_t i : feeder.calls()) {
    const uint32_t flags = feeder.Feed(i);
    if (flags == 0) continue;
    const abi::MatchResult& result = feeder.result();
    if ((flags & abi::kMatchedStep) != 0) {
      open.step = i;
      open.length[0] = result.step.length[0];
      open.length[1] = result.step.length[1];
      open.valid = result.step.valid;
      done.push_back(std::move(open));
      open = ReplayedIteration{};
      ended = end_timed = false;
    }
    if ((flags & abi::kMatchedBoundary) != 0) {
      if (!ended) done.back().end = i;
      ended = true;
      const uint32_t clock = open.begin == kNoCall ? open.clock : kNoCall;
      open = ReplayedIteration{};
      open.begin = i;
      open.clock = clock;
      open.micro_batches.push_back(i);
    }
    if ((flags & abi::kMatchedMicroBatch) != 0) open.micro_batches.push_back(i);
    if ((flags & abi::kMatchedClock) != 0) {
      if (!end_timed) done.back().end_clock = i;
      end_timed = true;
      open.clock = i;
    }
  }
  if (!ended) done.pop_back();
  return done;
}

std::vector<uint32_t> Candidates(const LaunchLog& stream, const Occurrences& occurrences,
                                 const abi::Rule& rule, uint32_t from) {
  abi::Rule unconfirmed = rule;
  unconfirmed.confirm = unconfirmed.clock = {};
  unconfirmed.length_count = 0;
  std::vector<uint32_t> candidates;
  Feeder feeder(stream, occurrences, unconfirmed, from);
  for (uint32_t i : feeder.calls()) {
    if ((feeder.Feed(i) & abi::kMatchedBoundary) != 0) candidates.push_back(i);
  }
  return candidates;
}

uint32_t WatchedOps(const abi::Rule& rule) {
  uint32_t ops = 0;
  for (const abi::EventPattern& pattern : PatternsOf(rule)) {
    if (pattern.op == 0) continue;
    ops |= 1u << pattern.op;
    if (LooksBack(pattern)) ops |= 1u << pattern.previous_op;
    // A group ends with a launch, or, between the upload of the parameters and that of the first
    // batch, often with only a memset.
    if ((pattern.match & abi::kMatchNotPrevious) != 0) {
      ops |= 1u << static_cast<uint8_t>(abi::Op::kMemset);
      ops |= 1u << static_cast<uint8_t>(abi::Op::kLaunch);
    }
  }
  return ops;
}

}  // namespace seqpoint::iterations
