#include "tests/support/paced_nodes.h"

#include <chrono>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace seqpoint {
namespace {

constexpr absl::Duration kBatchInterval = absl::Milliseconds(250);

}  // namespace

PacedNodes::PacedNodes(ReportedRanksOptions training, const IngestNodeOptions& hub,
                       const std::vector<std::string>& addresses)
    : training_(std::move(training), absl::GetCurrentTimeNanos()),
      writers_(static_cast<size_t>(training_.options().nodes)) {
  for (int node = 0; node < training_.options().nodes; ++node) {
    IngestNodeOptions options = hub;
    absl::StrAppend(&options.host, node);
    if (!addresses.empty()) {
      options.address = addresses[static_cast<size_t>(node) % addresses.size()];
    }
    nodes_.push_back(std::make_unique<IngestNode>(options));
  }
  thread_ = std::thread([this] { Run(); });
}

PacedNodes::~PacedNodes() { End(); }

void PacedNodes::Write(int node) {
  jobs::ReportWriter& writer = writers_[static_cast<size_t>(node)];
  if (writer.empty()) return;
  nodes_[static_cast<size_t>(node)]->Add(writer.Serialize());
  writer.Clear();
}

void PacedNodes::Run() {
  const int count = training_.options().nodes;
  for (int node = 0; node < count; ++node) {
    training_.Start(node, writers_[static_cast<size_t>(node)]);
  }
  // Nodes are not in step with each other.
  absl::Time next = absl::Now();
  for (int node = 0; !ending_; node = (node + 1) % count) {
    next += kBatchInterval / count;
    absl::SleepFor(next - absl::Now());
    training_.Report(node, absl::GetCurrentTimeNanos(), writers_[static_cast<size_t>(node)]);
    Write(node);
  }
  const int64_t end_ns = absl::GetCurrentTimeNanos();
  for (int node = 0; node < count; ++node) {
    training_.Report(node, end_ns, writers_[static_cast<size_t>(node)]);
    training_.End(node, writers_[static_cast<size_t>(node)]);
    Write(node);
  }
}

void PacedNodes::End() {
  ending_ = true;
  if (thread_.joinable()) thread_.join();
}

bool PacedNodes::AwaitAcknowledged(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  for (const auto& node : nodes_) {
    if (!node->AwaitAcknowledged(node->last(), deadline - absl::Now())) return false;
  }
  return true;
}

int64_t PacedNodes::frame_bytes() const {
  int64_t bytes = 0;
  for (const auto& node : nodes_) bytes += node->frame_bytes();
  return bytes;
}

int64_t PacedNodes::waiting() const {
  int64_t batches = 0;
  for (const auto& node : nodes_) batches += node->last() - node->acknowledged();
  return batches;
}

std::optional<LogDifferences> Compare(const ReportedRanks& training, Api& hub) {
  LogDifferences found;
  for (int rank = 0; rank < training.ranks(); ++rank) {
    const auto rows = hub.Iterations(training.options().job, rank);
    if (!rows) return std::nullopt;
    const std::vector<ReportedRanks::Iteration>& log = training.log(rank);
    found.reported += static_cast<int64_t>(log.size());
    std::vector<int> seen(log.size());
    for (const v1::Iteration& row : *rows) {
      const auto number = static_cast<size_t>(row.number());
      if (row.number() < 0 || number >= log.size()) {
        ++found.invented;
        continue;
      }
      ++seen[number];
      const ReportedRanks::Iteration& of = log[number];
      found.wrong += row.lengths_size() != 1 || row.lengths(0) != of.length ||
                     row.boundary_ns() != of.boundary_ns || row.start_ns() != of.start_ns ||
                     row.duration_ns() != of.duration_ns || row.redone() || row.concurrent();
    }
    for (const int times : seen) {
      found.lost += times == 0;
      found.twice += std::max(0, times - 1);
    }
  }
  return found;
}

}  // namespace seqpoint
