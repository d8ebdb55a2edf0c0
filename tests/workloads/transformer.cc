#include "tests/workloads/transformer.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "tests/workloads/communicator.h"
#include "tests/workloads/model_batch.h"
#include "tests/workloads/random.h"

namespace seqpoint::workload {
namespace {

class Transformer : public Model {
 public:
  Transformer(const ModelConfig& config, bool pad_to_longest)
      : config_(config), pad_to_longest_(pad_to_longest) {
    const int h = config.hidden;
    const ModelPart& part = config.part;
    if (IsFirst()) {
      embedding_ = parameters_.Declare(config.vocabulary, h, 0.1f);
      positions_ = parameters_.Declare(config.max_lengths[0], h, 0.1f);
    }
    // The first stages have one layer more: the last one has the words' probabilities.
    const int layers = config.layers / part.stages + (part.stage < config.layers % part.stages);
    for (int layer = 0; layer < layers; ++layer) DeclareLayer();
    if (IsLast()) {
      parameters_.BeginUnit();
      output_ = parameters_.Declare(h, config.vocabulary, Scale(h));
      output_bias_ = parameters_.Declare(1, config.vocabulary, 0);
    }
    if (pad_to_longest_) {
      const size_t bytes = static_cast<size_t>(config.batch) *
                           static_cast<size_t>(config.max_lengths[0]) * sizeof(int);
      tokens_ = static_cast<int*>(DeviceAlloc(bytes));
      labels_ = static_cast<int*>(DeviceAlloc(bytes));
    }
  }

  HostBatch MakeBatch(const std::vector<Example>& examples,
                      const std::vector<int>& lengths) override {
    const size_t size = examples.size();
    HostBatch batch{static_cast<int>(size), lengths, 0};
    auto token = [&](const Example& example, int t) {
      return Token(config_.seed, example.id, t, config_.vocabulary);
    };
    if (pad_to_longest_) {
      std::vector<int> packed;
      std::vector<int> offsets;
      for (const Example& example : examples) {
        offsets.push_back(static_cast<int>(packed.size()));
        for (int t = 0; t < example.lengths[0]; ++t) packed.push_back(token(example, t));
      }
      offsets.push_back(static_cast<int>(packed.size()));
      AddArray(&batch, std::move(packed));
      AddArray(&batch, std::move(offsets));
      return batch;
    }
    std::vector<int> tokens(size * static_cast<size_t>(lengths[0]), 0);
    std::vector<int> labels(tokens.size(), -1);
    for (size_t b = 0; b < size; ++b) {
      for (int t = 0; t < examples[b].lengths[0]; ++t) {
        const size_t i = static_cast<size_t>(t) * size + b;
        labels[i] = token(examples[b], t);
        // One in eight is masked.
        tokens[i] = Mix(examples[b].id + static_cast<uint64_t>(t)) % 8 == 0 ? 1 : labels[i];
      }
    }
    AddArray(&batch, std::move(tokens));
    AddArray(&batch, std::move(labels));
    return batch;
  }

  std::vector<size_t> ArrayBytes() const override {
    const size_t size = static_cast<size_t>(config_.batch) * sizeof(int);
    const size_t tokens = size * static_cast<size_t>(config_.max_lengths[0]);
    return {tokens, pad_to_longest_ ? size + sizeof(int) : tokens};
  }

  std::pair<int, int> BoundaryShape(const DeviceBatch& batch) const override {
    return {Length(batch) * batch.size, config_.hidden};
  }

