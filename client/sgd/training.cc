#include "client/sgd/training.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace seqpoint::sgd {

Training::Training(MPI_Comm communicator, std::vector<LocalLayer> layers, const Options& options,
                   const MakeProduct& make)
    : communicator_(communicator), options_(options), layers_(std::move(layers)) {
  activations_.resize(layers_.size() + 1);
  received_.resize(layers_.size());
  forward_traffic_.resize(layers_.size());
  backward_traffic_.resize(layers_.size());
  for (LocalLayer& layer : layers_) {
    own_.push_back(make(&layer.own));
    remote_.push_back(make(&layer.remote));
  }
}

const std::vector<LocalLayer>& Training::Layers() {
  for (const auto& product : own_) product->Store();
  for (const auto& product : remote_) product->Store();
  return layers_;
}

const Batch& Training::Forward(const Batch& input) {
  activations_[0] = input;
  for (size_t l = 0; l < layers_.size(); ++l) ForwardLayer(l);
  return activations_.back();
}

void Training::ForwardLayer(size_t l) {
  const LocalLayer& layer = layers_[l];
  outgoing_.resize(layer.peers.size());
  incoming_.resize(layer.peers.size());
  for (size_t p = 0; p < layer.peers.size(); ++p) {
    const Peer& peer = layer.peers[p];
    outgoing_[p].resize(peer.send.size(), options_.samples);
    for (size_t i = 0; i < peer.send.size(); ++i) {
      outgoing_[p].row(i) = activations_[l].row(peer.send[i]);
    }
    incoming_[p].resize(peer.receive_count, options_.samples);
  }
  Start(l, /*forward=*/true, outgoing_, incoming_);
  Batch& sums = activations_[l + 1];
  own_[l]->Multiply(activations_[l], &sums);
  Finish();
  received_[l].resize(layer.received.size(), options_.samples);
  for (size_t p = 0; p < layer.peers.size(); ++p) {
    received_[l].middleRows(layer.peers[p].receive_begin, layer.peers[p].receive_count) =
        incoming_[p];
  }
  remote_[l]->MultiplyAdd(received_[l], &sums);
  // The softmax is a part of the loss.
  const bool last = l + 1 == layers_.size();
  if (!last || options_.loss != Loss::kCrossEntropy) Activate(sums);
}

double Training::Backward(const Batch& target) {
  const double loss = LossAndGradient(target);
  for (size_t l = layers_.size(); l-- > 0;) BackwardLayer(l);
  return loss;
}

void Training::BackwardLayer(size_t l) {
  const LocalLayer& layer = layers_[l];
  const Batch partial = remote_[l]->MultiplyTransposed(gradient_);
  outgoing_.resize(layer.peers.size());
  incoming_.resize(layer.peers.size());
  for (size_t p = 0; p < layer.peers.size(); ++p) {
    const Peer& peer = layer.peers[p];
    outgoing_[p] = partial.middleRows(peer.receive_begin, peer.receive_count);
    incoming_[p].resize(peer.send.size(), options_.samples);
  }
  Start(l, /*forward=*/false, outgoing_, incoming_);
  Batch before = own_[l]->MultiplyTransposed(gradient_);

  const float step = options_.rate / static_cast<float>(options_.samples);
  own_[l]->Update(step, gradient_, activations_[l]);
  remote_[l]->Update(step, gradient_, received_[l]);

  Finish();
  for (size_t p = 0; p < layer.peers.size(); ++p) {
    for (size_t i = 0; i < layer.peers[p].send.size(); ++i) {
      before.row(layer.peers[p].send[i]) += incoming_[p].row(i);
    }
  }
  gradient_ = std::move(before);
  if (l > 0) {
    gradient_ =
        gradient_.cwiseProduct(activations_[l].unaryExpr([this](float y) { return Slope(y); }));
  }
}

