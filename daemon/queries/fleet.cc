#include "daemon/queries/fleet.h"

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"

namespace seqpoint::queries {
namespace {

v1::Estimate Times(const v1::Estimate& estimate, double factor) {
  v1::Estimate product;
  product.set_value(estimate.value() * factor);
  product.set_low(estimate.low() * factor);
  product.set_high(estimate.high() * factor);
  return product;
}

// Errors are independent.
void AddTo(const v1::Estimate& estimate, v1::Estimate* sum) {
  const double value = sum->value() + estimate.value();
  const double below = std::hypot(sum->value() - sum->low(), estimate.value() - estimate.low());
  const double above = std::hypot(sum->high() - sum->value(), estimate.high() - estimate.value());
  sum->set_value(value);
  sum->set_low(value - below);
  sum->set_high(value + above);
}

// Why the job has no GPU time; empty: it has.
std::string WhyNone(const v1::Job& job) {
  if (job.imported()) return "it was made of a log";
  if (!job.time_only().empty()) return job.time_only();
  if (job.clock_kind() == v1::CLOCK_KIND_FOREIGN) {
    return "its times are not those of a real clock (virtual time of a software GPU)";
  }
  if (!job.time().has_so_far()) return "no iteration has a time";
  if (job.working_ranks() == 0) return "it is not known that all its starts had the same ranks";
  return "";
}

}  // namespace

void AddToFleet(const v1::Job& job, v1::GetFleetReply* fleet) {
  v1::FleetJob& row = *fleet->add_jobs();
  row.set_job_id(job.id());
  row.set_name(job.name());
  row.set_run_id(job.run_id());
  row.set_state(job.state());
  row.set_start_ns(job.start_ns());
  row.set_ranks(job.working_ranks());
  row.set_message(WhyNone(job));
  if (!row.message().empty()) return;
  v1::FleetTimes& gpu_ns = *row.mutable_gpu_ns();
  v1::FleetTotal& total = *fleet->mutable_total();
  v1::FleetTimes& sums = *total.mutable_gpu_ns();
  total.set_jobs(total.jobs() + 1);
  *gpu_ns.mutable_so_far() = Times(job.time().so_far(), row.ranks());
  AddTo(gpu_ns.so_far(), sums.mutable_so_far());
  if (job.end_ns() == 0) {
    total.set_live_jobs(total.live_jobs() + 1);
    if (job.time().has_remaining()) {
      *gpu_ns.mutable_remaining() = Times(job.time().remaining(), row.ranks());
      AddTo(gpu_ns.remaining(), sums.mutable_remaining());
    } else {
      total.set_without_remaining(total.without_remaining() + 1);
    }
  }
  // One rank waits for none.
  v1::RankLosses losses = job.rank_losses();
  if (!job.has_rank_losses()) losses.mutable_slow_ranks(), losses.mutable_unequal_lengths();
  row.set_message(losses.message());
  const double so_far_ns = gpu_ns.so_far().value();
  if (losses.has_slow_ranks()) {
    *gpu_ns.mutable_slow_ranks() = Times(losses.slow_ranks(), so_far_ns);
    AddTo(gpu_ns.slow_ranks(), sums.mutable_slow_ranks());
  } else {
    total.set_without_slow_ranks(total.without_slow_ranks() + 1);
  }
  if (losses.has_unequal_lengths()) {
    *gpu_ns.mutable_unequal_lengths() = Times(losses.unequal_lengths(), so_far_ns);
    AddTo(gpu_ns.unequal_lengths(), sums.mutable_unequal_lengths());
  } else {
    total.set_without_unequal_lengths(total.without_unequal_lengths() + 1);
  }
}

}  // namespace seqpoint::queries
