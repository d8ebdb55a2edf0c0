#include "daemon/iterations/length_features.h"

#include <algorithm>
#include <utility>

#include "absl/types/span.h"
#include "daemon/iterations/length_sources.h"

namespace seqpoint::iterations {
namespace {

using abi::CallRecord;
using abi::LengthField;
using abi::LengthSource;
using abi::Op;

constexpr size_t kMaxRows = 256;

// Reads the sources in one micro-batch.
class Reader {
 public:
  Reader(const LaunchLog& stream, const std::vector<LengthSource>& sources)
      : stream_(stream), sources_(sources) {
    for (size_t s = 0; s < sources.size(); ++s) {
      const bool count = sources[s].field == static_cast<uint8_t>(LengthField::kCallCount);
      (count ? counted_ : read_).push_back(s);
      ops_ |= 1u << sources[s].pattern.op;
    }
  }

  // Values of [begin, end), as the matcher reads them.
  std::vector<int64_t> Read(uint32_t begin, uint32_t end, uint32_t step) const {
    std::vector<int64_t> values(sources_.size(), -1);
    std::vector<uint32_t> occurrences(sources_.size(), 0);
    for (size_t s : counted_) values[s] = 0;
    uint32_t launches = 0;
    for (uint32_t i = begin; i < end; ++i) {
      const CallRecord& call = stream_.calls()[i];
      if ((ops_ >> (call.op & 31) & 1) == 0) continue;
      const bool launch = call.op == static_cast<uint8_t>(Op::kLaunch);
      // Almost all calls are launches after those whose grids are read.
      if (launch && launches++ >= kReadLaunches && (counted_.empty() || i >= step)) continue;
      const abi::MatchEvent event = ToMatchEvent(call, stream_.names());
      if (launch && i < step) {
        for (size_t s : counted_) values[s] += Matches(sources_[s], event);
      }
      if (launch && launches > kReadLaunches) continue;
      for (size_t s : read_) {
        if (!Matches(sources_[s], event)) continue;
        if (occurrences[s]++ == sources_[s].ordinal) values[s] = Field(sources_[s], event);
      }
    }
    return values;
  }

 private:
  static bool Matches(const LengthSource& source, const abi::MatchEvent& event) {
    return source.pattern.op == event.op &&
           (source.pattern.match == 0 || source.pattern.name_hash == event.name_hash);
  }
  static int64_t Field(const LengthSource& source, const abi::MatchEvent& event) {
    switch (static_cast<LengthField>(source.field)) {
      case LengthField::kBytes:
        return static_cast<int64_t>(event.bytes);
      case LengthField::kGridX:
        return event.grid_x;
      case LengthField::kGridY:
        return event.grid_y;
      case LengthField::kGridZ:
        return event.grid_z;
      case LengthField::kNamePayload:
        return event.has_payload ? static_cast<int64_t>(event.bytes) : -1;
      case LengthField::kNameDigits:
        return source.digit_run < event.digit_runs ? event.digits[source.digit_run] : -1;
      default:
        return -1;
    }
  }

