#include "tests/workloads/faults.h"

#include <signal.h>
#include <unistd.h>

#include <cmath>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "tests/workloads/communicator.h"
#include "tests/workloads/gpu.h"

namespace seqpoint::workload {
namespace {

using Kind = Fault::Kind;

constexpr char kAllKernels[] = "kernels";

absl::Status Expected(const std::string& text, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" is not ", what));
}

bool ParseRank(absl::string_view text, int* rank) {
  return absl::SimpleAtoi(text, rank) && *rank >= 0;
}

bool ParseFactor(absl::string_view text, double* factor) {
  return absl::SimpleAtod(text, factor) && std::isfinite(*factor) && *factor > 0;
}

// Takes "@N", from N on, or "@N-M" off the end. Nothing: a mistake in it.
std::optional<absl::string_view> TakeIterations(absl::string_view text, Fault* fault) {
  const size_t at = text.rfind('@');
  if (at == absl::string_view::npos) return text;
  const std::pair<absl::string_view, absl::string_view> range =
      absl::StrSplit(text.substr(at + 1), absl::MaxSplits('-', 1));
  if (!absl::SimpleAtoi(range.first, &fault->first) || fault->first < 0) return std::nullopt;
  if (text.substr(at).find('-') == absl::string_view::npos) return text.substr(0, at);
  if (!absl::SimpleAtoi(range.second, &fault->last) || fault->last < fault->first) {
    return std::nullopt;
  }
  return text.substr(0, at);
}

// RANK:WORD:FACTOR, where WORD may have colons.
bool ParseNamed(const std::string& text, std::string* word, Fault* fault) {
  const auto body = TakeIterations(text, fault);
  if (!body.has_value()) return false;
  const size_t first = body->find(':');
  const size_t last = body->rfind(':');
  if (first == absl::string_view::npos || first == last) return false;
  *word = std::string(body->substr(first + 1, last - first - 1));
  return !word->empty() && ParseRank(body->substr(0, first), &fault->rank) &&
         ParseFactor(body->substr(last + 1), &fault->factor);
}

absl::StatusOr<Fault> ParseAt(const std::string& text, Kind kind) {
  Fault fault{.kind = kind};
  const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits('@', 1));
  if (!ParseRank(parts.first, &fault.rank) || !absl::SimpleAtoi(parts.second, &fault.first) ||
      fault.first < 0) {
    return Expected(text, "RANK@ITERATION, as in 1@100");
  }
  fault.last = fault.first;
  return fault;
}

}  // namespace

absl::StatusOr<Fault> ParseSlow(const std::string& text) {
  Fault fault{.kind = Kind::kKernels};
  if (!ParseNamed(text, &fault.kernels, &fault)) {
    return Expected(text,
                    "RANK:kernels:FACTOR[@N-M] or RANK:NAME:FACTOR[@N-M], as in "
                    "1:kernels:1.2@100-200");
  }
  if (fault.kernels == kAllKernels) fault.kernels.clear();
  return fault;
}

absl::StatusOr<Fault> ParseLate(const std::string& text) {
  Fault fault{.kind = Kind::kHost};
  std::string word;
  if (!ParseNamed(text, &word, &fault) || word != "host") {
    return Expected(text, "RANK:host:FACTOR[@N-M], as in 1:host:1.2@100");
  }
  return fault;
}

absl::StatusOr<Fault> ParseLoader(const std::string& text) {
  Fault fault{.kind = Kind::kLoader};
  if (const auto body = TakeIterations(text, &fault); body.has_value()) {
    const std::vector<absl::string_view> parts = absl::StrSplit(*body, ':');
    if (parts.size() == 2 && ParseRank(parts[0], &fault.rank) &&
        ParseFactor(parts[1], &fault.factor)) {
      return fault;
    }
  }
  return Expected(text, "RANK:MILLISECONDS[@N-M], as in 1:20@100");
}

