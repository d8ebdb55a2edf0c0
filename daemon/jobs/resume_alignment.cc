#include "daemon/jobs/resume_alignment.h"

#include <algorithm>
#include <utility>

namespace seqpoint::jobs {

void ResumeAlignment::Add(const FinishedIteration& iteration, int dimensions) {
  buffered_.push_back(iteration);
  if (aligner_) Feed(iteration, dimensions);
}

void ResumeAlignment::SetLog(int64_t begin, std::vector<KnownLengths> log, int dimensions) {
  aligner_.emplace(begin, std::move(log));
  fed_to_.reset();
  for (const FinishedIteration& iteration : buffered_) Feed(iteration, dimensions);
}

void ResumeAlignment::Feed(const FinishedIteration& iteration, int dimensions) {
  // Iterations whose records were lost happened all the same.
  const uint64_t first = fed_to_ ? *fed_to_ + 1 : iteration.number();
  for (uint64_t lost = first; lost < iteration.number() && !aligner_->decided(); ++lost) {
    aligner_->Add(std::nullopt);
  }
  fed_to_ = iteration.number();
  const uint32_t wanted = (1u << dimensions) - 1;
  KnownLengths lengths;
  if (wanted != 0 && (iteration.valid() & wanted) == wanted) {
    lengths.emplace(iteration.first_length(), dimensions > 1 ? iteration.second_length() : 0);
  }
  aligner_->Add(lengths);
}

bool ResumeAlignment::full(const ProcessState& process) const {
  if (!has_log() || buffered_.empty()) return buffered_.size() >= kMostWithoutLog;
  const uint64_t next = buffered_.back().number() + 1;
  const auto marked_from = static_cast<uint64_t>(process.marked_from());
  const uint64_t marked = next - std::clamp(marked_from, buffered_.front().number(), next);
  return buffered_.size() >= kMostWithoutLog ||
         marked >= (process.unmatched() ? kMostUnmatched : ResumeAligner::kMaxIterations);
}

std::optional<int64_t> ResumeAlignment::Repeated() const {
  if (!aligner_ || buffered_.empty()) return std::nullopt;
  const std::optional<int64_t> number = aligner_->first_number();
  if (!number) return std::nullopt;
  return static_cast<int64_t>(buffered_.front().number()) - *number;
}

std::vector<int64_t> ResumeAlignment::Places() const {
  return aligner_ ? aligner_->places_found() : std::vector<int64_t>();
}

std::vector<FinishedIteration> ResumeAlignment::End() {
  aligner_.reset();
  return std::exchange(buffered_, {});
}

}  // namespace seqpoint::jobs
