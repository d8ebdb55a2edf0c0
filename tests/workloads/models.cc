#include "tests/workloads/models.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "tests/workloads/model_batch.h"
#include "tests/workloads/random.h"
#include "tests/workloads/transformer.h"

namespace seqpoint::workload {
namespace {

class Gnmt : public Model {
 public:
  explicit Gnmt(const ModelConfig& config) : config_(config) {
    const int h = config.hidden;
    source_ = parameters_.Declare(config.vocabulary, h, 0.1f);
    target_ = parameters_.Declare(config.vocabulary, h, 0.1f);
    encoder_backward_ = DeclareLstm(h);
    for (int layer = 0; layer < config.layers; ++layer) {
      encoder_.push_back(DeclareLstm(layer == 1 ? 2 * h : h));
    }
    for (int layer = 0; layer < config.layers; ++layer) {
      decoder_.push_back(DeclareLstm(layer == 0 ? h : 2 * h));
    }
    parameters_.BeginUnit();
    query_ = parameters_.Declare(h, h, Scale(h));
    keys_ = parameters_.Declare(h, h, Scale(h));
    parameters_.BeginUnit();
    output_ = parameters_.Declare(h, config.vocabulary, Scale(h));
    output_bias_ = parameters_.Declare(1, config.vocabulary, 0);
  }

  HostBatch MakeBatch(const std::vector<Example>& examples,
                      const std::vector<int>& lengths) override {
    const size_t size = examples.size();
    HostBatch batch{static_cast<int>(size), lengths, 0};
    std::vector<int> source(size * static_cast<size_t>(lengths[0]), 0);
    std::vector<int> target(size * static_cast<size_t>(lengths[1]), 0);
    std::vector<int> labels(size * static_cast<size_t>(lengths[1]), -1);
    for (size_t b = 0; b < size; ++b) {
      const Example& example = examples[b];
      for (int t = 0; t < example.lengths[0]; ++t) {
        source[static_cast<size_t>(t) * size + b] =
            Token(config_.seed, example.id, t, config_.vocabulary);
      }
      for (int t = 0; t < example.lengths[1]; ++t) {
        // A word-for-word translation: each target word is its source word, once around.
        const int word =
            Token(config_.seed, example.id, t % example.lengths[0], config_.vocabulary);
        labels[static_cast<size_t>(t) * size + b] = word;
        if (t + 1 < example.lengths[1]) target[static_cast<size_t>(t + 1) * size + b] = word;
      }
    }
    AddArray(&batch, std::move(source));
    AddArray(&batch, std::move(target));
    AddArray(&batch, std::move(labels));
    return batch;
  }

  std::vector<size_t> ArrayBytes() const override {
    const size_t size = static_cast<size_t>(config_.batch) * sizeof(int);
    const size_t target = size * static_cast<size_t>(config_.max_lengths[1]);
    return {size * static_cast<size_t>(config_.max_lengths[0]), target, target};
  }

  void Forward(Tape* tape, const DeviceBatch& batch, const LossSink& sink) override {
    const int h = config_.hidden;
    const int b = batch.size;
    const int source_rows = batch.lengths[0] * b;
    const int target_rows = batch.lengths[1] * b;

    Tensor* embedded = tape->Embedding(Ints(batch.arrays[0]), source_, nullptr, source_rows, b);
    Tensor* x = tape->New(source_rows, 2 * h);
    tape->Lstm(embedded, encoder_[0], b, false, x, 0);
    tape->Lstm(embedded, encoder_backward_, b, true, x, h);
    for (size_t layer = 1; layer < encoder_.size(); ++layer) {
      x = Layer(tape, x, encoder_[layer], b, layer >= 2 ? x : nullptr);
    }
    Tensor* memory = tape->Linear(x, keys_);

    Tensor* words = tape->Embedding(Ints(batch.arrays[1]), target_, nullptr, target_rows, b);
    Tensor* y = Layer(tape, words, decoder_[0], b, nullptr);
    Tensor* query = tape->Linear(y, query_);
    Tensor* context = tape->New(target_rows, h);
    const AttentionShape attention{.batch = b,
                                   .queries = batch.lengths[1],
                                   .keys = batch.lengths[0],
                                   .width = h,
                                   .scale = Scale(h),
                                   .q_ld = b * h,
                                   .q_stride = h,
                                   .k_ld = b * h,
                                   .k_stride = h,
                                   .out_ld = b * h,
                                   .out_stride = h};
    tape->Attention(attention, {query, 0}, {memory, 0}, {memory, 0}, context);
    for (size_t layer = 1; layer < decoder_.size(); ++layer) {
      y = Layer(tape, tape->Concat(y, context), decoder_[layer], b, layer >= 2 ? y : nullptr);
    }
    Tensor* logits = tape->BiasActivate(tape->Linear(y, output_), output_bias_, Activation::kNone);
    tape->CrossEntropyLoss(logits, Ints(batch.arrays[2]), sink.micro_batches, sink.loss,
                           sink.accumulate);
  }