double Training::LossAndGradient(const Batch& target) {
  const Batch& output = activations_.back();
  double local = 0, loss = 0;
  if (options_.loss == Loss::kSquares) {
    gradient_ = output - target;
    local = 0.5 * gradient_.cast<double>().squaredNorm();
    gradient_ = gradient_.cwiseProduct(output.unaryExpr([this](float y) { return Slope(y); }));
  } else {
    // Softmax over the neurons of all ranks, a sample at a time; the largest taken off first.
    Eigen::RowVectorXf largest =
        Eigen::RowVectorXf::Constant(options_.samples, -std::numeric_limits<float>::infinity());
    if (output.rows() > 0) largest = output.colwise().maxCoeff();
    MPI_Allreduce(MPI_IN_PLACE, largest.data(), options_.samples, MPI_FLOAT, MPI_MAX,
                  communicator_);
    const Batch powers = (output.rowwise() - largest).array().exp();
    Eigen::RowVectorXd sum = powers.cast<double>().colwise().sum();
    MPI_Allreduce(MPI_IN_PLACE, sum.data(), options_.samples, MPI_DOUBLE, MPI_SUM, communicator_);
    gradient_ = powers;
    for (int s = 0; s < options_.samples; ++s) gradient_.col(s) /= static_cast<float>(sum(s));
    for (int r = 0; r < output.rows(); ++r) {
      for (int s = 0; s < options_.samples; ++s) {
        if (target(r, s) == 0) continue;
        local -= target(r, s) * (output(r, s) - largest(s) - std::log(sum(s)));
      }
    }
    gradient_ -= target;
  }
  MPI_Allreduce(&local, &loss, 1, MPI_DOUBLE, MPI_SUM, communicator_);
  return loss / options_.samples;
}

void Training::Activate(Batch& sums) const {
  const float bias = options_.bias;
  switch (options_.activation) {
    case Activation::kSigmoid:
      sums = sums.unaryExpr([bias](float x) { return 1 / (1 + std::exp(-(x + bias))); });
      break;
    case Activation::kRelu:
      sums = sums.unaryExpr([bias](float x) { return std::max(0.0f, x + bias); });
      break;
    case Activation::kClipped:
      // The bias goes to what is not zero, as GraphChallenge has it.
      sums = sums.unaryExpr(
          [bias](float x) { return x == 0 ? 0.0f : std::min(32.0f, std::max(0.0f, x + bias)); });
      break;
  }
}

float Training::Slope(float activated) const {
  switch (options_.activation) {
    case Activation::kSigmoid:
      return activated * (1 - activated);
    case Activation::kRelu:
      return activated > 0 ? 1 : 0;
    case Activation::kClipped:
      return activated > 0 && activated < 32 ? 1 : 0;
  }
  return 0;
}

void Training::Start(size_t l, bool forward, const std::vector<Batch>& sent,
                     std::vector<Batch>& received) {
  const std::vector<Peer>& peers = layers_[l].peers;
  const int tag = static_cast<int>(l) * 2 + (forward ? 0 : 1);
  requests_.clear();
  for (size_t p = 0; p < peers.size(); ++p) {
    if (received[p].size() == 0) continue;
    MPI_Irecv(received[p].data(), static_cast<int>(received[p].size()), MPI_FLOAT, peers[p].rank,
              tag, communicator_, &requests_.emplace_back());
  }
  Traffic& traffic = (forward ? forward_traffic_ : backward_traffic_)[l];
  for (size_t p = 0; p < peers.size(); ++p) {
    if (sent[p].size() == 0) continue;
    MPI_Isend(sent[p].data(), static_cast<int>(sent[p].size()), MPI_FLOAT, peers[p].rank, tag,
              communicator_, &requests_.emplace_back());
    traffic.words += sent[p].rows();
    ++traffic.messages;
  }
}

void Training::Finish() {
  MPI_Waitall(static_cast<int>(requests_.size()), requests_.data(), MPI_STATUSES_IGNORE);
  requests_.clear();
}

}  // namespace seqpoint::sgd
