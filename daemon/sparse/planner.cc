#include "daemon/sparse/planner.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "daemon/base/status_macros.h"
#include "daemon/sparse/baselines.h"
#include "daemon/sparse/joint_search.h"
#include "proto/invalid_argument.h"

namespace seqpoint::sparse {
namespace {

class Planner {
 public:
  Planner(const Network& network, const PlannerOptions& options,
          const HypergraphPartitioner& partitioner)
      : network_(network), options_(options), partitioner_(partitioner) {}

  absl::StatusOr<Plan> Run() {
    SEQPOINT_RETURN_IF_ERROR(Check());
    const Owners random = RandomParts(network_, options_.parts, options_.seed);
    const Owners blocks = BlockParts(network_, options_.parts);
    plan_.random = Count(random);
    plan_.blocks = Count(blocks);
    candidates_.push_back(blocks);
    if (partitioner_ != nullptr) {
      SEQPOINT_RETURN_IF_ERROR(AskPartitioner());
    }
    Search();
    plan_.volume = Count(plan_.owners);
    AddNotes();
    return std::move(plan_);
  }

 private:
  absl::Status Check() const {
    if (options_.parts < 1 || options_.parts > kMostParts) {
      return InvalidArgument(options_.parts, " parts; there are 1 to ", kMostParts);
    }
    for (size_t l = 0; l < network_.layers.size(); ++l) {
      if (network_.layers[l].rows < options_.parts) {
        return InvalidArgument(
            "layer ", l + 1, " has ", network_.layers[l].rows, " neurons, fewer than the ",
            options_.parts,
            " parts; take as many parts as the smallest layer has neurons, or fewer");
      }
    }
    return absl::OkStatus();
  }

  Volume Count(const Owners& owners) const {
    return CountVolume(network_, owners, options_.parts, options_.training);
  }

  bool Stopped() const { return options_.stop && options_.stop(); }

  void Say(const std::string& what) const {
    if (options_.progress) options_.progress(what);
  }

  // The published method, and each layer by itself.
  absl::Status AskPartitioner() {
    for (const bool alone : {false, true}) {
      absl::StatusOr<Owners> owners =
          LayerByLayer(network_, options_.parts, options_.imbalance, options_.seed, alone,
                       partitioner_, [&](size_t layer) {
                         Say(absl::StrCat("layer ", layer + 1, " of ", network_.layers.size(), ", ",
                                          alone ? "alone" : "after those before it"));
                         return !Stopped();
                       });
      if (absl::IsCancelled(owners.status())) return absl::OkStatus();
      if (!owners.ok()) return owners.status();
      if (!alone) plan_.layer_by_layer = Count(*owners);
      candidates_.push_back(*std::move(owners));
    }
    return absl::OkStatus();
  }

  void Search() {
    JointSearchOptions search{.parts = options_.parts,
                              .imbalance = options_.imbalance,
                              .seed = options_.seed,
                              .effort = options_.effort,
                              .stop = options_.stop};
    if (options_.progress) {
      search.progress = [&](double share, int64_t words) {
        options_.progress(absl::StrFormat("all layers, %.0f %%: %d words", 100 * share,
                                          words * (options_.training ? 2 : 1)));
      };
    }
    JointSearchResult result = SearchJointly(network_, candidates_, search);
    plan_.owners = std::move(result.owners);
    plan_.stopped = result.stopped;
  }

  void AddNotes() {
    if (plan_.volume.imbalance > options_.imbalance) {
      plan_.notes.push_back(
          absl::StrFormat("the imbalance of %.2f %% in layer %d is more than %.2f %%: its rows do "
                          "not divide better",
                          100 * plan_.volume.imbalance, plan_.volume.imbalance_layer + 1,
                          100 * options_.imbalance));
    }
    if (plan_.layer_by_layer.has_value() && plan_.layer_by_layer->imbalance > options_.imbalance) {
      plan_.notes.push_back(absl::StrFormat(
          "the layer-by-layer partition has an imbalance of %.2f %% (in layer %d)",
          100 * plan_.layer_by_layer->imbalance, plan_.layer_by_layer->imbalance_layer + 1));
    }
  }

  const Network& network_;
  const PlannerOptions& options_;
  const HypergraphPartitioner& partitioner_;
  std::vector<Owners> candidates_;
  Plan plan_;
};

}  // namespace

absl::StatusOr<Plan> MakePlan(const Network& network, const PlannerOptions& options,
                              const HypergraphPartitioner& partitioner) {
  return Planner(network, options, partitioner).Run();
}

}  // namespace seqpoint::sparse