 private:
  LstmParameters DeclareLstm(int in) {
    const int h = config_.hidden;
    parameters_.BeginUnit();
    return {parameters_.Declare(in, 4 * h, Scale(in)), parameters_.Declare(h, 4 * h, Scale(h)),
            parameters_.Declare(1, 4 * h, 0)};
  }

  Tensor* Layer(Tape* tape, Tensor* x, const LstmParameters& lstm, int batch, Tensor* residual) {
    Tensor* out = tape->New(x->rows, config_.hidden);
    tape->Lstm(x, lstm, batch, false, out, 0);
    return residual == nullptr ? out : tape->Sum(out, residual);
  }

  ModelConfig config_;
  Tensor* source_;
  Tensor* target_;
  LstmParameters encoder_backward_;
  std::vector<LstmParameters> encoder_;
  std::vector<LstmParameters> decoder_;
  Tensor* query_;
  Tensor* keys_;
  Tensor* output_;
  Tensor* output_bias_;
};

class DeepSpeech2 : public Model {
 public:
  explicit DeepSpeech2(const ModelConfig& config) : config_(config) {
    const int h = config.hidden;
    for (int layer = 0; layer < 2; ++layer) {
      const ConvShape shape = Shape(layer, 1, 1);
      const int taps = shape.in_channels * shape.kernel_time * shape.kernel_frequency;
      filters_[layer] = parameters_.Declare(shape.out_channels, taps, Scale(taps));
      conv_bias_[layer] =
          parameters_.Declare(1, shape.out_channels * shape.OutFrequency(), 0, 0.1f);
    }
    for (int layer = 0; layer < config.layers; ++layer) {
      const int in = layer == 0 ? config_.channels * kMelBins / 4 : 2 * h;
      parameters_.BeginUnit();
      layers_.push_back(
          {{parameters_.Declare(in, 2 * h, Scale(in)), parameters_.Declare(2 * h, h, Scale(h)),
            parameters_.Declare(1, 2 * h, 0)},
           parameters_.Declare(1, 2 * h, 0, 1),
           parameters_.Declare(1, 2 * h, 0)});
    }
    parameters_.BeginUnit();
    output_ = parameters_.Declare(2 * h, kSymbols, Scale(2 * h));
    output_bias_ = parameters_.Declare(1, kSymbols, 0);

    // Features are noise out of a pool: drawing them anew for every step would cost more host time
    // than the rest of the program.
    const size_t batch_floats = ArrayBytes()[0] / sizeof(float);
    pool_floats_ = batch_floats + kPoolSlack;
    pool_ = static_cast<float*>(config.pinned_pool ? PinnedAlloc(pool_floats_ * sizeof(float))
                                                   : std::malloc(pool_floats_ * sizeof(float)));
    for (size_t i = 0; i < pool_floats_; ++i) {
      pool_[i] = static_cast<float>(static_cast<double>(Mix(config.seed + i) >> 40) * 0x1p-23 - 1);
    }
  }

