#include "daemon/jobs/resume_aligner.h"

#include <algorithm>
#include <cmath>

namespace seqpoint::jobs {
namespace {

constexpr double kChance = 1e-3;  // expected number of accidental places

}  // namespace

ResumeAligner::ResumeAligner(int64_t begin, std::vector<KnownLengths> log)
    : begin_(begin), log_(std::move(log)) {
  double known = 0;
  for (const KnownLengths& lengths : log_) {
    if (!lengths) continue;
    ++log_share_[*lengths];
    ++known;
  }
  for (auto& [lengths, share] : log_share_) share = std::log(share / known);
  places_.resize(log_.size());
  for (size_t i = 0; i < places_.size(); ++i) places_[i].index = i;
  // One length alone does not show the place.
  if (log_share_.size() < 2) Decide({});
}

void ResumeAligner::Decide(std::vector<int64_t> places_found) {
  decided_ = true;
  places_found_ = std::move(places_found);
  log_ = {};
  places_ = {};
}

void ResumeAligner::Add(const KnownLengths& lengths) {
  if (decided_) return;
  const size_t step = added_++;
  if (lengths) {
    std::erase_if(places_, [&](Place& place) {
      const size_t at = place.index + step;
      if (at >= log_.size() || !log_[at]) return false;
      if (*log_[at] != *lengths) return true;
      place.log_chance += log_share_.at(*lengths);
      return false;
    });
  }
  const double enough = std::log(kChance / static_cast<double>(log_.size()));
  std::vector<int64_t> good;  // in order of index
  size_t open = 0;
  for (const Place& place : places_) {
    if (place.index + added_ < log_.size()) ++open;
    if (place.log_chance > enough) continue;
    good.push_back(begin_ + static_cast<int64_t>(place.index));
  }
  const bool settled = good.size() == 1 || open == 0 || added_ >= kMaxIterations;
  if (settled) Decide(std::move(good));
}

}  // namespace seqpoint::jobs
