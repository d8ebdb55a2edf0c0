#include "daemon/queries/rank_what_if.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/base/status_macros.h"
#include "daemon/jobs/figures.h"
#include "daemon/queries/errors.h"
#include "daemon/queries/rank_steps.h"
#include "daemon/queries/rank_windows.h"
#include "daemon/ranks/rank_count.h"
#include "daemon/ranks/rank_recording.h"
#include "daemon/seqpoint/interval.h"

namespace seqpoint::queries {
namespace {

struct Replayed {
  double before_ns = 0, after_ns = 0;
};

// The share of the time that is saved, from iterations drawn from the run: a ratio of sums.
// `left_out`: the index of one that does not count; their number: all count.
double SavedShare(const std::vector<Replayed>& replayed, size_t left_out) {
  double saved = 0, before = 0;
  for (size_t i = 0; i < replayed.size(); ++i) {
    if (i == left_out) continue;
    saved += replayed[i].before_ns - replayed[i].after_ns;
    before += replayed[i].before_ns;
  }
  return before > 0 ? saved / before : 0;
}

// With the standard error of the jackknife.
Estimate SavedShareOf(const std::vector<Replayed>& replayed, double confidence) {
  const double share = SavedShare(replayed, replayed.size());
  if (replayed.size() < 2) return {share, std::min(0.0, share), std::max(2 * share, 0.0)};
  const auto count = static_cast<double>(replayed.size());
  double squares = 0;
  for (size_t i = 0; i < replayed.size(); ++i) {
    squares += std::pow(SavedShare(replayed, i) - share, 2);
  }
  const double error = std::sqrt(squares * (count - 1) / count);
  const double half = error * StudentQuantile(confidence, count - 1);
  return {share, share - half, share + half};
}

// Two answers are equally likely: the one in the middle, whose interval holds both.
Estimate MeetHalfway(const Estimate& one, const Estimate& other) {
  const double more = (other.value - one.value) / 2, wider = std::abs(more);
  return {one.value + more, one.low + more - wider, one.high + more + wider};
}

// Both, each with its own error.
Estimate Sum(const Estimate& a, const Estimate& b) {
  const double value = a.value + b.value;
  return {value, value - std::hypot(a.value - a.low, b.value - b.low),
          value + std::hypot(a.high - a.value, b.high - b.value)};
}

struct Recorded {
  std::vector<ranks::RankRecording> recordings;
  // The same; what tracing cost is taken off the calls there, and off what is between them here.
  std::vector<ranks::RankRecording> others;
  double replay_error = 0;  // of all, as they were recorded
  std::string price;        // of tracing, in words; empty: it is not known
  std::set<std::string> mismatches;
};

// 0: not known.
absl::StatusOr<double> UsualStepNs(Store& store, const jobs::Snapshot& snapshot, int64_t number) {
  const jobs::SnapshotData& job = snapshot.data();
  SEQPOINT_ASSIGN_OR_RETURN(const auto rows,
                            ReadRows(store, job.job_id, kStepsRank, number, number));
  const auto row = rows.find(number);
  // A rule that was learned again counts other lengths.
  if (row == rows.end() || row->second.length_count != job.dimensions ||
      number < job.engine.closed_iterations()) {
    return 0;
  }
  return snapshot.UsualStepTime({row->second.length[0], row->second.length[1]});
}

double ReplayError(const std::vector<ranks::RankRecording>& recordings) {
  double replayed_ns = 0, measured_ns = 0;
  for (const ranks::RankRecording& recorded : recordings) {
    double slowest_ns = 0;
    for (const ranks::RankProfile& profile : recorded.profiles) {
      slowest_ns = std::max(slowest_ns, profile.time.iteration_ns);
    }
    replayed_ns += recorded.IterationNs(recorded.recording.graphs);
    measured_ns += slowest_ns;
  }
  return measured_ns > 0 ? replayed_ns / measured_ns - 1 : 0;
}

// `usual_ns`: of each recording.
void TakeTracingOff(const std::vector<double>& usual_ns, Recorded* read) {
  read->others = read->recordings;
  std::vector<whatif::Untraced> untraced, others;
  for (size_t i = 0; i < usual_ns.size(); ++i) {
    if (!(usual_ns[i] > 0)) continue;
    ranks::RankRecording& recorded = read->recordings[i];
    untraced.push_back({&recorded.recording, recorded.counted, usual_ns[i]});
    others.push_back({&read->others[i].recording, recorded.counted, usual_ns[i]});
  }
  const double by_ns = whatif::TakeTracingOff(untraced, others);
  if (by_ns > 0) read->price = whatif::TracingInWords(by_ns);
}

absl::StatusOr<Recorded> ReadRecordings(Store& store, const jobs::Snapshot& snapshot,
                                        Cancelled cancelled) {
  const jobs::SnapshotData& job = snapshot.data();
  SEQPOINT_ASSIGN_OR_RETURN(const auto pieces, store.ListTraces(job.job_id));
  StoredWindows reader(&store, StoredWindows::Names::kDemangled);
  Recorded read;
  std::vector<double> usual_ns;
  int alone = 0;
  for (const auto& [number, ranks] : SharedIterations(pieces)) {
    SEQPOINT_RETURN_IF_ERROR(CheckAsked(cancelled));
    if (ranks.size() < job.ranks.size()) continue;
    SEQPOINT_ASSIGN_OR_RETURN(const RankWindows windows,
                              ReadRankWindows(store, job, number, ranks, &reader));
    if (windows.windows.size() < job.ranks.size()) continue;
    const ranks::WindowJoin join = ranks::JoinWindows(windows.windows);
    read.mismatches.insert(join.mismatches.begin(), join.mismatches.end());
    if (join.TooManyAlone()) {
      ++alone;
      continue;
    }
    read.recordings.push_back(ranks::RecordRanks(windows.windows, join));
    SEQPOINT_ASSIGN_OR_RETURN(usual_ns.emplace_back(), UsualStepNs(store, snapshot, number));
  }
  if (alone > 0) {
    read.mismatches.insert(
        absl::StrCat(alone,
                     " iterations that all ranks traced are left out: more than 1 in 20 of their "
                     "collectives are of one rank alone"));
  }
  if (read.recordings.empty() && alone > 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "job \"", job.name, "@", job.run_id, "\": ", absl::StrJoin(read.mismatches, "; ")));
  }
  if (read.recordings.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("job \"", job.name, "@", job.run_id,
                     "\": no iteration was traced by all ranks: that takes NCCL 2.27 or later, "
                     "several ranks, and "
                     "some iterations (seqpoint ranks)"));
  }
  read.replay_error = ReplayError(read.recordings);
  TakeTracingOff(usual_ns, &read);
  return read;
}

