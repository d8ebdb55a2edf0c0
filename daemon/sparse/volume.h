// The judge: it alone counts the words that a partition sends, and decides whether it is balanced.
//
// Counts on the matrices as they were read, and shares no code with the methods (hypergraph,
// coarsening, search), so that a fault in one of these shows. The model: docs/using/partition.md,
// "What is counted". Cost: linear in the nonzeros. No state; any thread.
#ifndef SEQPOINT_DAEMON_SPARSE_VOLUME_H_
#define SEQPOINT_DAEMON_SPARSE_VOLUME_H_

#include <stdint.h>

#include <vector>

#include "absl/status/status.h"
#include "daemon/sparse/network.h"

namespace seqpoint::sparse {

// The activations that one rank sends to another before one layer is computed. In the backward pass
// `receiver` sends as many partial sums to `sender`.
struct Message {
  int layer = 0;  // index into Network::layers, of the matrix that consumes them
  int32_t sender = 0;
  int32_t receiver = 0;
  std::vector<int32_t> neurons;  // columns of that matrix, ascending
};

struct LayerVolume {
  int64_t words = 0;  // numbers sent, of one sample
  int64_t messages = 0;

  friend bool operator==(const LayerVolume&, const LayerVolume&) = default;
};

struct Volume {
  std::vector<LayerVolume> layers;
  int64_t words = 0;
  int64_t messages = 0;
  std::vector<int64_t> sent_words;  // of each part
  int64_t largest_sender_words = 0;
  // How many more nonzeros than the mean the fullest part has, as a share; the worst layer counts.
  double imbalance = 0;
  int imbalance_layer = 0;  // where that is
};

// InvalidArgument: a neuron without a part, a part that does not exist, or owners of another
// network.
absl::Status CheckOwners(const Network& network, const Owners& owners, int parts);

// Counts a forward pass; with `training` a forward and a backward pass. The owners are those of the
// network (CheckOwners).
Volume CountVolume(const Network& network, const Owners& owners, int parts, bool training = false);

// The words sent in a forward pass, by layer, sender and receiver.
std::vector<Message> SendLists(const Network& network, const Owners& owners, int parts);

}  // namespace seqpoint::sparse

#endif  // SEQPOINT_DAEMON_SPARSE_VOLUME_H_