  const LaunchLog& stream_;
  const std::vector<LengthSource>& sources_;
  std::vector<size_t> counted_;  // sources that count launches
  std::vector<size_t> read_;     // the others
  uint32_t ops_ = 0;
};
bool HostWaited(const LaunchLog& stream, const ReplayedIteration& it) {
  for (uint32_t i = it.begin; i < it.end; ++i) {
    const auto op = static_cast<Op>(stream.calls()[i].op);
    if ((stream.calls()[i].flags & abi::kCallHostTime) != 0) return true;
    if (BlocksHost(op) && stream.calls()[i].bytes > 0) return true;
  }
  return false;
}

void MakeTimes(const LaunchLog& stream, absl::Span<const ReplayedIteration> iterations,
               const GpuStarts& gpu_starts, FeatureTable* table) {
  const std::vector<CallRecord>& calls = stream.calls();
  size_t timed = 0, waited = 0;
  std::vector<double> gpu(iterations.size(), 0), host(iterations.size(), 0);
  for (size_t row = 0; row < iterations.size(); ++row) {
    const ReplayedIteration& it = iterations[row];
    if (it.clock != kNoCall && it.end_clock != kNoCall) {
      const auto begin = gpu_starts.find(calls[it.clock].correlation_id);
      const auto end = gpu_starts.find(calls[it.end_clock].correlation_id);
      if (begin != gpu_starts.end() && end != gpu_starts.end() && end->second > begin->second) {
        gpu[row] = static_cast<double>(end->second - begin->second);
        ++timed;
      }
    }
    if (HostWaited(stream, it)) {
      ++waited;
      if (calls[it.end].api_ns > calls[it.begin].api_ns) {
        host[row] = static_cast<double>(calls[it.end].api_ns - calls[it.begin].api_ns);
      }
    }
  }
  if (timed * 10 >= iterations.size() * 6) {
    table->time_ns = std::move(gpu);
    table->time_source = "GPU stamps";
  } else if (waited * 10 >= iterations.size() * 9) {
    table->time_ns = std::move(host);
    table->time_source = "host waits";
  } else {
    table->time_ns.assign(iterations.size(), 0);
  }
}

}  // namespace

FeatureTable MakeFeatures(const LaunchLog& stream,
                          const std::vector<ReplayedIteration>& all_iterations,
                          uint32_t micro_batches_per_step, const GpuStarts& gpu_starts) {
  FeatureTable table;
  const size_t skip = all_iterations.size() > kMaxRows ? all_iterations.size() - kMaxRows : 0;
  const auto iterations = absl::Span<const ReplayedIteration>(all_iterations).subspan(skip);
  if (iterations.empty()) return table;
  std::vector<MicroBatch> micro_batches;
  for (const ReplayedIteration& it : iterations) {
    for (size_t m = 0; m < it.micro_batches.size(); ++m) {
      const uint32_t end = m + 1 < it.micro_batches.size() ? it.micro_batches[m + 1] : it.end;
      micro_batches.push_back({it.micro_batches[m], end, std::min(it.step, end)});
    }
  }
  LengthSources proposed = ProposeLengthSources(stream, micro_batches, micro_batches_per_step > 1);
  table.sources = std::move(proposed.sources);
  table.words = std::move(proposed.words);
  MakeTimes(stream, iterations, gpu_starts, &table);

  const Reader reader(stream, table.sources);
  const size_t columns = table.sources.size();
  table.values.reserve(iterations.size() * columns);
  std::vector<int64_t> before[2] = {std::vector<int64_t>(columns, -1),
                                    std::vector<int64_t>(columns, -1)};
  size_t next = 0;
  for (const ReplayedIteration& it : iterations) {
    std::vector<int64_t> folded(columns, -1);
    for (size_t m = 0; m < it.micro_batches.size(); ++m) {
      const MicroBatch& micro_batch = micro_batches[next++];
      std::vector<int64_t> now = reader.Read(micro_batch.begin, micro_batch.end, micro_batch.step);
      for (size_t s = 0; s < columns; ++s) {
        const uint8_t lag = table.sources[s].lag;
        const int64_t value = lag == 0 ? now[s] : before[lag - 1][s];
        if (value < 0) continue;
        if (folded[s] < 0) {
          folded[s] = value;
        } else if (micro_batches_per_step > 1) {
          folded[s] += value;
        }
      }
      before[1] = std::move(before[0]);
      before[0] = std::move(now);
    }
    table.values.insert(table.values.end(), folded.begin(), folded.end());
    double threads = 0;
    uint32_t launches = 0;
    for (uint32_t i = it.begin; i < it.end; ++i) {
      const CallRecord& c = stream.calls()[i];
      if (c.op != static_cast<uint8_t>(Op::kLaunch)) continue;
      ++launches;
      threads += Threads(c);
    }
    table.launched_threads.push_back(threads);
    table.launches.push_back(launches);
  }
  return table;
}

}  // namespace seqpoint::iterations