// With all changes.
struct ChangedRanks {
  std::vector<Replayed> replayed;
  std::vector<std::string> assumptions;
  bool applies = false;
};

absl::StatusOr<ChangedRanks> ReplayChanged(const std::vector<ranks::RankRecording>& recordings,
                                           const std::vector<ranks::RankChange>& changes,
                                           Cancelled cancelled) {
  ChangedRanks changed;
  // Iterations differ in the numbers of their assumptions: those of the first one are shown.
  std::set<std::string> words_seen;
  for (const ranks::RankRecording& recorded : recordings) {
    SEQPOINT_RETURN_IF_ERROR(CheckAsked(cancelled));
    std::vector<const ranks::RankRecording*> others;
    for (const ranks::RankRecording& other : recordings) {
      if (&other != &recorded) others.push_back(&other);
    }
    std::vector<whatif::Graph> graphs = recorded.recording.graphs;
    for (const ranks::RankChange& change : changes) {
      SEQPOINT_ASSIGN_OR_RETURN(const ranks::RankEffect effect,
                                ranks::ApplyToRanks(change, recorded, others, &graphs));
      for (const std::string& text : effect.assumptions) {
        std::string words = text;
        std::erase_if(words, [](char c) { return c >= '0' && c <= '9'; });
        if (words_seen.insert(words).second) changed.assumptions.push_back(text);
      }
      changed.applies |= effect.tasks > 0;
    }
    changed.replayed.push_back(
        {recorded.IterationNs(recorded.recording.graphs), recorded.IterationNs(graphs)});
  }
  return changed;
}

// The changes that depend on which rank is the last one of an iteration.
struct OtherLastRank {
  Estimate share;                 // that is saved
  std::string assumption, basis;  // empty: the last rank stays the same
  bool equal_lengths = false;
};

