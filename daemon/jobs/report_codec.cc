#include "daemon/jobs/report_codec.h"

#include <cstring>
#include <optional>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "daemon/base/saturate.h"

namespace seqpoint::jobs {
namespace {

enum Facts : uint32_t { kLengths = 3, kDistorted = 4, kGpuTime = 8, kEnded = 16, kAllFacts = 31 };

// A finished iteration in columns is about as long.
constexpr size_t kIterationBytes = 16;
constexpr int kMostOfReport = 1 << 20;  // of one report

uint32_t FactsOf(const FinishedIteration& iteration) {
  return (iteration.valid() & kLengths) | (iteration.distorted() ? kDistorted : 0u) |
         (iteration.gpu_time() ? kGpuTime : 0u) | (iteration.ended() ? kEnded : 0u);
}

std::optional<v1::ReportedDetail> DetailOf(const FinishedIteration& from) {
  v1::ReportedDetail detail;
  detail.set_rest_ns(from.rest_ns());
  detail.set_config_id(from.config_id());
  detail.set_micro_batches(from.micro_batches());
  for (const LengthPair& lengths : from.micro_lengths()) {
    detail.add_micro_first_length(lengths.first());
    detail.add_micro_second_length(lengths.second());
  }
  detail.set_stretch(from.stretch());
  detail.set_stretch_ns(from.stretch_ns());
  detail.set_other_batches(from.other_batches());
  detail.set_other_duration_ns(from.other_duration_ns());
  detail.set_cold(from.cold());
  if (detail.ByteSizeLong() == 0) return std::nullopt;
  return detail;
}

// False: the columns of lengths differ.
bool SetDetail(const v1::ReportedDetail& from, FinishedIteration& to) {
  if (from.micro_first_length_size() != from.micro_second_length_size()) return false;
  to.set_rest_ns(from.rest_ns());
  to.set_config_id(from.config_id());
  to.set_micro_batches(from.micro_batches());
  for (int i = 0; i < from.micro_first_length_size(); ++i) {
    LengthPair& lengths = *to.add_micro_lengths();
    lengths.set_first(from.micro_first_length(i));
    lengths.set_second(from.micro_second_length(i));
  }
  to.set_stretch(from.stretch());
  to.set_stretch_ns(from.stretch_ns());
  to.set_other_batches(from.other_batches());
  to.set_other_duration_ns(from.other_duration_ns());
  to.set_cold(from.cold());
  return true;
}

// Differences wrap around, so that no bytes can make them overflow.
int64_t Sum(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
int64_t Difference(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
}

// False: the columns contradict each other.
bool ReadIterations(int64_t process_id, const v1::ReportedIterations& from,
                    std::vector<Report>& to) {
  const int count = from.boundary_ns_size();
  const auto fits = [count](const auto& column) { return column.size() == count; };
  if (count > kMostOfReport || !fits(from.start_ns()) || !fits(from.duration_ns()) ||
      !fits(from.first_length()) || !fits(from.second_length()) || !fits(from.facts())) {
    return false;
  }
  const size_t begin = to.size();
  int64_t next_boundary_ns = 0;
  for (int i = 0; i < count; ++i) {
    FinishedIteration iteration;
    const int64_t boundary_ns = Sum(next_boundary_ns, from.boundary_ns(i));
    iteration.set_number(static_cast<uint64_t>(Sum(from.first_number(), i)));
    iteration.set_boundary_ns(boundary_ns);
    iteration.set_start_ns(Sum(boundary_ns, from.start_ns(i)));
    iteration.set_duration_ns(from.duration_ns(i));
    iteration.set_first_length(from.first_length(i));
    iteration.set_second_length(from.second_length(i));
    if ((from.facts(i) & ~kAllFacts) != 0) return false;
    iteration.set_valid(from.facts(i) & kLengths);
    iteration.set_distorted((from.facts(i) & kDistorted) != 0);
    iteration.set_gpu_time((from.facts(i) & kGpuTime) != 0);
    iteration.set_ended((from.facts(i) & kEnded) != 0);
    next_boundary_ns = Sum(boundary_ns, iteration.duration_ns());
    to.push_back({process_id, std::move(iteration)});
  }
  for (const v1::ReportedDetail& detail : from.details()) {
    if (detail.index() >= static_cast<uint32_t>(count)) return false;
    if (!SetDetail(detail, std::get<FinishedIteration>(to[begin + detail.index()].what))) {
      return false;
    }
  }
  return true;
}

// Nothing: the report has no content.
std::optional<Report::What> ReadWhat(const v1::Report& from) {
  switch (from.report_case()) {
    case v1::Report::kStarted:
      return from.started();
    case v1::Report::kRule:
      return from.rule();
    case v1::Report::kEvent:
      return from.event();
    case v1::Report::kCollective: {
      abi::DataRecord record = {};
      if (from.collective().size() != sizeof(record)) return std::nullopt;
      std::memcpy(&record, from.collective().data(), sizeof(record));
      return record;
    }
    case v1::Report::kWork:
      return from.work();
    case v1::Report::kLosses:
      return from.losses();
    case v1::Report::kEnd:
      return from.end();
    case v1::Report::kHorizon:
      return from.horizon();
    case v1::Report::kProgramEnd:
      return from.program_end();
    default:
      return std::nullopt;
  }
}

}  // namespace

void ReportWriter::AddIteration(int64_t process_id, const FinishedIteration& iteration) {
  Columns& columns = columns_[process_id];
  const auto number = static_cast<int64_t>(iteration.number());
  if (columns.to == nullptr || columns.next_number != number) {
    v1::Report& report = *batch_.add_reports();
    report.set_process(process_id);
    columns = {.to = report.mutable_iterations()};
    columns.to->set_first_number(number);
  }
  v1::ReportedIterations& to = *columns.to;
  if (auto detail = DetailOf(iteration)) {
    detail->set_index(static_cast<uint32_t>(to.boundary_ns_size()));
    bytes_ += detail->ByteSizeLong();
    *to.add_details() = *std::move(detail);
  }
  to.add_boundary_ns(Difference(iteration.boundary_ns(), columns.next_boundary_ns));
  to.add_start_ns(Difference(iteration.start_ns(), iteration.boundary_ns()));
  to.add_duration_ns(iteration.duration_ns());
  to.add_first_length(iteration.first_length());
  to.add_second_length(iteration.second_length());
  to.add_facts(FactsOf(iteration));
  columns.next_number = Sum(number, 1);
  columns.next_boundary_ns = Sum(iteration.boundary_ns(), iteration.duration_ns());
  bytes_ += kIterationBytes;
}

void ReportWriter::Add(const Report& report) {
  if (const auto* const iteration = std::get_if<FinishedIteration>(&report.what)) {
    return AddIteration(report.process_id, *iteration);
  }
  v1::Report& to = *batch_.add_reports();
  to.set_process(report.process_id);
  std::visit(
      [&]<typename What>(const What& what) {
        if constexpr (std::is_same_v<What, v1::ReportedProcess>) {
          *to.mutable_started() = what;
        } else if constexpr (std::is_same_v<What, v1::ReportedRule>) {
          *to.mutable_rule() = what;
        } else if constexpr (std::is_same_v<What, v1::ReportedEvent>) {
          *to.mutable_event() = what;
        } else if constexpr (std::is_same_v<What, abi::DataRecord>) {
          to.set_collective(std::string(reinterpret_cast<const char*>(&what), sizeof(what)));
        } else if constexpr (std::is_same_v<What, v1::ReportedWork>) {
          *to.mutable_work() = what;
        } else if constexpr (std::is_same_v<What, v1::ReportedLosses>) {
          *to.mutable_losses() = what;
        } else if constexpr (std::is_same_v<What, v1::ReportedEnd>) {
          *to.mutable_end() = what;
        } else if constexpr (std::is_same_v<What, v1::Horizon>) {
          *to.mutable_horizon() = what;
        } else if constexpr (std::is_same_v<What, v1::ReportedProgramEnd>) {
          *to.mutable_program_end() = what;
        }
      },
      report.what);
  bytes_ += to.ByteSizeLong();
  if (to.has_started() || to.has_rule() || to.has_end() || to.has_program_end()) columns_.clear();
}

void ReportWriter::Clear() {
  batch_.Clear();
  columns_.clear();
  bytes_ = 0;
}

absl::StatusOr<std::vector<Report>> ReadReports(std::string_view bytes) {
  v1::ReportBatch batch;
  if (!batch.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return absl::DataLossError(
        absl::StrCat("a batch of ", bytes.size(), " bytes is not a ReportBatch"));
  }
  std::vector<Report> reports;
  for (int i = 0; i < batch.reports_size(); ++i) {
    const v1::Report& report = batch.reports(i);
    bool good = true;
    if (report.has_iterations()) {
      good = ReadIterations(report.process(), report.iterations(), reports);
    } else if (auto what = ReadWhat(report)) {
      reports.push_back({report.process(), *std::move(what)});
    } else {
      // A kind that a newer node writes has no case here.
      good = report.report_case() == v1::Report::REPORT_NOT_SET;
    }
    if (!good) {
      return absl::DataLossError(absl::StrCat("report ", i, " of ", batch.reports_size(),
                                              " in a batch contradicts itself"));
    }
  }
  return reports;
}

}  // namespace seqpoint::jobs
