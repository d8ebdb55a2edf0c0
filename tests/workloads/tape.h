// Tensors, parameters and a tape of operations: a model writes its forward pass, the tape keeps
// what the backward pass needs and runs it in reverse, as an autograd engine does.
//
// Threading: one thread at a time (the backward pass may run on another thread than the forward
// pass did). Ownership: the tape owns its tensors until Reset; device memory comes from an Arena
// that never gives any back.
#ifndef SEQPOINT_TESTS_WORKLOADS_TAPE_H_
#define SEQPOINT_TESTS_WORKLOADS_TAPE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "tests/workloads/kernels.h"

namespace seqpoint::workload {

class Communicator;

// Row-major [rows, columns] on the device. `grad` appears when the backward pass first writes it.
struct Tensor {
  float* value = nullptr;
  float* grad = nullptr;
  int rows = 0;
  int columns = 0;
  bool has_grad = false;
  bool needs_grad = true;
  size_t Count() const { return static_cast<size_t>(rows) * static_cast<size_t>(columns); }
};

// Bump allocator over chunks of device memory; grows like a framework's caching allocator.
class Arena {
 public:
  explicit Arena(size_t chunk_bytes) : chunk_bytes_(chunk_bytes) {}
  float* Floats(size_t count);
  void Reset();
  size_t taken_bytes() const { return taken_bytes_; }  // since Reset

 private:
  struct Chunk {
    char* data;
    size_t bytes;
  };
  size_t chunk_bytes_;
  size_t taken_bytes_ = 0;
  std::vector<Chunk> chunks_;
  size_t chunk_ = 0;
  size_t used_ = 0;
};

// All parameters of a model, each a view of one flat buffer; gradients and Adam's moments likewise.
// Parameters that are used together are a unit.
class Parameters {
 public:
  // Floats of the flat buffer.
  struct Unit {
    size_t begin = 0;
    size_t count = 0;
  };

  // What is declared from now on is a unit of its own.
  void BeginUnit() { unit_starts_.push_back(tensors_.size()); }
  // Declares a parameter with values uniform in [-scale, scale], or all `constant` when scale is 0.
  // `own`: each rank has another one.
  Tensor* Declare(int rows, int columns, float scale, float constant = 0, bool own = false);
  // Allocates everything and uploads the initial values. Once, after the last Declare. Units are
  // padded to a multiple of `unit_multiple` floats. `own_seed`: of those that each rank has for
  // itself.
  void Allocate(Stream stream, uint64_t seed, size_t unit_multiple = 1, uint64_t own_seed = 0);

  const std::deque<Tensor>& tensors() const { return tensors_; }
  std::deque<Tensor>& tensors() { return tensors_; }
  // In the order of their declarations; they cover the buffer.
  const std::vector<Unit>& units() const { return units_; }
  size_t count() const { return count_; }
  float* values() const { return values_; }
  float* gradients() const { return gradients_; }
  float* m() const { return m_; }
  float* v() const { return v_; }

 private:
  struct Initial {
    float scale;
    float constant;
    bool own;
  };
  std::deque<Tensor> tensors_;
  std::vector<Initial> initial_;
  std::vector<size_t> unit_starts_;  // numbers of tensors
  std::vector<Unit> units_;
  size_t count_ = 0;
  float* values_ = nullptr;
  float* gradients_ = nullptr;
  float* m_ = nullptr;
  float* v_ = nullptr;
};

struct LstmParameters {
  Tensor* input;      // [in, 4 hidden]
  Tensor* recurrent;  // [hidden, 4 hidden]
  Tensor* bias;       // [1, 4 hidden]
};

struct RnnParameters {
  Tensor* input;      // [in, 2 hidden]
  Tensor* recurrent;  // [2 hidden, hidden]: both directions
  Tensor* bias;       // [1, 2 hidden]
};

// A tensor's columns from `offset` on, as an operand of attention.
struct HeadView {
  Tensor* tensor;
  int offset;
};

// An operation that was written on a tape: what the GPU's work is for, and who needs whom.
struct Operation {
  const char* name = "";
  std::vector<const Tensor*> reads;  // parameters among them
  const Tensor* out = nullptr;       // null: the loss
  int out_columns = 0;               // of `out`, that it writes
  struct Pass {
    uint64_t works = 0;  // kernel launches and memsets, one after the other
    size_t bytes = 0;    // of device memory, kept until the tape is reset
  };
  Pass forward;
  Pass backward;
};

// Hears what a tape does, on the thread that does it. `operation` counts in the order of the
// forward pass.
class TapeWatcher {
 public:
  virtual ~TapeWatcher() = default;
  // An operation of the forward pass is about to read these.
  virtual void BeforeForward(const std::vector<const Tensor*>& /*reads*/) {}
  virtual void BackwardBegins(const std::vector<Operation>&) {}
  virtual void BeforeBackward(size_t /*operation*/) {}
  virtual void AfterBackward(size_t /*operation*/) {}
};

class Tape {
 public:
  Tape(const Queue& queue, Arena* arena) : queue_(queue), arena_(arena) {}