absl::StatusOr<OtherLastRank> WaitForLast(Store& store, const jobs::Snapshot& snapshot,
                                          const ranks::RankChange& change, double run_iterations,
                                          double confidence, Cancelled cancelled) {
  if (const std::string& why = snapshot.data().unmatched; !why.empty()) {
    return NoAnswer(snapshot.data(), why);
  }
  SEQPOINT_ASSIGN_OR_RETURN(const auto steps, ReadRankSteps(store, snapshot, cancelled));
  const bool balances = change.kind == ranks::RankChangeKind::kBalanceLengths;
  SEQPOINT_ASSIGN_OR_RETURN(const ranks::LastRank last,
                            balances
                                ? ranks::WithEqualLengths(steps, run_iterations, confidence)
                                : ranks::WithOtherCount(steps, static_cast<size_t>(change.value),
                                                        run_iterations, confidence));
  const Estimate of_lengths = {1 - last.lengths, 1 - last.lengths - last.lengths_error,
                               1 - last.lengths + last.lengths_error};
  const Estimate of_chance = {last.lengths * (1 - last.chance.value),
                              last.lengths * (1 - last.chance.high),
                              last.lengths * (1 - last.chance.low)};
  OtherLastRank other;
  other.share = Sum(of_lengths, of_chance);
  other.equal_lengths = last.equal_lengths;
  other.assumption =
      absl::StrCat("the last rank is late as if each rank were late by itself",
                   balances || last.equal_lengths ? "" : ", and drew its lengths by itself",
                   "; the interval reaches to where all are late together");
  other.basis = absl::StrCat("which rank is the last one, from ", steps.size(), " iterations; ");
  return other;
}

// Other numbers of ranks change transfers of gradients and work on shards. That does not depend on
// the lengths: it is a time in each iteration, no share of it.
void MoveToMean(double mean_ns, std::vector<Replayed>* replayed) {
  for (Replayed& one : *replayed) {
    one = {.before_ns = mean_ns, .after_ns = mean_ns + one.after_ns - one.before_ns};
  }
}

Estimate TimeBefore(const Projection& time) { return time.total ? *time.total : *time.so_far; }
int64_t IterationsOf(const Projection& time) {
  return time.total ? time.iterations_total : time.iterations_so_far;
}

// Fills what all answers have. `saved_share`: of the time before.
void Answer(const jobs::SnapshotData& job, const Projection& time, const Estimate& saved_share,
            const v1::WhatIfRequest& request, v1::WhatIfReply* reply, v1::WhatIfAnswer* answer) {
  std::vector<std::string> names;
  for (const v1::WhatIfChange& requested : request.changes()) names.push_back(requested.preset());
  answer->set_name(absl::StrJoin(names, " + "));
  const Estimate before = TimeBefore(time);
  const Estimate saved = {saved_share.value * before.value, saved_share.low * before.value,
                          saved_share.high * before.value};
  const double half = (before.high - before.low) / 2 * (1 - saved_share.value);
  const Estimate after = Sum({before.value, before.value - half, before.value + half},
                             {-saved.value, -saved.high, -saved.low});
  jobs::SetEstimate(before, answer->mutable_before());
  jobs::SetEstimate({after.value, std::max(0.0, after.low), after.high}, answer->mutable_after());
  jobs::SetDifference(saved, answer->mutable_saved());
  reply->set_confidence(request.confidence());
  reply->set_whole_run(time.total.has_value());
  reply->set_iterations(IterationsOf(time));
  *reply->mutable_losses() = job.losses;
  reply->set_clock_kind(job.clock_kind);
}

absl::StatusOr<v1::WhatIfReply> BalancedLengths(const jobs::Snapshot& snapshot, Store& store,
                                                const ranks::RankChange& change,
                                                const Projection& time,
                                                const v1::WhatIfRequest& request,
                                                Cancelled cancelled) {
  const jobs::SnapshotData& job = snapshot.data();
  if (job.dimensions == 0) {
    return NoAnswer(job, "the lengths of the ranks' batches are not known");
  }
  SEQPOINT_ASSIGN_OR_RETURN(
      const OtherLastRank last,
      WaitForLast(store, snapshot, change, static_cast<double>(IterationsOf(time)),
                  request.confidence(), cancelled));
  v1::WhatIfReply reply;
  v1::WhatIfAnswer& answer = *reply.add_answers();
  answer.set_title("the run's iterations, with the lengths of all ranks");
  answer.set_applies(!last.equal_lengths);
  answer.set_assumption(
      absl::StrCat("the same batches, dealt so that all ranks of an iteration have equal lengths; ",
                   last.assumption));
  Answer(job, time, last.share, request, &reply, &answer);
  reply.set_basis(absl::StrCat(last.basis, time.basis));
  return reply;
}

}  // namespace