  Tensor* Stage(Tape* tape, const DeviceBatch& batch, const LossSink& sink, Tensor* in) override {
    const int b = batch.size;
    const int length = Length(batch);
    const int* tokens = Ints(batch.arrays[0]);
    const int* labels = Ints(batch.arrays[1]);
    if (pad_to_longest_ && (IsFirst() || IsLast())) {
      tape->ExpandTokens(tokens, labels, tokens_, labels_, length, b);
      tokens = tokens_;
      labels = labels_;
    }
    const int width = std::min(config_.hidden, 64);
    const int h = config_.hidden / Shares();  // of the heads that this rank has
    const int heads = h / width;
    const AttentionShape attention{.batch = b * heads,
                                   .queries = length,
                                   .keys = length,
                                   .width = width,
                                   .scale = Scale(width),
                                   .q_ld = 3 * h * b,
                                   .q_stride = 3 * width,
                                   .k_ld = 3 * h * b,
                                   .k_stride = 3 * width,
                                   .out_ld = h * b,
                                   .out_stride = width};
    Communicator* tensor = config_.part.tensor;
    Tensor* x = IsFirst() ? tape->Embedding(tokens, embedding_, positions_, length * b, b) : in;
    for (const Layer& layer : layers_) {
      Tensor* qkv = tape->BiasActivate(tape->Linear(tape->CopyToRanks(x, tensor), layer.qkv),
                                       layer.qkv_bias, Activation::kNone);
      Tensor* mixed = tape->New(x->rows, h);
      tape->Attention(attention, {qkv, 0}, {qkv, width}, {qkv, 2 * width}, mixed);
      Tensor* projected =
          tape->BiasActivate(tape->SumOverRanks(tape->Linear(mixed, layer.projection), tensor),
                             layer.projection_bias, Activation::kNone);
      x = tape->AddLayerNorm(x, projected, layer.gamma1, layer.beta1);
      Tensor* wide = tape->BiasActivate(tape->Linear(tape->CopyToRanks(x, tensor), layer.up),
                                        layer.up_bias, Activation::kGelu);
      Tensor* narrow =
          tape->BiasActivate(tape->SumOverRanks(tape->Linear(wide, layer.down), tensor),
                             layer.down_bias, Activation::kNone);
      x = tape->AddLayerNorm(x, narrow, layer.gamma2, layer.beta2);
    }
    if (!IsLast()) return x;
    Tensor* logits = tape->BiasActivate(tape->Linear(x, output_), output_bias_, Activation::kNone);
    tape->CrossEntropyLoss(logits, labels, sink.micro_batches, sink.loss, sink.accumulate);
    return nullptr;
  }

 private:
  struct Layer {
    Tensor *qkv, *qkv_bias, *projection, *projection_bias, *gamma1, *beta1;
    Tensor *up, *up_bias, *down, *down_bias, *gamma2, *beta2;
  };

  bool IsFirst() const { return config_.part.stage == 0; }
  bool IsLast() const { return config_.part.stage + 1 == config_.part.stages; }
  // Among so many ranks each layer's matrices are split.
  int Shares() const { return config_.part.tensor == nullptr ? 1 : config_.part.tensor->ranks(); }
  int Length(const DeviceBatch& batch) const {
    return pad_to_longest_ ? config_.max_lengths[0] : batch.lengths[0];
  }

  // A split matrix has columns, or rows, of its own on each rank.
  void DeclareLayer() {
    const int h = config_.hidden;
    const int part = h / Shares();
    const bool own = Shares() > 1;
    parameters_.BeginUnit();
    layers_.push_back(
        {parameters_.Declare(h, 3 * part, Scale(h), 0, own), parameters_.Declare(1, 3 * part, 0),
         parameters_.Declare(part, h, Scale(h), 0, own), parameters_.Declare(1, h, 0),
         parameters_.Declare(1, h, 0, 1), parameters_.Declare(1, h, 0),
         parameters_.Declare(h, 4 * part, Scale(h), 0, own), parameters_.Declare(1, 4 * part, 0),
         parameters_.Declare(4 * part, h, Scale(4 * h), 0, own), parameters_.Declare(1, h, 0),
         parameters_.Declare(1, h, 0, 1), parameters_.Declare(1, h, 0)});
  }

  ModelConfig config_;
  bool pad_to_longest_;
  Tensor* embedding_ = nullptr;
  Tensor* positions_ = nullptr;
  std::vector<Layer> layers_;
  Tensor* output_ = nullptr;
  Tensor* output_bias_ = nullptr;
  int* tokens_ = nullptr;
  int* labels_ = nullptr;
};

}  // namespace

std::unique_ptr<Model> MakeTransformer(const ModelConfig& config, bool pad_to_longest) {
  return std::make_unique<Transformer>(config, pad_to_longest);
}

}  // namespace seqpoint::workload
