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

std::map<std::string, double> SumsByName(const RankProfile& profile) {
  std::map<std::string, double> sums_ns;
  for (const auto& [key, use] : profile.kernels) sums_ns[key.name] += use.sum_ns;
  return sums_ns;
}

// Stages of a pipeline work on the same batches. How much longer the kernels of the other stages
// take now than they took then is what the batches explain.
class BatchChange {
 public:
  BatchChange(const IterationProfiles& then, const IterationProfiles& now, int32_t rank) {
    for (const RankProfile& stage : now) {
      const RankProfile* const earlier = Undisturbed(then, stage.rank);
      if (stage.rank == rank || stage.disturbed || earlier == nullptr) continue;
      Add(earlier->time[Spent::kKernels], stage.time[Spent::kKernels], &all_);
      const std::map<std::string, double> earlier_ns = SumsByName(*earlier);
      for (const auto& [name, ns] : SumsByName(stage)) {
        const auto it = earlier_ns.find(name);
        if (it != earlier_ns.end()) Add(it->second, ns, &names_[name]);
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
RankProfile AtBatchOf(const RankProfile& now, RankProfile earlier, const BatchChange& change) {
  const double factor = change.factor();
  for (const Spent spent : {Spent::kKernels, Spent::kWaiting, Spent::kTransfer}) {
    earlier.time.iteration_ns += earlier.time[spent] * (factor - 1);
    earlier.time[spent] *= factor;
  }
  const std::map<std::string, double> then_ns = SumsByName(earlier), now_ns = SumsByName(now);
  earlier.kernels.clear();
  // Grids are those of the batch.
  for (const auto& [key, use] : now.kernels) {
    const auto it = then_ns.find(key.name);
    if (it == then_ns.end() || use.sum_ns <= 0) continue;
    const double by = it->second * change.FactorOf(key.name) / now_ns.at(key.name);
    earlier.kernels[key] = {use.count, use.sum_ns * by, use.median_ns * by, use.spread_ns * by};
  }
  earlier.lengths = now.lengths;
  return earlier;
}

Comparisons AgainstEarlier(const RankQuestion& question) {
  Comparisons result;
  const auto add = [&](const IterationProfiles& iteration, int32_t rank,
                       std::vector<Compared>* to) {
    Compared compared = {Undisturbed(iteration, rank), {}};
    if (compared.rank == nullptr) return;
    for (const IterationProfiles& then : question.earlier) {
      const RankProfile* const earlier = Undisturbed(then, rank);
      if (earlier == nullptr || earlier == compared.rank) continue;
      const BatchChange change(then, iteration, rank);
      result.own.push_back(AtBatchOf(*compared.rank, *earlier, change));
      compared.reference.push_back(&result.own.back());
    }
    if (!compared.reference.empty()) to->push_back(std::move(compared));
  };
  for (const IterationProfiles& iteration : question.iterations) {
    add(iteration, question.rank, &result.rank);
  }
  for (const IterationProfiles& iteration : question.earlier) {
    add(iteration, question.rank, &result.noise);
  }
  const size_t earlier = result.rank.empty() ? 0 : result.rank.front().reference.size();
  result.with =
      absl::StrCat("in ", earlier, " earlier ", earlier == 1 ? "iteration" : "iterations");
  return result;
}

}  // namespace

Comparisons ComparisonsOf(const RankQuestion& question) {
  return question.peers.empty() ? AgainstEarlier(question) : AgainstPeers(question);
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
