#include "tests/support/reported_ranks.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/jobs/rule_codec.h"
#include "injection/abi/records.h"

namespace seqpoint {
namespace {

// Sentences of 16 to 256 tokens, of which the longest costs twice the mean.
constexpr int64_t kShortest = 16, kLongest = 256;
constexpr int64_t kHostAheadNs = 20'000'000;  // the host asks for its work so much earlier
constexpr int64_t kCollectiveNs = 200'000;
constexpr uint16_t kCommunicator = 1, kKind = 1;

// SplitMix64: a number that only depends on these.
uint64_t Draw(uint64_t seed, uint64_t rank, uint64_t step, uint64_t what) {
  uint64_t z = seed * 0x9E3779B97F4A7C15 + (rank << 40) + (step << 4) + what;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

iterations::LearnedRule LearnedRule() {
  iterations::LearnedRule learned;
  learned.rule.generation = 1;
  learned.rule.boundary.op = static_cast<uint8_t>(abi::Op::kCopyH2D);
  learned.rule.step.op = static_cast<uint8_t>(abi::Op::kLaunch);
  learned.rule.length_count = 1;
  learned.rule.length[0].pattern.op = static_cast<uint8_t>(abi::Op::kCopyH2D);
  learned.confidence = 1;
  learned.boundary_words = "host-to-device copy of the batch";
  learned.length_words = "bytes of the copy";
  return learned;
}

template <typename Event>
v1::ReportedEvent EventOf(abi::EventType type, const Event& event, const std::string& text) {
  v1::ReportedEvent report;
  report.set_type(static_cast<uint32_t>(type));
  report.set_payload(&event, sizeof(event));
  report.mutable_payload()->append(text);
  return report;
}

}  // namespace

ReportedRanks::ReportedRanks(ReportedRanksOptions options, int64_t begin_ns)
    : options_(std::move(options)), begins_ns_({begin_ns}), logs_(static_cast<size_t>(ranks())) {}

int64_t ReportedRanks::Length(int rank, int64_t step) const {
  const uint64_t drawn =
      Draw(options_.seed, static_cast<uint64_t>(rank), static_cast<uint64_t>(step), 1);
  return kShortest + static_cast<int64_t>(drawn % (kLongest - kShortest + 1));
}

int64_t ReportedRanks::BeginNs(int64_t step) {
  while (static_cast<int64_t>(begins_ns_.size()) <= step) {
    const int64_t drawn = static_cast<int64_t>(begins_ns_.size()) - 1;
    // The longest of a few ranks is nearly kLongest; the others do not make a step longer.
    int64_t longest = 0;
    for (int rank = 0; rank < std::min(ranks(), 64); ++rank) {
      longest = std::max(longest, Length(rank, drawn));
    }
    const double mean = static_cast<double>(kShortest + kLongest) / 2;
    const double noise =
        1 + 0.004 * (static_cast<double>(Draw(options_.seed, 0, static_cast<uint64_t>(drawn), 2) %
                                         1001) /
                         1000 -
                     0.5);
    // A batch of several ranks is about twice as long as the mean sentence.
    const double ms =
        options_.step_ms * noise * static_cast<double>(longest) / (ranks() > 1 ? 2 * mean : mean);
    begins_ns_.push_back(begins_ns_.back() + std::llround(1e6 * ms));
  }
  return begins_ns_[static_cast<size_t>(step)];
}

int64_t ReportedRanks::StartNs(int rank, int64_t step) {
  return BeginNs(step) + static_cast<int64_t>(Draw(options_.seed, static_cast<uint64_t>(rank),
                                                   static_cast<uint64_t>(step), 3) %
                                              50'000);
}

void ReportedRanks::Start(int node, jobs::ReportWriter& to) {
  for (int local = 0; local < options_.ranks_of_node; ++local) {
    const int rank = node * options_.ranks_of_node + local;
    const int64_t process = ProcessOf(rank);
    v1::ReportedProcess started;
    started.set_job(options_.job);
    started.set_run_id("1");
    started.set_command("python3 train.py --config large");
    started.set_rank(rank);
    started.set_pid(4000 + local);
    started.set_host(absl::StrCat("node", node));
    started.set_hello(
        absl::StrCat("rank=", rank, "\nlocal_rank=", local, "\nworld_size=", ranks(), "\n"));
    started.set_start_ns(begins_ns_[0] - 10'000'000'000);
    std::string ring_id(16, '\0');
    for (size_t i = 0; i < ring_id.size(); ++i) {
      ring_id[i] = static_cast<char>(Draw(options_.seed, static_cast<uint64_t>(rank), i, 4));
    }
    started.set_ring_id(ring_id);
    to.Add({process, started});
    if (options_.collectives > 0) {
      const std::string name = "world";
      to.Add({process, EventOf(abi::EventType::kCommunicator,
                               abi::CommunicatorEvent{.communicator = kCommunicator,
                                                      .rank = rank,
                                                      .ranks = ranks(),
                                                      .nodes = options_.nodes,
                                                      .hash = 77,
                                                      .version = 5,
                                                      .length = static_cast<uint32_t>(name.size())},
                               name)});
      const std::string kind = "AllReduce\nncclFloat32\nRING\nSIMPLE";
      to.Add(
          {process, EventOf(abi::EventType::kCollectiveKind,
                            abi::CollectiveKindEvent{.kind = kKind,
                                                     .peer = -1,
                                                     .elements = 0,
                                                     .length = static_cast<uint32_t>(kind.size())},
                            kind)});
    }
    v1::ReportedRule rule;
    *rule.mutable_rule() = jobs::EncodeRule(LearnedRule());
    rule.set_number_offset(0);
    to.Add({process, rule});
  }
}

void ReportedRanks::ReportCollectives(int rank, int64_t number, const Iteration& iteration,
                                      jobs::ReportWriter& to) {
  const int64_t process = ProcessOf(rank);
  const int count = options_.collectives;
  const bool timed = number % options_.between_timed == 0;
  const auto sequence = [&](int i) { return static_cast<uint32_t>(number * count + i); };
  // They are spread over the backward pass, and each ends for all ranks together.
  const int64_t spacing_ns = iteration.duration_ns / (2 * count);
  const auto asked_ns = [&](int i) {
    return iteration.boundary_ns + iteration.duration_ns / 3 + i * spacing_ns +
           static_cast<int64_t>(Draw(options_.seed, static_cast<uint64_t>(rank), sequence(i), 6) %
                                20'000);
  };
  const auto width = static_cast<int>(abi::kArrivalsPerRecord);
  for (int first = 0; first < count; first += width) {
    const int here = std::min(count - first, width);
    abi::DataRecord record = {};
    record.arrivals = {.type = static_cast<uint16_t>(abi::DataType::kArrivals),
                       .communicator = kCommunicator,
                       .count = static_cast<uint8_t>(here),
                       .timed = static_cast<uint8_t>(timed ? here : 0),
                       .base_ns = static_cast<uint64_t>(asked_ns(first)),
                       .iteration = static_cast<uint64_t>(number)};
    for (int i = 0; i < here; ++i) {
      record.arrivals.delay_ns[i] = static_cast<uint32_t>(asked_ns(first + i) - asked_ns(first));
      record.arrivals.sequence[i] = sequence(first + i);
      record.arrivals.kind[i] = kKind;
    }
    to.Add({process, record});
  }
  if (!timed) return;
  for (int i = 0; i < count; ++i) {
    const int64_t all_ns = BeginNs(number) + iteration.duration_ns / 3 + i * spacing_ns + 60'000;
    abi::DataRecord record = {};
    record.collective = {
        .type = static_cast<uint16_t>(abi::DataType::kCollective),
        .communicator = kCommunicator,
        .kind = kKind,
        .channels = 8,
        .iteration = static_cast<uint64_t>(number),
        .host_ns = static_cast<uint64_t>(asked_ns(i)),
        .gpu_start_ns = static_cast<uint64_t>(
            all_ns -
            static_cast<int64_t>(Draw(options_.seed, static_cast<uint64_t>(rank), sequence(i), 7) %
                                 10'000)),
        .gpu_end_ns = static_cast<uint64_t>(all_ns + kCollectiveNs),
        .sequence = sequence(i)};
    to.Add({process, record});
  }
}

void ReportedRanks::ReportIteration(int rank, jobs::ReportWriter& to) {
  std::vector<Iteration>& log = logs_[static_cast<size_t>(rank)];
  const auto number = static_cast<int64_t>(log.size());
  Iteration iteration;
  iteration.length = Length(rank, number);
  iteration.start_ns = StartNs(rank, number);
  iteration.duration_ns = StartNs(rank, number + 1) - iteration.start_ns;
  iteration.boundary_ns = iteration.start_ns - kHostAheadNs -
                          static_cast<int64_t>(Draw(options_.seed, static_cast<uint64_t>(rank),
                                                    static_cast<uint64_t>(number), 5) %
                                               200'000);
  if (options_.collectives > 0) ReportCollectives(rank, number, iteration, to);
  jobs::FinishedIteration report;
  report.set_number(static_cast<uint64_t>(number));
  report.set_first_length(iteration.length);
  report.set_valid(1);
  report.set_boundary_ns(iteration.boundary_ns);
  report.set_start_ns(iteration.start_ns);
  report.set_duration_ns(iteration.duration_ns);
  report.set_gpu_time(true);
  report.set_ended(true);
  to.Add({ProcessOf(rank), report});
  log.push_back(iteration);
  ++reported_;
}

int64_t ReportedRanks::Report(int node, int64_t until_ns, jobs::ReportWriter& to) {
  const int64_t before = reported_;
  for (int local = 0; local < options_.ranks_of_node; ++local) {
    const int rank = node * options_.ranks_of_node + local;
    while (StartNs(rank, static_cast<int64_t>(log(rank).size()) + 1) <= until_ns) {
      ReportIteration(rank, to);
    }
  }
  return reported_ - before;
}

int64_t ReportedRanks::ReportNext(int node, int64_t count, jobs::ReportWriter& to) {
  const int64_t before = reported_;
  for (int local = 0; local < options_.ranks_of_node; ++local) {
    for (int64_t i = 0; i < count; ++i) {
      ReportIteration(node * options_.ranks_of_node + local, to);
    }
  }
  return reported_ - before;
}

void ReportedRanks::End(int node, jobs::ReportWriter& to) {
  for (int local = 0; local < options_.ranks_of_node; ++local) {
    const int rank = node * options_.ranks_of_node + local;
    v1::ReportedEnd end;
    end.set_orderly(true);
    end.set_end_ns(StartNs(rank, static_cast<int64_t>(log(rank).size())));
    to.Add({ProcessOf(rank), end});
  }
}

}  // namespace seqpoint
