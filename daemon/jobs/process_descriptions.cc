#include "daemon/jobs/process_descriptions.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "daemon/base/saturate.h"
#include "daemon/jobs/hello.h"
#include "daemon/jobs/process.h"
#include "daemon/ranks/rank_question.h"

namespace seqpoint::jobs {
namespace {

// Both begin with the level that is off, and are in the same order up to tracing.
v1::Level ToProtoLevel(uint8_t level) {
  static_assert(static_cast<int>(abi::Level::kTrace) + 1 == v1::LEVEL_TRACE);
  return level <= static_cast<uint8_t>(abi::Level::kTrace) ? static_cast<v1::Level>(level + 1)
                                                           : v1::LEVEL_OFF;
}

v1::ClockKind ToProtoClockKind(uint32_t clock_kind) {
  return static_cast<v1::ClockKind>(std::min<uint32_t>(clock_kind, v1::CLOCK_KIND_FOREIGN));
}

}  // namespace

std::string UncountedInWords(const ProcessTable& processes, const RankTable& ranks) {
  const Process* first = nullptr;
  int64_t others = -1;
  for (const auto& [id, process] : processes) {
    if (!process->uncounted() || process->state.concurrent()) continue;
    if (first == nullptr) first = process.get();
    ++others;
  }
  if (first == nullptr) return "";
  constexpr absl::string_view kFull =
      ", since its ring was full (give the daemon processor time, or a larger ring to the program: "
      "SEQPOINT_RING_BYTES)";
  std::vector<std::string> why;
  const bool between = first->state.missing_calls() > 0 && first->state.losses().ring_dropped() > 0;
  if (between) {
    why.push_back(absl::StrCat("lost ", first->state.missing_calls(),
                               first->state.missing_calls() == 1 ? " call" : " calls",
                               " while its iterations were counted by them", kFull));
  }
  if (first->state.lost_batches() > 0) {
    why.emplace_back("was not heard of since reports of its node were lost");
  } else if (first->state.unread()) {
    why.emplace_back(first->alive() ? "has not come back since the daemon was started again"
                                    : "ended while no daemon read it");
  } else if (!between) {
    why.push_back(absl::StrCat("lost its last records", kFull));
  }
  // Iterations whose records were lost between others are counted, too.
  uint64_t counted = first->state.iterations() + first->builder.lost_iterations();
  if (const int64_t next = ranks.NextNumber(first->row.rank); next > 0) {
    counted = std::max(first->state.iterations(), std::min(counted, static_cast<uint64_t>(next)));
  }
  return absl::StrCat(
      "rank ", first->row.rank, ": process ", first->row.pid, " ", absl::StrJoin(why, " and "),
      others == 0 ? "" : absl::StrCat(", and ", others, others == 1 ? " other" : " others"), "; ",
      between ? "what it did beside" : "what it did after", " the ", counted,
      counted == 1 ? " iteration" : " iterations",
      " that are counted is in no figure: counts and sums are lower bounds");
}

std::string LostBatchesInWords(const ProcessTable& processes, bool has_rule) {
  std::map<std::string_view, int64_t> of_nodes;
  bool silent = false;
  std::set<int32_t> ranks;
  for (const auto& [id, process] : processes) {
    if (process->state.lost_batches() == 0) continue;
    // "node ID PROCESS": of those of a node the oldest saw most.
    const std::string_view identity = process->row.identity;
    int64_t& of_node = of_nodes[identity.substr(0, identity.rfind(' '))];
    of_node = std::max(of_node, process->state.lost_batches());
    if (process->alive() && process->state.missing_events()) silent = true;
    ranks.insert(process->row.rank);
  }
  if (ranks.empty()) return "";
  int64_t batches = 0;
  for (const auto& [node, count] : of_nodes) batches += count;
  return absl::StrCat(
      batches, batches == 1 ? " batch" : " batches", " of reports of ",
      ranks::RanksInWords({ranks.begin(), ranks.end()}), " never came to this hub: ",
      has_rule ? "iterations of that time have no lengths, times or counters here"
               : "where iterations begin was in one of them, and none is counted here since then; "
                 "the daemons of the nodes have them",
      silent ? "; a process that ended then counts as running: 10 minutes after its last report "
               "`seqpoint control JOB end` ends it"
             : "");
}

std::string OvercountedInWords(const ProcessTable& processes) {
  for (const auto& [id, process] : processes) {
    const v1::Feature* const feature = process->FindFeature(abi::Feature::kEvaluation);
    if (feature == nullptr || feature->state() != v1::FEATURE_STATE_FAILED) continue;
    if (process->state.concurrent()) continue;
    return absl::StrCat("rank ", process->row.rank, ": ", feature->message());
  }
  return "";
}

std::string UnmatchedInWords(const ProcessTable& processes) {
  if (processes.one_rank()) return "";
  std::set<int32_t> ranks;
  for (const auto& [id, process] : processes) {
    if (process->state.unmatched() && process->counts()) ranks.insert(process->row.rank);
  }
  if (ranks.empty()) return "";
  const bool many = ranks.size() > 1;
  return absl::StrCat(
      many ? "ranks " : "rank ", absl::StrJoin(ranks, ", "), many ? " were" : " was",
      " not heard from the start on, and no collective shows which iterations of ",
      many ? "theirs" : "it",
      " are the same as those of other ranks; start the daemon before the training");
}

std::string FirstEndInWords(const ProcessTable& processes) {
  if (processes.live() || processes.one_rank()) return "";
  std::vector<const Process*> ends;  // of the ranks that did not end well, the first one first
  for (const auto& [rank, process] : processes.LastOfRanks()) {
    if (!process->state.ended_well()) ends.push_back(process);
  }
  if (ends.empty()) return "";
  std::stable_sort(ends.begin(), ends.end(), [](const Process* a, const Process* b) {
    return a->state.ended_before_ns() < b->state.ended_before_ns();
  });
  const Process& first = *ends[0];
  if (first.state.ended_before_ns() == 0) {
    return absl::StrCat("which rank ended first is not known, because ",
                        first.state.reported() ? "the clocks of nodes are not compared"
                                               : absl::StrCat("no daemon watched when rank ",
                                                              first.row.rank, " ended"));
  }
  const std::string how = first.row.lost ? "was killed or crashed" : "ended with an error";
  if (ends.size() == 1) return absl::StrCat("rank ", first.row.rank, " ", how);
  const auto overlaps = std::find_if(ends.begin() + 1, ends.end(), [&](const Process* other) {
    return other->state.ended_after_ns() < first.state.ended_before_ns();
  });
  if (overlaps != ends.end()) {
    const ProcessState& other = (*overlaps)->state;
    const int64_t within_ns = other.ended_before_ns() - first.state.ended_after_ns();
    return absl::StrCat("which rank ended first is not known, because ranks ", first.row.rank,
                        " and ", (*overlaps)->row.rank, " ended within ", within_ns / 1'000'000 + 1,
                        " ms");
  }
  const Process& next = *ends[1];
  const int64_t gap_ns = next.state.ended_before_ns() - first.state.ended_before_ns();
  return absl::StrFormat("rank %d ended first: it %s, %.2f s before rank %d, the next one",
                         first.row.rank, how, static_cast<double>(gap_ns) * 1e-9, next.row.rank);
}

std::string WhyTimeOnly(const ProcessTable& processes) {
  std::string why;
  for (const auto& [id, process] : processes) {
    if (process->HasCupti()) return "";
    why = process->features.at(static_cast<uint16_t>(abi::Feature::kCupti)).message();
  }
  return why;
}

std::string WhyNoRoofline(const ProcessTable& processes, const MetricChoice& metrics) {
  if (!metrics.no_roofline().empty()) return metrics.no_roofline();
  for (const abi::Feature of : {abi::Feature::kRoofline, abi::Feature::kCounters}) {
    for (const auto& [id, process] : processes) {
      const v1::Feature* const feature = process->FindFeature(of);
      if (feature == nullptr || feature->state() == v1::FEATURE_STATE_READY) continue;
      if (!feature->message().empty()) return feature->message();
    }
  }
  return "";
}

bool AnyHasCupti(const ProcessTable& processes) {
  return std::any_of(processes.begin(), processes.end(),
                     [](const auto& entry) { return entry.second->HasCupti(); });
}

v1::ClockKind ClockKindOf(const ProcessTable& processes) {
  v1::ClockKind kind = v1::CLOCK_KIND_UNSPECIFIED;
  for (const auto& [id, process] : processes) {
    const v1::ClockKind of_process = ToProtoClockKind(process->state.clock_kind());
    if (of_process != v1::CLOCK_KIND_UNSPECIFIED) kind = of_process;
  }
  return kind;
}

void DescribeProcesses(const ProcessTable& processes,
                       google::protobuf::RepeatedPtrField<v1::Process>* list) {
  std::vector<const Process*> by_rank;
  for (const auto& [id, process] : processes) by_rank.push_back(process.get());
  std::stable_sort(by_rank.begin(), by_rank.end(),
                   [](const Process* a, const Process* b) { return a->row.rank < b->row.rank; });
  for (const Process* process : by_rank) {
    v1::Process& to = *list->Add();
    const ProcessRow& row = process->row;
    to.set_rank(row.rank);
    to.set_local_rank(HelloNumber(row.text, "local_rank", row.rank));
    to.set_world_size(HelloNumber(row.text, "world_size", 1));
    to.set_pid(row.pid);
    to.set_incarnation(row.incarnation);
    to.set_host(row.host);
    to.set_command(HelloField(row.text, "command"));
    to.set_working_directory(HelloField(row.text, "cwd"));
    to.set_library_version(HelloField(row.text, "library_version"));
    to.set_cupti_version(HelloField(row.text, "cupti_version"));
    to.set_driver_version(HelloField(row.text, "driver_version"));
    to.set_clock_kind(ToProtoClockKind(process->state.clock_kind()));
    to.set_start_ns(row.start_ns);
    to.set_end_ns(row.end_ns);
    to.set_lost(row.lost);
    to.set_level(ToProtoLevel(process->state.level()));
    to.set_iterations(static_cast<int64_t>(process->state.iterations()));
    for (const auto& [number, feature] : process->features) *to.add_features() = feature;
    *to.mutable_losses() = process->state.losses();
    to.mutable_losses()->set_uncounted_processes(process->uncounted() ? 1 : 0);
    to.set_stopped_duration_ns(process->state.stopped_duration_ns());
    to.set_given_up_windows(process->state.given_up_windows());
    to.set_stood_down_duration_ns(process->state.stood_down_duration_ns());
    to.set_stands_down_for(process->state.stands_down_for());
    to.set_device(process->state.device());
    to.set_chip(process->state.chip());
    to.set_compute_capability(process->state.compute_capability());
  }
}

void SetSpent(const ProcessTable& processes, v1::Overhead* overhead) {
  v1::Spent learn, mark, trace, counters, traces, rest;
  for (const auto& [id, process] : processes) {
    const auto add = [](v1::Spent& to, uint64_t count, int64_t duration_ns) {
      to.set_count(SaturatedSum(to.count(), Saturate(count)));
      to.set_duration_ns(SaturatedSum(to.duration_ns(), duration_ns));
    };
    add(learn, process->state.watched_calls()[1], process->state.watching_ns()[1]);
    add(mark, process->state.watched_calls()[2], process->state.watching_ns()[2]);
    add(trace, process->state.watched_calls()[3], process->state.watching_ns()[3]);
    add(counters, static_cast<uint64_t>(process->state.counter_stops()),
        process->state.counter_stops_ns());
    add(traces, static_cast<uint64_t>(process->state.trace_stops()),
        process->state.trace_stops_ns());
    add(rest, 0,
        std::max<int64_t>(
            process->state.stopped_duration_ns() -
                SaturatedSum(process->state.counter_stops_ns(), process->state.trace_stops_ns()),
            0));
  }
  const auto list = [&](v1::Spent& spent, std::string_view what, bool estimated) {
    if (spent.duration_ns() <= 0) return;
    spent.set_activity(std::string(what));
    spent.set_estimated(estimated);
    *overhead->add_spent() = std::move(spent);
  };
  list(learn, "watching at learn", true);
  list(mark, "watching at mark", true);
  list(trace, "watching at trace", true);
  list(counters, "stops for counters", false);
  list(traces, "stops for traces", false);
  list(rest, "stops for switching levels", false);
}

}  // namespace seqpoint::jobs