  HostBatch MakeBatch(const std::vector<Example>& examples,
                      const std::vector<int>& lengths) override {
    const size_t size = examples.size();
    const size_t max_labels = static_cast<size_t>(Labels(lengths[0]));
    HostBatch batch{static_cast<int>(size), lengths, static_cast<int>(max_labels)};
    std::vector<int> labels(size * max_labels, -1);
    for (size_t b = 0; b < size; ++b) {
      const int count = Labels(examples[b].lengths[0]);
      for (int i = 0; i < count; ++i) {
        labels[b * max_labels + static_cast<size_t>(i)] =
            Token(config_.seed, examples[b].id, i, kSymbols + 1) - 1;
      }
    }
    const uint64_t offset = Mix(config_.seed ^ examples[0].id) % kPoolSlack;
    batch.arrays.push_back({pool_ + offset,
                            static_cast<size_t>(lengths[0]) * size * kMelBins * sizeof(float),
                            config_.pinned_pool});
    AddArray(&batch, std::move(labels));
    return batch;
  }

  std::vector<size_t> ArrayBytes() const override {
    const size_t size = static_cast<size_t>(config_.batch);
    const size_t frames = static_cast<size_t>(config_.max_lengths[0]);
    return {size * frames * kMelBins * sizeof(float),
            size * static_cast<size_t>(Labels(config_.max_lengths[0])) * sizeof(int)};
  }

  void Forward(Tape* tape, const DeviceBatch& batch, const LossSink& sink) override {
    const int b = batch.size;
    int time = batch.lengths[0];
    Tensor* x = tape->Input(static_cast<float*>(batch.arrays[0]), time * b, kMelBins);
    for (int layer = 0; layer < 2; ++layer) {
      const ConvShape shape = Shape(layer, b, time);
      x = tape->BiasActivate(tape->Convolution(shape, x, filters_[layer]), conv_bias_[layer],
                             Activation::kClippedRelu);
      time = shape.OutTime();
    }
    for (const Layer& layer : layers_) {
      Tensor* h = tape->Rnn(x, layer.rnn, b, config_.rnn_chunk);
      x = tape->AddLayerNorm(h, nullptr, layer.gamma, layer.beta);
    }
    Tensor* logits = tape->BiasActivate(tape->Linear(x, output_), output_bias_, Activation::kNone);
    tape->CtcLoss(logits, Ints(batch.arrays[1]), b, batch.max_labels, sink.micro_batches, sink.loss,
                  sink.accumulate);
  }

 private:
  static constexpr int kMelBins = 80;
  static constexpr int kSymbols = 29;  // blank, 26 letters, apostrophe, space
  static constexpr size_t kPoolSlack = 1 << 16;

  struct Layer {
    RnnParameters rnn;
    Tensor* gamma;
    Tensor* beta;
  };

  ConvShape Shape(int layer, int batch, int time) const {
    ConvShape shape{batch,
                    layer == 0 ? 1 : config_.channels,
                    time,
                    layer == 0 ? kMelBins : kMelBins / 2,
                    config_.channels,
                    11,
                    layer == 0 ? 11 : 7,
                    2};
    return shape;
  }

  // About ten letters per second: they fit the time steps that the convolutions leave.
  static int Labels(int frames) { return std::clamp(frames / 10, 1, 500); }

  ModelConfig config_;
  Tensor* filters_[2];
  Tensor* conv_bias_[2];
  std::vector<Layer> layers_;
  Tensor* output_;
  Tensor* output_bias_;
  float* pool_;
  size_t pool_floats_;
};

}  // namespace

ModelConfig DefaultConfig(const std::string& name) {
  if (name == "gnmt") return {.name = name, .hidden = 512, .layers = 4, .vocabulary = 8192};
  if (name == "ds2") return {.name = name, .hidden = 256, .layers = 5};
  if (name == "transformer") return {.name = name, .hidden = 512, .layers = 6, .vocabulary = 8192};
  return {.name = name, .hidden = 256, .layers = 4, .vocabulary = 8192};
}

int LengthsPerExample(const std::string& name) { return name == "gnmt" ? 2 : 1; }

std::unique_ptr<Model> MakeModel(const ModelConfig& config) {
  if (config.name == "gnmt") return std::make_unique<Gnmt>(config);
  if (config.name == "ds2") return std::make_unique<DeepSpeech2>(config);
  return MakeTransformer(config, config.name == "fixed");
}

}  // namespace seqpoint::workload
