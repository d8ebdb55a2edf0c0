#include "daemon/ranks/rank_question.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/base/statistics.h"

namespace seqpoint::ranks {
namespace {

// Null: the rank has none that is comparable.
const RankProfile* Undisturbed(const IterationProfiles& iteration, int32_t rank) {
  const RankProfile* const profile = ProfileOf(iteration, rank);
  return profile != nullptr && !profile->disturbed ? profile : nullptr;
}

Comparisons AgainstPeers(const RankQuestion& question) {
  Comparisons result;
  result.with = absl::StrCat("on ", RanksInWords(question.peers));
  const auto add = [&](const IterationProfiles& iteration, int32_t rank,
                       std::vector<Compared>* to) {
    Compared compared = {Undisturbed(iteration, rank), {}};
    for (const int32_t peer : question.peers) {
      const RankProfile* profile = Undisturbed(iteration, peer);
      if (peer != rank && profile != nullptr) compared.reference.push_back(profile);
    }
    if (compared.rank != nullptr && !compared.reference.empty()) to->push_back(compared);
  };
  for (const IterationProfiles& iteration : question.iterations) {
    add(iteration, question.rank, &result.rank);
    for (const int32_t peer : question.peers) add(iteration, peer, &result.noise);
  }
  for (const IterationProfiles& iteration : question.earlier) {
    add(iteration, question.rank, &result.noise);
  }
  return result;
}

// Libraries try kernels when a length is new: a name that ran more often then tells nothing.
constexpr size_t kLeastFirstTimes = 2;

struct NameSum {
  double count = 0, ns = 0;
};
std::map<std::string, NameSum> SumsByName(const RankProfile& profile) {
  std::map<std::string, NameSum> sums;
  for (const auto& [key, use] : profile.kernels) {
    sums[key.name].count += use.count;
    sums[key.name].ns += use.sum_ns;
  }
  return sums;
}

// Null: it cannot be compared with a later one. `first`: of lengths that were new to all ranks.
const RankProfile* EarlierOf(const IterationProfiles& then, int32_t rank, bool first) {
  return first ? ProfileOf(then, rank) : Undisturbed(then, rank);
}

// Stages of a pipeline work on the same batches. How much longer the kernels of the other stages
// take now than they took then is what the batches explain.
class BatchChange {
 public:
  BatchChange(const IterationProfiles& then, const IterationProfiles& now, int32_t rank,
              bool first) {
    for (const RankProfile& stage : now) {
      const RankProfile* const earlier = EarlierOf(then, stage.rank, first);
      if (stage.rank == rank || stage.disturbed || earlier == nullptr) continue;
      Add(earlier->time[Spent::kKernels], stage.time[Spent::kKernels], &all_);
      const std::map<std::string, NameSum> sums = SumsByName(*earlier);
      for (const auto& [name, sum] : SumsByName(stage)) {
        const auto it = sums.find(name);
        if (it == sums.end() || (first && it->second.count != sum.count)) continue;
        Add(it->second.ns, sum.ns, &names_[name]);
      }
    }
  }

  double factor() const { return Median(all_, 1.0); }
  double FactorOf(const std::string& name) const {
    const auto it = names_.find(name);
    return it == names_.end() ? factor() : Median(it->second, 1.0);
  }

 private:
  static void Add(double then_ns, double now_ns, std::vector<double>* factors) {
    if (then_ns > 0 && now_ns > 0) factors->push_back(now_ns / then_ns);
  }

  std::vector<double> all_;
  std::map<std::string, std::vector<double>> names_;
};

// The earlier iteration of a rank, at the batch of `now`.
RankProfile AtBatchOf(const RankProfile& now, RankProfile earlier, const BatchChange& change,
                      bool first) {
  const double factor = change.factor();
  for (const Spent spent : {Spent::kKernels, Spent::kWaiting, Spent::kTransfer}) {
    earlier.time.iteration_ns += earlier.time[spent] * (factor - 1);
    earlier.time[spent] *= factor;
  }
  const std::map<std::string, NameSum> then_sums = SumsByName(earlier), now_sums = SumsByName(now);
  earlier.kernels.clear();
  // Grids are those of the batch.
  for (const auto& [key, use] : now.kernels) {
    const auto it = then_sums.find(key.name);
    if (it == then_sums.end() || use.sum_ns <= 0) continue;
    const NameSum& sum = now_sums.at(key.name);
    if (first && it->second.count != sum.count) continue;
    const double by = it->second.ns * change.FactorOf(key.name) / sum.ns;
    earlier.kernels[key] = {use.count, use.sum_ns * by, use.median_ns * by, use.spread_ns * by};
  }
  earlier.lengths = now.lengths;
  return earlier;
}

// `first`: with the first iterations of lengths.
Comparisons AgainstEarlier(const RankQuestion& question, bool first) {
  const absl::Span<const IterationProfiles> with = first ? question.first_times : question.earlier;
  Comparisons result;
  result.first_times = first;
  const auto add = [&](const IterationProfiles& iteration, int32_t rank,
                       std::vector<Compared>* to) {
    Compared compared = {EarlierOf(iteration, rank, first), {}};
    if (compared.rank == nullptr) return;
    for (const IterationProfiles& then : with) {
      const RankProfile* const earlier = EarlierOf(then, rank, first);
      if (earlier == nullptr || earlier == compared.rank) continue;
      const BatchChange change(then, iteration, rank, first);
      result.own.push_back(AtBatchOf(*compared.rank, *earlier, change, first));
      compared.reference.push_back(&result.own.back());
    }
    if (!compared.reference.empty()) to->push_back(std::move(compared));
  };
  for (const IterationProfiles& iteration : question.iterations) {
    add(iteration, question.rank, &result.rank);
  }
  for (const IterationProfiles& iteration : with) add(iteration, question.rank, &result.noise);
  const size_t earlier = result.rank.empty() ? 0 : result.rank.front().reference.size();
  result.with = absl::StrCat("in ", earlier, " earlier ", earlier == 1 ? "iteration" : "iterations",
                             first ? ", the first of their lengths" : "");
  return result;
}

}  // namespace

Comparisons ComparisonsOf(const RankQuestion& question) {
  if (!question.peers.empty()) return AgainstPeers(question);
  Comparisons usual = AgainstEarlier(question, false);
  const bool none = usual.rank.empty() && question.first_times.size() >= kLeastFirstTimes;
  return none ? AgainstEarlier(question, true) : std::move(usual);
}

bool TellsOf(const IterationProfiles& iteration, int32_t rank) {
  const auto others = std::count_if(
      iteration.begin(), iteration.end(),
      [&](const RankProfile& profile) { return profile.rank != rank && !profile.disturbed; });
  return Undisturbed(iteration, rank) != nullptr && others > 0;
}

const RankProfile* ProfileOf(const IterationProfiles& iteration, int32_t rank) {
  const auto it = std::find_if(iteration.begin(), iteration.end(),
                               [&](const RankProfile& profile) { return profile.rank == rank; });
  return it == iteration.end() ? nullptr : &*it;
}

std::string RanksInWords(const std::vector<int32_t>& ranks) {
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ", absl::StrJoin(ranks, ", "));
}

}  // namespace seqpoint::ranks
