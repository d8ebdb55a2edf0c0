#include "daemon/queries/kernels.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "daemon/base/status_macros.h"
#include "daemon/jobs/figures.h"
#include "daemon/jobs/kernel_statistics.h"
#include "daemon/queries/errors.h"

namespace seqpoint::queries {
namespace {

constexpr int kMostProjectedKernels = 256;  // each takes a millisecond or two
constexpr int kSpareKernels = 16;

bool IsCollective(const jobs::SnapshotData& job, int kernel) {
  return kernel < static_cast<int>(job.kernels.size()) &&
         absl::StrContains(absl::AsciiStrToLower(job.kernels[kernel]), "nccl");
}

}  // namespace

absl::StatusOr<v1::GetKernelsReply> GetKernels(const jobs::Snapshot& snapshot,
                                               const v1::GetKernelsRequest& request) {
  const jobs::SnapshotData& job = snapshot.data();
  SEQPOINT_RETURN_IF_ERROR(CheckMeasurable(job));
  absl::MutexLock lock(&snapshot.mutex());
  const jobs::RunEngine& engine = snapshot.work();
  v1::GetKernelsReply reply;
  // The longest ones of what was measured, some more than are wanted as their order may be another;
  // the others as one.
  const std::vector<double> measured = engine.MeasuredSums(jobs::kKernelTimeSet);
  std::vector<int> order, rest;
  for (size_t i = 0; i < measured.size(); ++i) {
    const bool named =
        job.kernels.size() <= kMaxValues || static_cast<int>(i) != jobs::kOtherKernels;
    (named ? order : rest).push_back(static_cast<int>(i));
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return measured[a] > measured[b]; });
  const bool all = request.limit() <= 0 || request.limit() > kMostProjectedKernels;
  const size_t wanted = all ? kMostProjectedKernels : static_cast<size_t>(request.limit());
  const size_t leading = std::min(order.size(), wanted + (all ? 0 : kSpareKernels));
  rest.insert(rest.end(), order.begin() + static_cast<ptrdiff_t>(leading), order.end());
  double total_ns = 0;
  std::vector<v1::Kernel> kernels;
  const auto project = [&](absl::Span<const int> indices, const std::string& name) -> absl::Status {
    const jobs::KernelTimes times =
        std::any_of(indices.begin(), indices.end(), [&](int i) { return IsCollective(job, i); })
            ? jobs::KernelTimes::kCollectives
            : jobs::KernelTimes::kKernels;
    SEQPOINT_ASSIGN_OR_RETURN(
        Projection time,
        engine.ProjectStatistics(jobs::kKernelTimeSet, indices, request.confidence()));
    SEQPOINT_ASSIGN_OR_RETURN(
        Projection launches,
        engine.ProjectStatistics(jobs::kKernelLaunchSet, indices, request.confidence(),
                                 StatisticKind::kAmount));
    time = jobs::WithDoubts(job, jobs::WithSlowRanks(job, jobs::kKernelTimeSet, std::move(time),
                                                     StatisticKind::kTimeLike, times));
    launches =
        jobs::WithDoubts(job, jobs::WithSlowRanks(job, jobs::kKernelLaunchSet, std::move(launches),
                                                  StatisticKind::kAmount));
    if (!time.total && (job.another || !time.so_far)) return NoAnswer(job, job.overcounted);
    const Estimate& duration = time.total ? *time.total : *time.so_far;
    v1::Kernel& kernel = kernels.emplace_back();
    kernel.set_name(name);
    jobs::SetEstimate(duration, kernel.mutable_duration_ns());
    const Estimate& number = launches.total ? *launches.total : *launches.so_far;
    kernel.set_launches(number.value);
    kernel.set_launches_low(number.low);
    kernel.set_launches_high(number.high);
    kernel.set_measured_iterations(static_cast<int32_t>(time.measured_with));
    total_ns += duration.value;
    reply.set_horizon_kind(time.total ? job.horizon_kind : v1::Horizon::KIND_UNKNOWN);
    return absl::OkStatus();
  };
  for (size_t i = 0; i < leading; ++i) {
    const absl::Status status = project({&order[i], 1}, job.kernels[order[i]]);
    // A kernel that only refused measurements had.
    if (!status.ok() && !absl::IsOutOfRange(status)) return status;
  }
  if (kernels.empty()) {
    return NoAnswer(job, "no iteration was traced; kernels are known after the first that is");
  }
  std::sort(kernels.begin(), kernels.end(), [](const v1::Kernel& a, const v1::Kernel& b) {
    return a.duration_ns().value() > b.duration_ns().value();
  });
  if (!rest.empty()) {
    const absl::Status status = project(rest, "(others)");
    if (!status.ok() && !absl::IsOutOfRange(status)) return status;
  }
  for (v1::Kernel& kernel : kernels) {
    if (!all && reply.kernels_size() == request.limit()) break;
    kernel.set_share(total_ns > 0 ? kernel.duration_ns().value() / total_ns : 0);
    *reply.add_kernels() = std::move(kernel);
  }
  reply.set_kernel_names(
      static_cast<int32_t>(job.kernels.size() > kMaxValues ? job.kernels.size() : measured.size()));
  reply.set_measured_iterations(job.MeasurementsOf(jobs::kKernelTimeSet));
  reply.set_confidence(request.confidence());
  reply.set_message(jobs::SlowRanksInWords(job, jobs::kKernelTimeSet));
  *reply.mutable_losses() = job.losses;
  return reply;
}

}  // namespace seqpoint::queries
