// Inference and stochastic gradient descent on a sparse network, each rank with its rows.
//
// A step of a layer, forwards: the activations that others need are sent, the product with those
// that are here is made while they travel, then the product with those that came. Backwards: the
// partial sums of others' gradients are sent, one's own are made and the weights updated while they
// travel. Only stored nonzeros are weights; the others stay zero.
//
// The sums are made in an order that does not depend on which message comes first: the same run
// gives the same numbers. Threading: one thread per rank; every rank makes the same calls.
#ifndef CLIENT_SGD_TRAINING_H_
#define CLIENT_SGD_TRAINING_H_

#include <mpi.h>
#include <stdint.h>

#include <memory>
#include <vector>

#include "client/sgd/local_layer.h"
#include "client/sgd/local_product.h"
#include "daemon/sparse/volume.h"

namespace seqpoint::sgd {

// Clipped: GraphChallenge's min(32, max(0, x)).
enum class Activation { kSigmoid, kRelu, kClipped };
enum class Loss { kSquares, kCrossEntropy };  // the latter over a softmax of the last layer

using Traffic = sparse::LayerVolume;

class Training {
 public:
  struct Options {
    Activation activation = Activation::kSigmoid;
    Loss loss = Loss::kSquares;
    float bias = 0;  // added to every weighted sum; GraphChallenge's is -0.3 to -0.45
    float rate = 0.1f;
    int samples = 32;  // of a minibatch
  };

  // `layers`: this rank's, first layer first. MPI is initialised; errors of MPI end the program.
  Training(MPI_Comm communicator, std::vector<LocalLayer> layers, const Options& options,
           const MakeProduct& make = &MakeEigenProduct);
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;

  // `input`: this rank's neurons of the input layer. Answers this rank's of the last one; valid up
  // to the next call.
  const Batch& Forward(const Batch& input);

  // After Forward: the loss of the minibatch, the same on all ranks (mean over its samples), and a
  // step of the weights. `target`: this rank's neurons of the last layer.
  double Backward(const Batch& target);

  // After Backward, of the loss by this rank's inputs: what makes these may learn, too
  // (embeddings).
  const Batch& input_gradient() const { return gradient_; }

  // With the weights after the last step.
  const std::vector<LocalLayer>& Layers();
  // The sums of all steps so far, for each layer and one sample of each minibatch.
  const std::vector<Traffic>& forward_traffic() const { return forward_traffic_; }
  const std::vector<Traffic>& backward_traffic() const { return backward_traffic_; }

 private:
  void ForwardLayer(size_t l);
  void BackwardLayer(size_t l);
  double LossAndGradient(const Batch& target);
  void Activate(Batch& sums) const;
  float Slope(float activated) const;

  // Starts to send `sent` and to receive `received` of layer `l`'s peers; rows are neurons.
  void Start(size_t l, bool forward, const std::vector<Batch>& sent, std::vector<Batch>& received);
  void Finish();

  const MPI_Comm communicator_;
  const Options options_;
  std::vector<LocalLayer> layers_;
  std::vector<std::unique_ptr<LocalProduct>> own_, remote_;  // of each layer
  std::vector<Batch> activations_;          // [0]: the input; [l + 1]: the output of layer l
  std::vector<Batch> received_;             // of each layer: the others' inputs
  Batch gradient_;                          // of the loss by the weighted sums of the layer at hand
  std::vector<Batch> outgoing_, incoming_;  // one of each per peer
  std::vector<MPI_Request> requests_;
  std::vector<Traffic> forward_traffic_, backward_traffic_;
};

}  // namespace seqpoint::sgd

#endif  // CLIENT_SGD_TRAINING_H_
