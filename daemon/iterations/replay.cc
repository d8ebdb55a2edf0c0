#include "daemon/iterations/replay.h"

namespace seqpoint::iterations {

std::vector<ReplayedIteration> Replay(const CallStream& stream, const abi::Rule& rule,
                                      uint32_t from) {
  std::vector<ReplayedIteration> done;
  abi::Matcher matcher(rule);
  ReplayedIteration open;
  bool ended = true;  // the last of `done` has its end
  bool end_timed = true;
  const std::vector<abi::CallRecord>& calls = stream.calls();
  for (uint32_t i = from; i < calls.size(); ++i) {
    if ((rule.watched_ops >> (calls[i].op & 31) & 1) == 0) continue;
    const uint32_t flags = matcher.OnEvent(ToMatchEvent(calls[i], stream.names()));
    if (flags == 0) continue;
    const abi::MatchResult& result = matcher.result();
    if ((flags & abi::kMatchedStep) != 0) {
      open.step = i;
      open.length[0] = result.step_length[0];
      open.length[1] = result.step_length[1];
      open.valid = result.step_valid;
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
      open.micro_steps.push_back(i);
    }
    if ((flags & abi::kMatchedMicroStep) != 0) open.micro_steps.push_back(i);
    if ((flags & abi::kMatchedClock) != 0) {
      if (!end_timed) done.back().end_clock = i;
      end_timed = true;
      open.clock = i;
    }
  }
  if (!ended) done.pop_back();
  return done;
}

std::vector<uint32_t> Candidates(const CallStream& stream, const abi::Rule& rule, uint32_t from) {
  abi::Rule unconfirmed = rule;
  unconfirmed.confirm = unconfirmed.clock = {};
  unconfirmed.length_count = 0;
  std::vector<uint32_t> candidates;
  abi::Matcher matcher(unconfirmed);
  const std::vector<abi::CallRecord>& calls = stream.calls();
  for (uint32_t i = from; i < calls.size(); ++i) {
    if ((rule.watched_ops >> (calls[i].op & 31) & 1) == 0) continue;
    if ((matcher.OnEvent(ToMatchEvent(calls[i], stream.names())) & abi::kMatchedBoundary) != 0) {
      candidates.push_back(i);
    }
  }
  return candidates;
}

uint32_t WatchedOps(const abi::Rule& rule) {
  uint32_t ops = 0;
  const auto add = [&ops](const abi::EventPattern& pattern) {
    if (pattern.op == 0) return;
    ops |= 1u << pattern.op;
    if ((pattern.match & (abi::kMatchPrevious | abi::kMatchNotPrevious)) != 0) {
      ops |= 1u << pattern.previous_op;
    }
    // Between the upload of the parameters and that of the first batch there is often nothing but a
    // memset.
    if ((pattern.match & abi::kMatchNotPrevious) != 0) {
      ops |= 1u << static_cast<uint8_t>(abi::Op::kMemset);
    }
  };
  add(rule.boundary);
  add(rule.confirm);
  add(rule.step);
  add(rule.clock);
  for (uint32_t i = 0; i < rule.length_count; ++i) add(rule.length[i].pattern);
  return ops;
}

}  // namespace seqpoint::iterations
