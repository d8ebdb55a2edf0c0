#include "client/sgd/data.h"

#include <cmath>

namespace seqpoint::sgd {
namespace {

// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}
uint64_t Hash(uint64_t seed, uint64_t a, uint64_t b, uint64_t c) {
  return Mix(Mix(Mix(Mix(seed) + a) + b) + c);
}
double Uniform(uint64_t hash) { return static_cast<double>(hash >> 11) * 0x1p-53; }

int ClassOf(uint64_t seed, int64_t sample) {
  return static_cast<int>(Hash(seed, 1, static_cast<uint64_t>(sample), 0) % kClasses);
}

}  // namespace

Batch Inputs(uint64_t seed, int64_t first, int samples, const std::vector<int32_t>& neurons) {
  Batch inputs(neurons.size(), samples);
  for (size_t i = 0; i < neurons.size(); ++i) {
    for (int s = 0; s < samples; ++s) {
      const uint64_t neuron = neurons[i];
      const bool often = Hash(seed, 2, neuron, ClassOf(seed, first + s)) % 4 == 0;
      const double share = often ? 0.8 : 0.1;
      inputs(i, s) = Uniform(Hash(seed, 3, neuron, first + s)) < share ? 1 : 0;
    }
  }
  return inputs;
}

Batch Targets(uint64_t seed, int64_t first, int samples, const std::vector<int32_t>& neurons,
              int32_t outputs, Loss loss) {
  Batch targets = Batch::Zero(neurons.size(), samples);
  for (int s = 0; s < samples; ++s) {
    const int wanted = ClassOf(seed, first + s);
    const int32_t alike = (outputs - wanted + kClasses - 1) / kClasses;
    const float one = loss == Loss::kCrossEntropy && alike > 0 ? 1.0f / alike : 1.0f;
    for (size_t i = 0; i < neurons.size(); ++i) {
      if (neurons[i] % kClasses == wanted) targets(i, s) = one;
    }
  }
  return targets;
}

void DrawWeights(uint64_t seed, sparse::Network& network) {
  for (size_t l = 0; l < network.layers.size(); ++l) {
    sparse::Layer& layer = network.layers[l];
    for (int32_t row = 0; row < layer.rows; ++row) {
      const int64_t count = layer.row_begin[row + 1] - layer.row_begin[row];
      const double most = std::sqrt(6.0 / static_cast<double>(count));
      for (int64_t i = layer.row_begin[row]; i < layer.row_begin[row + 1]; ++i) {
        const double share = Uniform(Hash(seed, 4 + l, row, layer.column[i]));
        layer.weight[i] = static_cast<float>((2 * share - 1) * most);
      }
    }
  }
}

}  // namespace seqpoint::sgd