absl::StatusOr<std::vector<ranks::RankChange>> ParseRankChanges(const v1::WhatIfRequest& request) {
  std::vector<ranks::RankChange> changes;
  for (const v1::WhatIfChange& requested : request.changes()) {
    auto change = ranks::ParseRankChange(requested.preset());
    if (change.ok()) changes.push_back(*change);
  }
  if (!changes.empty() && static_cast<int>(changes.size()) < request.changes_size()) {
    return absl::InvalidArgumentError(
        "changes: those of all ranks (without-slow-rank, balance-lengths, bucket-size, bandwidth, "
        "ranks) cannot be combined with others; ask for each kind apart");
  }
  return changes;
}

absl::StatusOr<v1::WhatIfReply> RankWhatIf(const jobs::Snapshot& snapshot, Store& store,
                                           const std::vector<ranks::RankChange>& changes,
                                           const v1::WhatIfRequest& request, Cancelled cancelled) {
  const jobs::SnapshotData& job = snapshot.data();
  const Projection time = jobs::ProjectTime(job, request.confidence());
  if (!time.so_far && !time.total) {
    return NoAnswer(job, "no iteration has a time that a change could save");
  }
  const ranks::RankChange* of_last = nullptr;
  for (const ranks::RankChange& change : changes) {
    const bool balances = change.kind == ranks::RankChangeKind::kBalanceLengths;
    if (balances && changes.size() == 1) {
      return BalancedLengths(snapshot, store, change, time, request, cancelled);
    }
    if (balances || (of_last != nullptr && change.kind == ranks::RankChangeKind::kRanks)) {
      return absl::InvalidArgumentError(
          "changes: balance-lengths cannot be combined with others, nor ranks with itself; ask for "
          "each apart");
    }
    if (change.kind == ranks::RankChangeKind::kRanks) of_last = &change;
  }
  SEQPOINT_ASSIGN_OR_RETURN(const Recorded read, ReadRecordings(store, snapshot, cancelled));
  SEQPOINT_ASSIGN_OR_RETURN(ChangedRanks changed,
                            ReplayChanged(read.recordings, changes, cancelled));
  SEQPOINT_ASSIGN_OR_RETURN(ChangedRanks other, ReplayChanged(read.others, changes, cancelled));
  OtherLastRank last;
  if (of_last != nullptr) {
    const auto iterations = static_cast<double>(IterationsOf(time));
    SEQPOINT_ASSIGN_OR_RETURN(
        last, WaitForLast(store, snapshot, *of_last, iterations, request.confidence(), cancelled));
    changed.assumptions.push_back(last.assumption);
    MoveToMean(TimeBefore(time).value / iterations, &changed.replayed);
    MoveToMean(TimeBefore(time).value / iterations, &other.replayed);
  }
  v1::WhatIfReply reply;
  v1::WhatIfAnswer& answer = *reply.add_answers();
  answer.set_title("the iterations that all ranks traced together, replayed with the change");
  answer.set_applies(changed.applies);
  answer.set_assumption(absl::StrJoin(changed.assumptions, "; "));
  for (const std::string& mismatch : read.mismatches) answer.add_warnings(mismatch);
  const Estimate replayed = MeetHalfway(SavedShareOf(changed.replayed, request.confidence()),
                                        SavedShareOf(other.replayed, request.confidence()));
  // The replay with the change may be off by as much as the one without it.
  const double off = std::abs(read.replay_error * replayed.value);
  Answer(job, time, Sum(Sum(replayed, {0, -off, off}), last.share), request, &reply, &answer);
  reply.set_traces(static_cast<int32_t>(read.recordings.size()));
  reply.set_replay_error(read.replay_error);
  reply.set_basis(absl::StrCat(read.recordings.size(), " iterations that all ", job.ranks.size(),
                               " ranks traced together, taken as drawn from the run; ", read.price,
                               read.price.empty() ? "" : "; ", last.basis, time.basis));
  return reply;
}

}  // namespace seqpoint::queries
