// The four training programs' models. Each builds its batches, declares its parameters and writes
// its forward pass on a tape.
//
// gnmt         encoder and decoder of LSTM layers (Wu et al., 2016), attention between; a source
// and
//              a target length; one GEMM and one cell kernel per layer and time step
// ds2          two convolutions, bidirectional recurrent layers, CTC (Amodei et al., ICML 2016);
// one
//              length in spectrogram frames
// transformer  encoder with quadratic attention, masked tokens; one length
// fixed        the transformer over batches padded to the longest example there is: the batch copy
//              still varies with the length, the time does not
//
// Threading: one thread at a time.
#ifndef SEQPOINT_TESTS_WORKLOADS_MODELS_H_
#define SEQPOINT_TESTS_WORKLOADS_MODELS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/workloads/tape.h"

namespace seqpoint::workload {

// The part of a model that a rank has; transformer and fixed only.
struct ModelPart {
  int stage = 0;  // of so many stages, each of which has some of the layers
  int stages = 1;
  Communicator* tensor = nullptr;  // its ranks have a part of each layer's matrices
};

struct ModelConfig {
  std::string name;
  int hidden = 0;
  int layers = 0;                  // gnmt: of the encoder and of the decoder, at least 2
  int vocabulary = 0;              // gnmt, transformer, fixed
  int rnn_chunk = 4;               // ds2: time steps per launch
  int channels = 16;               // ds2: of both convolutions
  bool pinned_pool = false;        // ds2: features in pinned memory
  int batch = 0;                   // largest batch
  std::vector<int> max_lengths{};  // longest example, padding included
  uint64_t seed = 1;
  ModelPart part{};
};

// hidden, layers and vocabulary for a model's name; the rest untouched.
ModelConfig DefaultConfig(const std::string& name);
// 2 for gnmt, else 1.
int LengthsPerExample(const std::string& name);

// One example: its number in the data set (which fixes its contents) and its lengths.
struct Example {
  uint64_t id = 0;
  std::vector<int> lengths;
};

// The arrays a step copies to the GPU, in order. `data` points into `owned`, or into the model's
// own pool, which lives as long as the model.
struct HostArray {
  const void* data = nullptr;
  size_t bytes = 0;
  bool pinned = false;
};
struct HostBatch {
  int size = 0;
  std::vector<int> lengths;  // padded
  int max_labels = 0;        // ds2
  std::vector<std::vector<int>> owned{};
  std::vector<HostArray> arrays{};
};

struct DeviceBatch {
  int size = 0;
  std::vector<int> lengths;
  int max_labels = 0;
  std::vector<void*> arrays{};
};

// Where the loss goes, and how it is averaged over accumulation steps.
struct LossSink {
  float* loss;
  int micro_batches;
  bool accumulate;
};

class Model {
 public:
  virtual ~Model() = default;
  Parameters& parameters() { return parameters_; }
  // `lengths` are the padded lengths of the batch.
  virtual HostBatch MakeBatch(const std::vector<Example>& examples,
                              const std::vector<int>& lengths) = 0;
  // Largest bytes of each array of a batch.
  virtual std::vector<size_t> ArrayBytes() const = 0;
  virtual void Forward(Tape* tape, const DeviceBatch& batch, const LossSink& sink) {
    Stage(tape, batch, sink, nullptr);
  }
  // A stage of several: reads what the stage before gave (the first one: the batch), and returns
  // what the next one reads (the last one: null).
  virtual Tensor* Stage(Tape*, const DeviceBatch&, const LossSink&, Tensor* /*in*/) {
    return nullptr;
  }
  // Rows and columns of what stages hand on.
  virtual std::pair<int, int> BoundaryShape(const DeviceBatch&) const { return {0, 0}; }

 protected:
  Parameters parameters_;
};

// `config.name` must be one of the four.
std::unique_ptr<Model> MakeModel(const ModelConfig& config);

}  // namespace seqpoint::workload

#endif  // SEQPOINT_TESTS_WORKLOADS_MODELS_H_