  // Null: nobody. The watcher outlives the tape.
  void Watch(TapeWatcher* watcher) { watcher_ = watcher; }

  // Forgets all tensors; the arena starts again. `training`: whether a backward pass will follow.
  void Reset(bool training);
  void Backward();
  // In the order of the forward pass; a backward pass runs them in reverse. Only of training.
  const std::vector<Operation>& operations() const { return operations_; }

  Tensor* New(int rows, int columns);
  // `positions` may be null; row r is position r / batch.
  Tensor* Embedding(const int* tokens, Tensor* table, Tensor* positions, int rows, int batch);
  Tensor* Linear(Tensor* x, Tensor* weight);
  // x must have no other consumer.
  Tensor* BiasActivate(Tensor* x, Tensor* bias, Activation activation);
  Tensor* Sum(Tensor* a, Tensor* b);
  Tensor* Concat(Tensor* a, Tensor* b);
  Tensor* AddLayerNorm(Tensor* a, Tensor* b, Tensor* gamma, Tensor* beta);
  // Time-major x [steps * batch, in]; writes columns [offset, offset + hidden) of out.
  void Lstm(Tensor* x, const LstmParameters& parameters, int batch, bool reverse, Tensor* out,
            int offset);
  // Bidirectional; `chunk` time steps per launch. Returns [steps * batch, 2 hidden].
  Tensor* Rnn(Tensor* x, const RnnParameters& parameters, int batch, int chunk);
  // out is [queries * out_rows_per_query, ...]; see AttentionShape for the layout.
  void Attention(const AttentionShape& shape, HeadView q, HeadView k, HeadView v, Tensor* out);
  // Sums x over the ranks, in place; the gradient passes through unchanged. x must have no other
  // consumer. Null: there is one rank.
  Tensor* SumOverRanks(Tensor* x, Communicator* communicator);
  // The same values, whose gradient is summed over the ranks.
  Tensor* CopyToRanks(Tensor* x, Communicator* communicator);
  Tensor* Convolution(const ConvShape& shape, Tensor* x, Tensor* filter);
  // loss[0] gets (or adds) the mean row loss divided by `micro_batches`.
  void CrossEntropyLoss(Tensor* logits, const int* labels, int micro_batches, float* loss,
                        bool accumulate);
  void CtcLoss(Tensor* logits, const int* labels, int batch, int max_labels, int micro_batches,
               float* loss, bool accumulate);
  // Packed sequences to [length, batch] tokens and labels; see PadTokens.
  void ExpandTokens(const int* packed, const int* offsets, int* tokens, int* labels, int length,
                    int batch) {
    PadTokens(queue_, packed, offsets, tokens, labels, length, batch);
  }
  // Data: gets no gradient.
  Tensor* Input(float* value, int rows, int columns);

 private:
  // Begins an operation that reads parameters.
  void Use(const std::vector<const Tensor*>& reads) {
    if (watcher_ != nullptr) watcher_->BeforeForward(reads);
  }
  // Ends an operation: all that was done since the one before belongs to it.
  void OnBackward(Operation operation, std::function<void()> step);
  // Returns the work that was done since the last call.
  Operation::Pass Done();
  // Makes sure that `tensor` has a gradient buffer; says whether it already holds a gradient.
  bool Claim(Tensor* tensor);
  // The same for operations that can only add: a buffer without a gradient is cleared.
  void ClaimZeroed(Tensor* tensor);
  void LstmBackward(Tensor* x, const LstmParameters& parameters, int batch, bool reverse,
                    Tensor* out, int offset, float* gates, float* cells);
  void AddGradient(Tensor* to, const float* grad);

  const Queue& queue_;
  Arena* arena_;
  TapeWatcher* watcher_ = nullptr;
  bool training_ = false;
  std::deque<Tensor> tensors_;
  std::vector<Operation> operations_;
  std::vector<std::function<void()>> backward_;  // of each operation
  Operation::Pass done_;                         // of the process, when Done was called
};

}  // namespace seqpoint::workload

#endif  // SEQPOINT_TESTS_WORKLOADS_TAPE_H_