absl::StatusOr<Fault> ParseLink(const std::string& text) {
  Fault fault{.kind = Kind::kLink};
  if (const auto body = TakeIterations(text, &fault); body.has_value()) {
    const std::vector<absl::string_view> parts = absl::StrSplit(*body, absl::ByAnyChar(":-"));
    if (parts.size() == 3 && ParseRank(parts[0], &fault.rank) &&
        ParseRank(parts[1], &fault.other_rank) && fault.rank != fault.other_rank &&
        ParseFactor(parts[2], &fault.factor)) {
      return fault;
    }
  }
  return Expected(text, "RANK-RANK:FACTOR[@N-M], as in 0-1:0.5@100");
}

absl::StatusOr<Fault> ParseHang(const std::string& text) { return ParseAt(text, Kind::kHang); }
absl::StatusOr<Fault> ParseDie(const std::string& text) { return ParseAt(text, Kind::kDie); }

Faults::Faults(std::vector<Fault> faults, const Ranks& ranks)
    : faults_(std::move(faults)), ranks_(ranks) {}

absl::Status Faults::Check(bool software_gpu) const {
  for (const Fault& fault : faults_) {
    if (std::max(fault.rank, fault.other_rank) >= ranks_.count) {
      return absl::InvalidArgumentError(
          absl::StrCat("a fault of rank ", std::max(fault.rank, fault.other_rank), ": there are ",
                       ranks_.count, " ranks, from 0 on"));
    }
    if (!software_gpu && (fault.kind == Kind::kKernels || fault.kind == Kind::kLink)) {
      return absl::InvalidArgumentError("--slow and --link: only the software GPU can do that");
    }
  }
  return absl::OkStatus();
}

template <typename Function>
void Faults::ForEachActing(Kind kind, int64_t iteration, const Function& function) const {
  for (const Fault& fault : faults_) {
    const bool concerns = kind == Kind::kLink || fault.rank == ranks_.rank;
    if (fault.kind == kind && concerns && fault.Acts(iteration)) function(fault);
  }
}

void Faults::BeginIteration(int64_t iteration) {
  iteration_ = iteration;
  if (faults_.empty()) return;
  // What acted before ends by the factor 1.
  for (auto& [part, factor] : kernels_) factor = 1;
  for (auto& [link, factor] : links_) factor = 1;
  double host = 1;
  ForEachActing(Kind::kKernels, iteration, [this](const Fault& fault) {
    double& factor = kernels_.try_emplace(fault.kernels, 1).first->second;
    factor *= fault.factor;
  });
  ForEachActing(Kind::kLink, iteration, [this](const Fault& fault) {
    double& factor = links_.try_emplace({fault.rank, fault.other_rank}, 1).first->second;
    factor *= fault.factor;
  });
  ForEachActing(Kind::kHost, iteration, [&host](const Fault& fault) { host *= fault.factor; });
  for (const auto& [part, factor] : kernels_) SlowKernels(part, factor);
  const SoftwareNccl nccl = FindSoftwareNccl();
  for (const auto& [link, factor] : links_) {
    if (nccl.link != nullptr) nccl.link(link.first, link.second, factor);
  }
  if (host != host_) SlowHost(host_ = host);
}

uint64_t Faults::LoaderDelayNs(int64_t iteration) const {
  double milliseconds = 0;
  ForEachActing(Kind::kLoader, iteration,
                [&](const Fault& fault) { milliseconds += fault.factor; });
  return static_cast<uint64_t>(milliseconds * 1e6);
}

void Faults::BeforeCollective() {
  ForEachActing(Kind::kHang, iteration_, [](const Fault&) {
    for (;;) pause();
  });
  ForEachActing(Kind::kDie, iteration_, [](const Fault&) {
    // The software NCCL kills it once the collective has been launched.
    const SoftwareNccl nccl = FindSoftwareNccl();
    if (nccl.die == nullptr) raise(SIGKILL);
    nccl.die();
  });
}

}  // namespace seqpoint::workload
