#include "client/text/fleet_text.h"

#include <cmath>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/text/format.h"
#include "client/text/plain_text.h"

namespace seqpoint::client {
namespace {

std::string TimeText(bool known, const v1::Estimate& estimate) {
  if (!known) return "-";
  const FormattedEstimate text = FormatEstimate(estimate, "ns");
  return text.precision.empty() ? text.value : absl::StrCat(text.value, " ", text.precision);
}

// With its interval, as small figures have wide ones.
std::string LossText(bool known, const v1::Estimate& loss, const v1::Estimate& of) {
  if (!known) return "-";
  if (!(of.value() > 0)) return "0";
  return absl::StrCat(FormatShare(loss.value() / of.value()), " (",
                      FormatShare(loss.low() / of.value()), " to ",
                      FormatShare(loss.high() / of.value()), ")");
}

// The sum over jobs; their errors are independent.
struct Savings {
  double value = 0, below = 0, above = 0;
  int jobs = 0, unknown = 0;

  void Add(const v1::Estimate& saved, double ranks) {
    ++jobs;
    value += ranks * saved.value();
    below = std::hypot(below, ranks * (saved.value() - saved.low()));
    above = std::hypot(above, ranks * (saved.high() - saved.value()));
  }
  std::string ToString() const {
    v1::Estimate sum;
    sum.set_value(value);
    sum.set_low(value - below);
    sum.set_high(value + above);
    const FormattedEstimate text = FormatEstimate(sum, "ns");
    return absl::StrCat(
        "the change would save ", text.value, " of GPU time (", text.interval, ") in ",
        FormatCount(jobs, "job"),
        unknown > 0 ? absl::StrCat("; of ", FormatCount(unknown, "job"), " it is not known") : "",
        "\n");
  }
};

// "; of 2 jobs that is not known"
std::string Without(int64_t jobs) {
  return jobs == 0 ? "" : absl::StrCat("; of ", FormatCount(jobs, "job"), " it is not known");
}

std::string TotalText(const v1::FleetTotal& total) {
  if (total.jobs() == 0) return "no job has GPU time\n";
  const v1::FleetTimes& gpu_ns = total.gpu_ns();
  std::string text = absl::StrCat(FormatCount(total.jobs(), "job"), ", ",
                                  TimeText(true, gpu_ns.so_far()), " of GPU time\n");
  if (total.live_jobs() > 0) {
    absl::StrAppend(&text, "to come: ", TimeText(gpu_ns.has_remaining(), gpu_ns.remaining()),
                    " in ", FormatCount(total.live_jobs() - total.without_remaining(), "job"),
                    " that ", total.live_jobs() - total.without_remaining() == 1 ? "runs" : "run",
                    Without(total.without_remaining()), "\n");
  }
  absl::StrAppend(&text,
                  "lost to slow ranks: ", TimeText(gpu_ns.has_slow_ranks(), gpu_ns.slow_ranks()),
                  Without(total.without_slow_ranks()), "\n");
  absl::StrAppend(&text, "lost to unequal lengths: ",
                  TimeText(gpu_ns.has_unequal_lengths(), gpu_ns.unequal_lengths()),
                  Without(total.without_unequal_lengths()), "\n");
  return text;
}

}  // namespace

std::string FleetText(const v1::GetFleetReply& fleet, const FleetWhatIf& what_if) {
  if (fleet.jobs_size() == 0) return "no jobs, or none that matches\n";
  Table table({"JOB", "STATE", ">RANKS", ">GPU TIME", ">TO COME", ">SLOW RANKS", ">UNEQUAL LENGTHS",
               ">WOULD SAVE"});
  std::string notes;
  Savings savings;
  for (const v1::FleetJob& job : fleet.jobs()) {
    const std::string title = absl::StrCat(job.name(), "@", job.run_id());
    const v1::FleetTimes& gpu_ns = job.gpu_ns();
    std::string saves;
    if (const auto asked = what_if.find(job.job_id()); asked != what_if.end()) {
      const absl::StatusOr<v1::WhatIfReply>& reply = asked->second;
      saves = "-";
      if (!reply.ok()) {
        ++savings.unknown;
        absl::StrAppend(&notes, title, ": what the change would save is not known: ",
                        Printable(std::string(reply.status().message())), "\n");
      } else if (reply->answers_size() > 0) {
        const v1::WhatIfAnswer& answer = reply->answers(0);
        saves = LossText(true, answer.saved(), answer.before());
        savings.Add(answer.saved(), job.ranks());
      }
    }
    table.AddRow(
        {title, JobStateName(job.state()), job.ranks() > 0 ? FormatCount(job.ranks()) : "-",
         TimeText(job.has_gpu_ns(), gpu_ns.so_far()),
         gpu_ns.has_remaining() ? TimeText(true, gpu_ns.remaining()) : "",
         LossText(gpu_ns.has_slow_ranks(), gpu_ns.slow_ranks(), gpu_ns.so_far()),
         LossText(gpu_ns.has_unequal_lengths(), gpu_ns.unequal_lengths(), gpu_ns.so_far()), saves});
    if (!job.message().empty()) absl::StrAppend(&notes, title, ": ", job.message(), "\n");
  }
  return absl::StrCat(table.ToString(), "\n", TotalText(fleet.total()),
                      what_if.empty() ? "" : savings.ToString(), notes.empty() ? "" : "\n", notes);
}

}  // namespace seqpoint::client
