#include "daemon/ranks/rank_question.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace seqpoint::ranks {
namespace {

Comparisons AgainstPeers(const RankQuestion& question) {
  Comparisons result;
  result.with = absl::StrCat("on ", RanksInWords(question.peers));
  const auto add = [&](const IterationProfiles& iteration, int32_t rank,
                       std::vector<Compared>* to) {
    Compared compared = {ProfileOf(iteration, rank), {}};
    for (const int32_t peer : question.peers) {
      const RankProfile* profile = ProfileOf(iteration, peer);
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

Comparisons AgainstEarlier(const RankQuestion& question) {
  Comparisons result;
  result.with = absl::StrCat("in ", question.earlier.size(), " earlier ",
                             question.earlier.size() == 1 ? "iteration" : "iterations");
  std::vector<const RankProfile*> earlier;
  for (const IterationProfiles& iteration : question.earlier) {
    if (const RankProfile* profile = ProfileOf(iteration, question.rank)) {
      earlier.push_back(profile);
    }
  }
  if (earlier.empty()) return result;
  for (const IterationProfiles& iteration : question.iterations) {
    if (const RankProfile* profile = ProfileOf(iteration, question.rank)) {
      result.rank.push_back({profile, earlier});
    }
  }
  for (const RankProfile* profile : earlier) {
    Compared compared = {profile, {}};
    std::copy_if(earlier.begin(), earlier.end(), std::back_inserter(compared.reference),
                 [&](const RankProfile* other) { return other != profile; });
    if (!compared.reference.empty()) result.noise.push_back(std::move(compared));
  }
  return result;
}

}  // namespace

Comparisons ComparisonsOf(const RankQuestion& question) {
  return question.peers.empty() ? AgainstEarlier(question) : AgainstPeers(question);
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
