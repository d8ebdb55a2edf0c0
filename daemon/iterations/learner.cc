#include "daemon/iterations/learner.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"

namespace seqpoint::iterations {
namespace {

constexpr size_t kFirstAnalysis = 64;
// Growth of the stream between analyses, and between the two that must agree on a rule.
constexpr double kGrowth = 2;
constexpr double kWaitGrowth = 1.25;  // while micro-batches may still show
constexpr double kConfirmGrowth = 1.4;
constexpr double kConfirmGrowthWithoutHost = 6;
constexpr size_t kTimesWithoutHost = 10;  // times as many iterations
// Optimiser steps after which accumulation is certainly found, and iterations after which a loop
// with fewer steps has no micro-batches.
constexpr uint32_t kClearSteps = 5;
constexpr uint64_t kMaxMicroBatches = 72;

// Whether these iterations may be micro-batches whose steps were not seen often enough.
bool MayBeMicroBatches(const LearnedRule& learned) {
  // Also where its layers were taken for micro-batches.
  if (learned.loop.batches_uneven && learned.iterations < kMaxMicroBatches) return true;
  if (learned.micro_batches > 1) return false;
  if (learned.loop.graph_period_unsure) return true;
  if (learned.loop.rare_ends > 0) {
    return learned.loop.rare_ends < kClearSteps &&
           learned.iterations < kClearSteps * kMaxMicroBatches;
  }
  return learned.loop.first_differs && learned.iterations < kMaxMicroBatches;
}

// Whether the loop iterations are the same few kernels each time: a stream of any length does not
// show whether they are iterations of a small network or parts of an iteration.
bool IsOpen(const Loop& loop) {
  return (loop.host_share < 0.5 || loop.outer_unsure) && !loop.sizes_vary &&
         loop.group_weight < kWholeNetwork;
}

// More verified loop iterations, a clear start and a heavy group make it likelier that the next
// thousand iterations will be found exactly.
double Confidence(uint32_t verified, const Loop& loop) {
  const double iterations = 1 - std::exp(-static_cast<double>(verified) / 4);
  const double begin = 0.85 + 0.15 * std::min(1.0, loop.start_margin / 2);
  const double group = loop.group_weight >= 4 ? 1 : 0.9;
  const double readings = loop.shares_batches || loop.copy_alone || IsOpen(loop) ? 0.5 : 1;
  return iterations * begin * group * readings;
}

}  // namespace

IterationLearner::IterationLearner(LearnerOptions options)
    : options_(options), stream_(options.max_calls), next_analysis_(kFirstAnalysis) {}

bool IterationLearner::AddCall(const abi::CallRecord& call) {
  stream_.Add(call);
  if (published_) return false;
  if (call.op == static_cast<uint8_t>(abi::Op::kMark) && ++marks_ == options_.min_marks) {
    next_analysis_ = Seen();
  }
  if (call.op == static_cast<uint8_t>(abi::Op::kStep) && ++steps_ == options_.min_steps) {
    next_analysis_ = Seen();
  }
  if (!Due()) return false;
  RunAnalysis();
  return true;
}

void IterationLearner::AddGpuStart(uint32_t correlation_id, uint64_t start_ns) {
  if (start_ns == 0 || published_) return;
  if (gpu_starts_.size() < kMaxStamps) gpu_starts_.try_emplace(correlation_id, start_ns);
}

std::optional<LearnedRule> IterationLearner::Analyse() const {
  std::vector<ReplayedIteration> iterations;
  std::optional<LearnedRule> learned = FindRule(2, &iterations);
  if (!learned) return std::nullopt;
  // A few unsure loop iterations do no harm; thousands do.
  if (learned->iterations >= kTimesWithoutHost * options_.min_iterations &&
      MayBeTimeSteps(*learned)) {
    return std::nullopt;
  }
  AddLengths(iterations, &*learned);
  return learned;
}

// Finds all of a rule except the lengths.
std::optional<LearnedRule> IterationLearner::FindRule(
    size_t min_iterations, std::vector<ReplayedIteration>* iterations) const {
  LearnedRule learned;
  std::optional<ChosenRule> chosen;
  std::string unless;
  if (marks_ >= 2) {
    chosen = ChooseMarkRule(stream_, 2);
    learned.evidence = "the job marks its iterations itself";
  }
  if (!chosen && steps_ >= 2) {
    chosen = ChooseFrameworkRule(stream_);
    learned.evidence = "the framework marks its forward passes and optimiser steps";
  }
  if (chosen) {
    learned.confidence = 1;
    learned.loop.host_share = 1;
  } else {
    const Occurrences occurrences(stream_);
    std::optional<Loop> loop = FindLoop(stream_, occurrences, min_iterations);
    if (!loop) return std::nullopt;
    chosen = ChooseRule(stream_, occurrences, *loop);
    if (!chosen) return std::nullopt;
    learned.confidence = Confidence(chosen->verified_iterations, *loop);
    learned.evidence = loop->evidence;
    if (loop->copy_alone) {
      unless = absl::StrCat(", unless each of the ", loop->iterations_per_batch,
                            " repeats behind it is an iteration, as nothing but the copy tells");
    }
    if (loop->shares_batches) {
      absl::StrAppend(&learned.evidence,
                      "; several iterations of this loop share a copied "
                      "batch, and may make one iteration");
    }
    learned.open = IsOpen(*loop);
    learned.loop = *std::move(loop);
  }
  learned.rule = chosen->rule;
  learned.boundary_words = absl::StrCat(chosen->boundary_words, unless);
  learned.iterations = chosen->iterations.size();
  learned.micro_batches = chosen->micro_batches;
  learned.evaluation_seen = chosen->evaluation_seen;
  *iterations = std::move(chosen->iterations);
  return learned;
}

void IterationLearner::AddLengths(const std::vector<ReplayedIteration>& iterations,
                                  LearnedRule* learned) const {
  learned->features = MakeFeatures(stream_, iterations, learned->micro_batches, gpu_starts_);
  learned->lengths = ChooseLengths(learned->features);
  learned->length_words = learned->lengths.words;
  learned->rule.length_count = static_cast<uint32_t>(learned->lengths.sources.size());
  for (size_t i = 0; i < learned->lengths.sources.size(); ++i) {
    learned->rule.length[i] = learned->features.sources[learned->lengths.sources[i]];
  }
  const uint32_t watched = std::exchange(learned->rule.watched_ops, WatchedOps(learned->rule));
  const auto looks_back = [](const abi::EventPattern& p) { return p.match & abi::kMatchPrevious; };
  if (learned->rule.watched_ops == watched ||
      (!looks_back(learned->rule.boundary) && !looks_back(learned->rule.step))) {
    return;
  }
  // A copy that is watched for its bytes may stand where the rule expects a launch.
  const Occurrences occurrences(stream_);
  const auto from = static_cast<uint32_t>(stream_.after_hole());
  if (Replay(stream_, occurrences, learned->rule, from).size() == iterations.size()) return;
  learned->features = {};
  learned->lengths = {};
  learned->length_words = "";
  learned->rule.length_count = 0;
  learned->rule.watched_ops = watched;
}

// Whether this rule finds the same iterations as the last one: the same end of a step, and one
// start in each iteration. The event at the start may be another one.
bool IterationLearner::SameIterations(const abi::Rule& rule,
                                      const std::vector<ReplayedIteration>& iterations) const {
  if (!last_found_ || last_starts_.size() < 3) return false;
  const abi::EventPattern& step = last_found_->rule.step;
  if (step.op != rule.step.op || step.name_hash != rule.step.name_hash) return false;
  auto it = iterations.begin();
  const auto begin = [&] { return stream_.calls()[it->begin].sequence; };
  if (it == iterations.end()) return false;
  // The older ones may have been dropped from the stream.
  const auto known = std::upper_bound(last_starts_.begin(), last_starts_.end(), begin());
  auto i = static_cast<size_t>(known - last_starts_.begin());
  if (i + 2 > last_starts_.size()) return false;
  while (it != iterations.end() && begin() <= last_starts_[i]) ++it;
  for (++i; i + 1 < last_starts_.size(); ++i) {
    size_t inside = 0;
    for (; it != iterations.end() && begin() <= last_starts_[i]; ++it) ++inside;
    if (inside != 1) return false;
  }
  return true;
}

// Without a call of the host in each loop iteration it may be a loop over time steps or layers. No
// number of equal loop iterations shows which, because the first iteration alone may have
// thousands.
bool IterationLearner::MayBeTimeSteps(const LearnedRule& learned) const {
  if (learned.open) return true;
  if (learned.loop.host_share >= 0.5 || learned.loop.sizes_vary) return false;
  return Seen() < (learned.loop.others_pending ? options_.min_launch_only_calls_unsure
                                               : options_.min_launch_only_calls);
}

// Whether more iterations may improve the choice of lengths that a framework gave and few times
// judged.
bool IterationLearner::MayTellMore(const LearnedRule& learned) const {
  const LengthChoice& lengths = learned.lengths;
  return (!lengths.judged || lengths.explained < options_.clear_lengths) &&
         steps_ < options_.more_steps &&
         stream_.calls().back().api_ns - stream_.calls()[0].api_ns < options_.more_steps_ns;
}

void IterationLearner::RunAnalysis() {
  const size_t size = stream_.size();
  const uint64_t seen = Seen();
  // The number of calls at which the stream will have grown by `factor`, or, once it is full, at
  // which a quarter of it is new.
  const auto grown = [&](double factor) {
    const double more = std::min((factor - 1) * static_cast<double>(size),
                                 static_cast<double>(options_.max_calls) / 4);
    return seen + static_cast<uint64_t>(more) + 1;
  };
  std::vector<ReplayedIteration> iterations;
  std::optional<LearnedRule> found = FindRule(3, &iterations);
  if (!found) {
    last_found_.reset();
    next_analysis_ = grown(kGrowth);
    return;
  }
  const auto op = static_cast<abi::Op>(found->rule.boundary.op);
  const bool nvtx = op == abi::Op::kNvtxPush || op == abi::Op::kNvtxMark;
  const bool framework = op == abi::Op::kForward;
  const bool mark = op == abi::Op::kMark || framework;
  const bool host = mark || found->loop.host_share >= 0.5;
  const size_t wanted = framework ? options_.min_steps - 2
                        : mark    ? options_.min_marks - 1
                        : !host   ? kTimesWithoutHost * options_.min_iterations
                        : nvtx    ? options_.min_iterations_nvtx
                                  : options_.min_iterations;
  const double growth = host ? kConfirmGrowth : kConfirmGrowthWithoutHost;
  const bool same = SameIterations(found->rule, iterations);
  // The period of graphs is certain the first time that it shows.
  const bool agrees = mark || found->loop.graph_period > 1 ||
                      (same && seen >= confirm_at_ && !MayBeTimeSteps(*found));
  const bool waits = MayBeMicroBatches(*found);
  const bool graphs = found->loop.graph_period > 0;
  const bool open = found->open;
  const uint64_t its = found->iterations;
  if (agrees && found->iterations >= wanted && !waits) {
    AddLengths(iterations, &*found);
    if (framework && MayTellMore(*found)) {
      next_analysis_ = grown(kWaitGrowth);
      return;
    }
    published_ = std::move(found);
    return;
  }
  // Analyse again when there should be enough iterations, and not before the stream has grown
  // enough for the two analyses to differ. Streams of graphs are short.
  const double per_iteration =
      static_cast<double>(size - stream_.after_hole()) / static_cast<double>(found->iterations + 1);
  const size_t missing = wanted - std::min<size_t>(found->iterations, wanted);
  const uint64_t enough =
      host ? seen + static_cast<uint64_t>(per_iteration * (static_cast<double>(missing) + 0.5))
           : grown(kGrowth);
  if (!same) {
    last_starts_.clear();
    for (const ReplayedIteration& it : iterations) {
      last_starts_.push_back(stream_.calls()[it.begin].sequence);
    }
    confirm_at_ = grown(growth);
  }
  // The loop that was found first may not have been open, or less of it was known.
  if (!same || open) last_found_ = std::move(found);
  if (open) {
    next_analysis_ = 2 * seen;  // not at each new quarter of a full stream
  } else if (waits && graphs) {
    next_analysis_ = grown(kWaitGrowth);
  } else if (waits) {
    const double more = static_cast<double>(kMaxMicroBatches) - static_cast<double>(its) + 0.5;
    next_analysis_ = grown(kGrowth);
    if (more > 0) {
      next_analysis_ = std::min(next_analysis_, seen + static_cast<uint64_t>(per_iteration * more));
    }
  } else {
    next_analysis_ = std::min(std::max(confirm_at_, enough), grown(kGrowth));
  }
}

std::string IterationLearner::Explanation() const {
  if (published_) return "";
  if (stream_.size() < kFirstAnalysis) {
    return absl::StrCat("too few calls were seen (", stream_.size(),
                        "); a dozen iterations are needed");
  }
  if (!last_found_) {
    return absl::StrCat("no calls take turns regularly in the last ", stream_.size(),
                        " calls: the training loop has not begun, or its iterations have nothing "
                        "in common; mark them with seqpoint_iteration_begin or an NVTX range");
  }
  if (last_found_->open) {
    const uint32_t calls = last_found_->loop.group_weight;
    const uint32_t shared = last_found_->loop.iterations_per_batch;
    return absl::StrCat(
        "what repeats ", last_found_->iterations, " times is ",
        calls == 1 ? "one call" : absl::StrCat(calls, " different calls"),
        calls == 1 ? " that copies no batch" : " that copy no batch",
        shared == 0 ? "" : absl::StrCat(" (one is copied for ", shared, " of them)"),
        ": each may be an iteration, or ", shared == 0 ? "several" : absl::StrCat(shared),
        " may be the layers or time steps of one; mark iterations with seqpoint_iteration_begin");
  }
  if (MayBeTimeSteps(*last_found_)) {
    return absl::StrCat("what repeats ", last_found_->iterations,
                        " times launches alone and may be the time steps of one long iteration; "
                        "it is taken for iterations after ",
                        last_found_->loop.others_pending ? options_.min_launch_only_calls_unsure
                                                         : options_.min_launch_only_calls,
                        " calls; mark iterations with seqpoint_iteration_begin to have them now");
  }
  return absl::StrCat("a loop of ", last_found_->iterations, " iterations was found; at least ",
                      options_.min_iterations, " are needed, in two looks that agree");
}

void IterationLearner::Restart() {
  stream_.ClearCalls();
  gpu_starts_.clear();
  published_.reset();
  last_found_.reset();
  last_starts_.clear();
  confirm_at_ = 0;
  next_analysis_ = kFirstAnalysis;
  marks_ = 0;
  steps_ = 0;
}

}  // namespace seqpoint::iterations
