#include "tests/workloads/tape.h"

#include <algorithm>
#include <utility>

#include "tests/workloads/communicator.h"

namespace seqpoint::workload {

float* Arena::Floats(size_t count) {
  const size_t bytes = (count * sizeof(float) + 255) / 256 * 256;
  while (chunk_ < chunks_.size() && used_ + bytes > chunks_[chunk_].bytes) {
    ++chunk_;
    used_ = 0;
  }
  if (chunk_ == chunks_.size()) {
    const size_t size = std::max(bytes, chunk_bytes_);
    chunks_.push_back({static_cast<char*>(DeviceAlloc(size)), size});
    used_ = 0;
  }
  float* data = reinterpret_cast<float*>(chunks_[chunk_].data + used_);
  used_ += bytes;
  taken_bytes_ += bytes;
  return data;
}

void Arena::Reset() {
  chunk_ = 0;
  used_ = 0;
  taken_bytes_ = 0;
}

void Tape::Reset(bool training) {
  training_ = training;
  tensors_.clear();
  operations_.clear();
  backward_.clear();
  arena_->Reset();
  Done();
}

void Tape::Backward() {
  Done();
  if (watcher_ != nullptr) watcher_->BackwardBegins(operations_);
  for (size_t i = backward_.size(); i > 0; --i) {
    if (watcher_ != nullptr) watcher_->BeforeBackward(i - 1);
    backward_[i - 1]();
    operations_[i - 1].backward = Done();
    if (watcher_ != nullptr) watcher_->AfterBackward(i - 1);
  }
}

Tensor* Tape::New(int rows, int columns) {
  tensors_.push_back({.rows = rows, .columns = columns});
  tensors_.back().value = arena_->Floats(tensors_.back().Count());
  return &tensors_.back();
}

Tensor* Tape::Input(float* value, int rows, int columns) {
  tensors_.push_back({.value = value, .rows = rows, .columns = columns, .needs_grad = false});
  return &tensors_.back();
}

void Tape::OnBackward(Operation operation, std::function<void()> step) {
  if (!training_) return;
  operation.forward = Done();
  operations_.push_back(std::move(operation));
  backward_.push_back(std::move(step));
}

Operation::Pass Tape::Done() {
  const CallCounts calls = Calls();
  const Operation::Pass now{calls.launches + calls.memsets, arena_->taken_bytes()};
  const Operation::Pass before = std::exchange(done_, now);
  return {now.works - before.works, now.bytes - before.bytes};
}

bool Tape::Claim(Tensor* tensor) {
  if (tensor->grad == nullptr) tensor->grad = arena_->Floats(tensor->Count());
  return std::exchange(tensor->has_grad, true);
}

void Tape::ClaimZeroed(Tensor* tensor) {
  if (!Claim(tensor)) MemsetZero(queue_.stream, tensor->grad, tensor->Count() * sizeof(float));
}

void Tape::AddGradient(Tensor* to, const float* grad) {
  const bool accumulate = Claim(to);
  CopyMatrix(queue_, grad, to->columns, to->grad, to->columns, to->rows, to->columns, accumulate);
}

Tensor* Tape::Embedding(const int* tokens, Tensor* table, Tensor* positions, int rows, int batch) {
  Use({table, positions});
  Tensor* out = New(rows, table->columns);
  EmbeddingGather(queue_, tokens, table->value, positions ? positions->value : nullptr, batch,
                  out->value, rows, table->columns);
  OnBackward({"embedding", {table, positions}, out, out->columns}, [=, this] {
    for (Tensor* parameter : {table, positions}) {
      if (parameter != nullptr) ClaimZeroed(parameter);
    }
    EmbeddingScatterAdd(queue_, tokens, out->grad, table->grad,
                        positions ? positions->grad : nullptr, batch, rows, table->columns);
  });
  return out;
}

Tensor* Tape::Linear(Tensor* x, Tensor* weight) {
  Use({weight});
  Tensor* out = New(x->rows, weight->columns);
  Gemm(queue_, {.m = x->rows,
                .n = weight->columns,
                .k = x->columns,
                .a = {x->value, x->columns},
                .b = {weight->value, weight->columns},
                .c = {out->value, out->columns}});
  OnBackward({"linear", {x, weight}, out, out->columns}, [=, this] {
    const bool weight_grad = Claim(weight);
    Gemm(queue_, {.m = x->columns,
                  .n = out->columns,
                  .k = x->rows,
                  .a = {x->value, x->columns, true},
                  .b = {out->grad, out->columns},
                  .c = {weight->grad, weight->columns},
                  .accumulate = weight_grad});
    const bool x_grad = Claim(x);
    Gemm(queue_, {.m = x->rows,
                  .n = x->columns,
                  .k = out->columns,
                  .a = {out->grad, out->columns},
                  .b = {weight->value, weight->columns, true},
                  .c = {x->grad, x->columns},
                  .accumulate = x_grad});
  });
  return out;
}

Tensor* Tape::BiasActivate(Tensor* x, Tensor* bias, Activation activation) {
  Use({bias});
  // x stays as it is: the backward pass of an activation needs it.
  Tensor* out = New(x->rows, x->columns);
  BiasActivation(queue_, activation, x->value, bias->value, out->value, x->rows, x->columns);
  OnBackward({"bias", {x, bias}, out, out->columns}, [=, this] {
    ClaimZeroed(bias);
    if (activation == Activation::kNone) {
      // The gradient passes through unchanged.
      x->grad = out->grad;
      x->has_grad = true;
    } else {
      Claim(x);
      ActivationBackward(queue_, activation, x->value, bias->value, out->grad, x->grad, x->rows,
                         x->columns);
    }
    ColumnSum(queue_, x->grad, bias->grad, x->rows, x->columns);
  });
  return out;
}

Tensor* Tape::Sum(Tensor* a, Tensor* b) {
  Tensor* out = New(a->rows, a->columns);
  Add(queue_, a->value, b->value, out->value, out->Count());
  OnBackward({"sum", {a, b}, out, out->columns}, [=, this] {
    AddGradient(a, out->grad);
    AddGradient(b, out->grad);
  });
  return out;
}

Tensor* Tape::Concat(Tensor* a, Tensor* b) {
  Tensor* out = New(a->rows, a->columns + b->columns);
  CopyMatrix(queue_, a->value, a->columns, out->value, out->columns, a->rows, a->columns, false);
  CopyMatrix(queue_, b->value, b->columns, out->value + a->columns, out->columns, b->rows,
             b->columns, false);
  OnBackward({"concat", {a, b}, out, out->columns}, [=, this] {
    const float* grad = out->grad;
    for (Tensor* part : {a, b}) {
      const bool accumulate = Claim(part);
      CopyMatrix(queue_, grad, out->columns, part->grad, part->columns, part->rows, part->columns,
                 accumulate);
      grad += part->columns;
    }
  });
  return out;
}

Tensor* Tape::AddLayerNorm(Tensor* a, Tensor* b, Tensor* gamma, Tensor* beta) {
  Use({gamma, beta});
  Tensor* out = New(a->rows, a->columns);
  float* sum = arena_->Floats(a->Count());
  float* stats = arena_->Floats(2 * static_cast<size_t>(a->rows));
  LayerNorm(queue_, a->value, b ? b->value : nullptr, gamma->value, beta->value, sum, stats,
            out->value, a->rows, a->columns);
  OnBackward({"layer norm", {a, b, gamma, beta}, out, out->columns}, [=, this] {
    ClaimZeroed(gamma);
    ClaimZeroed(beta);
    LayerNormParameters(queue_, sum, stats, out->grad, gamma->grad, beta->grad, a->rows,
                        a->columns);
    float* grad = arena_->Floats(a->Count());
    LayerNormBackward(queue_, sum, stats, gamma->value, out->grad, grad, a->rows, a->columns);
    AddGradient(a, grad);
    if (b != nullptr) AddGradient(b, grad);
  });
  return out;
}

void Tape::Lstm(Tensor* x, const LstmParameters& parameters, int batch, bool reverse, Tensor* out,
                int offset) {
  Use({parameters.input, parameters.recurrent, parameters.bias});
  const int hidden = parameters.recurrent->rows;
  const int steps = x->rows / batch;
  const size_t state = static_cast<size_t>(batch) * static_cast<size_t>(hidden);
  float* gates = arena_->Floats(4 * state * static_cast<size_t>(steps));
  float* cells = arena_->Floats(state * static_cast<size_t>(steps));

  const int wide = 4 * hidden;
  Gemm(queue_, {.m = x->rows,
                .n = wide,
                .k = x->columns,
                .a = {x->value, x->columns},
                .b = {parameters.input->value, wide},
                .c = {gates, wide}});

  auto time = [=](int step) { return static_cast<size_t>(reverse ? steps - 1 - step : step); };
  auto h = [=](int step) {
    return out->value + time(step) * static_cast<size_t>(batch * out->columns) + offset;
  };
  for (int step = 0; step < steps; ++step) {
    float* gate = gates + time(step) * 4 * state;
    if (step > 0) {
      Gemm(queue_, {.m = batch,
                    .n = wide,
                    .k = hidden,
                    .a = {h(step - 1), out->columns},
                    .b = {parameters.recurrent->value, wide},
                    .c = {gate, wide},
                    .accumulate = true});
    }
    LstmCellForward(queue_, gate, parameters.bias->value,
                    step > 0 ? cells + time(step - 1) * state : nullptr, cells + time(step) * state,
                    h(step), out->columns, batch, hidden);
  }
  OnBackward({"lstm", {x, parameters.input, parameters.recurrent, parameters.bias}, out, hidden},
             [=, this] { LstmBackward(x, parameters, batch, reverse, out, offset, gates, cells); });
}

void Tape::LstmBackward(Tensor* x, const LstmParameters& parameters, int batch, bool reverse,
                        Tensor* out, int offset, float* gates, float* cells) {
  const int hidden = parameters.recurrent->rows;
  const int wide = 4 * hidden;
  const int steps = x->rows / batch;
  const size_t state = static_cast<size_t>(batch) * static_cast<size_t>(hidden);
  const size_t out_step = static_cast<size_t>(batch) * static_cast<size_t>(out->columns);
  float* d_c = arena_->Floats(state);
  float* d_h = arena_->Floats(state);
  auto time = [=](int step) { return static_cast<size_t>(reverse ? steps - 1 - step : step); };

  for (int step = steps - 1; step >= 0; --step) {
    float* gate = gates + time(step) * 4 * state;
    const bool last = step == steps - 1;
    LstmCellBackward(queue_, gate, step > 0 ? cells + time(step - 1) * state : nullptr,
                     cells + time(step) * state, out->grad + time(step) * out_step + offset,
                     out->columns, last ? nullptr : d_h, d_c, last, batch, hidden);
    if (step == 0) break;
    Gemm(queue_, {.m = batch,
                  .n = hidden,
                  .k = wide,
                  .a = {gate, wide},
                  .b = {parameters.recurrent->value, wide, true},
                  .c = {d_h, hidden}});
  }

  const bool input_grad = Claim(parameters.input);
  Gemm(queue_, {.m = x->columns,
                .n = wide,
                .k = x->rows,
                .a = {x->value, x->columns, true},
                .b = {gates, wide},
                .c = {parameters.input->grad, wide},
                .accumulate = input_grad});

  // Step s takes h of step s - 1: the same rows, shifted by one time step. A single step leaves k =
  // 0.
  const bool recurrent_grad = Claim(parameters.recurrent);
  Gemm(queue_, {.m = hidden,
                .n = wide,
                .k = (steps - 1) * batch,
                .a = {out->value + offset + (reverse ? out_step : 0), out->columns, true},
                .b = {gates + (reverse ? 0 : 4 * state), wide},
                .c = {parameters.recurrent->grad, wide},
                .accumulate = recurrent_grad});

  ClaimZeroed(parameters.bias);
  ColumnSum(queue_, gates, parameters.bias->grad, x->rows, wide);

  const bool x_grad = Claim(x);
  Gemm(queue_, {.m = x->rows,
                .n = x->columns,
                .k = wide,
                .a = {gates, wide},
                .b = {parameters.input->value, wide, true},
                .c = {x->grad, x->columns},
                .accumulate = x_grad});
}

Tensor* Tape::Rnn(Tensor* x, const RnnParameters& parameters, int batch, int chunk) {
  const int hidden = parameters.recurrent->columns;
  const int steps = x->rows / batch;
  Tensor* gx = Linear(x, parameters.input);
  Use({parameters.recurrent, parameters.bias});
  Tensor* h = New(x->rows, 2 * hidden);
  for (int from = 0; from < steps; from += chunk) {
    RnnForward(queue_, gx->value, parameters.bias->value, parameters.recurrent->value, h->value,
               steps, from, std::min(steps, from + chunk), batch, hidden);
  }
  OnBackward({"rnn", {gx, parameters.recurrent, parameters.bias}, h, h->columns}, [=, this] {
    const size_t square = static_cast<size_t>(hidden) * static_cast<size_t>(hidden);
    const size_t step_floats = static_cast<size_t>(batch) * 2 * static_cast<size_t>(hidden);
    float* transposed = arena_->Floats(2 * square);
    for (size_t direction = 0; direction < 2; ++direction) {
      Transpose(queue_, parameters.recurrent->value + direction * square,
                transposed + direction * square, hidden, hidden);
    }
    Claim(gx);
    for (int from = steps; from > 0; from -= chunk) {
      RnnBackward(queue_, transposed, h->value, h->grad, gx->grad, steps, from,
                  std::max(0, from - chunk), batch, hidden);
    }
    const bool accumulate = Claim(parameters.recurrent);
    for (size_t direction = 0; direction < 2; ++direction) {
      const size_t column = direction * static_cast<size_t>(hidden);
      Gemm(queue_, {.m = hidden,
                    .n = hidden,
                    .k = (steps - 1) * batch,
                    .a = {h->value + column + (direction == 0 ? 0 : step_floats), 2 * hidden, true},
                    .b = {gx->grad + column + (direction == 0 ? step_floats : 0), 2 * hidden},
                    .c = {parameters.recurrent->grad + direction * square, hidden},
                    .accumulate = accumulate});
    }
    ClaimZeroed(parameters.bias);
    ColumnSum(queue_, gx->grad, parameters.bias->grad, gx->rows, gx->columns);
  });
  return h;
}

void Tape::Attention(const AttentionShape& shape, HeadView q, HeadView k, HeadView v, Tensor* out) {
  const AttentionShape s = shape;
  const int rows = s.batch * s.queries;
  const size_t scores = static_cast<size_t>(rows) * static_cast<size_t>(s.keys);
  float* p = arena_->Floats(scores);

  const int64_t p_stride = static_cast<int64_t>(s.queries) * s.keys;
  const float* q_value = q.tensor->value + q.offset;
  const float* k_value = k.tensor->value + k.offset;
  const float* v_value = v.tensor->value + v.offset;

  if (s.keys <= kShortAttentionKeys) {
    AttentionShort(queue_, s, q_value, k_value, v_value, p, out->value);
  } else {
    Gemm(queue_, {.m = s.queries,
                  .n = s.keys,
                  .k = s.width,
                  .a = {q_value, s.q_ld, false, s.q_stride},
                  .b = {k_value, s.k_ld, true, s.k_stride},
                  .c = {p, s.keys, p_stride},
                  .alpha = s.scale,
                  .batch = s.batch});
    Softmax(queue_, p, rows, s.keys);
    Gemm(queue_, {.m = s.queries,
                  .n = s.width,
                  .k = s.keys,
                  .a = {p, s.keys, false, p_stride},
                  .b = {v_value, s.k_ld, false, s.k_stride},
                  .c = {out->value, s.out_ld, s.out_stride},
                  .batch = s.batch});
  }
  OnBackward({"attention", {q.tensor, k.tensor, v.tensor}, out, s.width}, [=, this] {
    float* d_p = arena_->Floats(scores);
    Gemm(queue_, {.m = s.queries,
                  .n = s.keys,
                  .k = s.width,
                  .a = {out->grad, s.out_ld, false, s.out_stride},
                  .b = {v_value, s.k_ld, true, s.k_stride},
                  .c = {d_p, s.keys, p_stride},
                  .batch = s.batch});
    SoftmaxBackward(queue_, p, d_p, rows, s.keys);

    // Views of one tensor either are disjoint, and share its state before this operation, or are
    // the same columns, and the second adds to the first.
    const bool had_q = Claim(q.tensor);
    const bool had_k = k.tensor == q.tensor ? had_q : Claim(k.tensor);
    const bool had_v =
        v.tensor != k.tensor ? Claim(v.tensor) : (v.offset == k.offset ? true : had_k);

    Gemm(queue_, {.m = s.queries,
                  .n = s.width,
                  .k = s.keys,
                  .a = {d_p, s.keys, false, p_stride},
                  .b = {k_value, s.k_ld, false, s.k_stride},
                  .c = {q.tensor->grad + q.offset, s.q_ld, s.q_stride},
                  .accumulate = had_q,
                  .alpha = s.scale,
                  .batch = s.batch});
    Gemm(queue_, {.m = s.keys,
                  .n = s.width,
                  .k = s.queries,
                  .a = {d_p, s.keys, true, p_stride},
                  .b = {q_value, s.q_ld, false, s.q_stride},
                  .c = {k.tensor->grad + k.offset, s.k_ld, s.k_stride},
                  .accumulate = had_k,
                  .alpha = s.scale,
                  .batch = s.batch});
    Gemm(queue_, {.m = s.keys,
                  .n = s.width,
                  .k = s.queries,
                  .a = {p, s.keys, true, p_stride},
                  .b = {out->grad, s.out_ld, false, s.out_stride},
                  .c = {v.tensor->grad + v.offset, s.k_ld, s.k_stride},
                  .accumulate = had_v,
                  .batch = s.batch});
  });
}

Tensor* Tape::SumOverRanks(Tensor* x, Communicator* communicator) {
  if (communicator != nullptr) {
    communicator->AllReduce(queue_, x->value, x->Count(), Reduction::kSum);
  }
  return x;
}

Tensor* Tape::CopyToRanks(Tensor* x, Communicator* communicator) {
  if (communicator == nullptr) return x;
  tensors_.push_back({.value = x->value, .rows = x->rows, .columns = x->columns});
  Tensor* out = &tensors_.back();
  OnBackward({"copy to ranks", {x}, out, out->columns}, [=, this] {
    communicator->AllReduce(queue_, out->grad, out->Count(), Reduction::kSum);
    AddGradient(x, out->grad);
  });
  return out;
}

Tensor* Tape::Convolution(const ConvShape& shape, Tensor* x, Tensor* filter) {
  Use({filter});
  Tensor* out = New(shape.OutTime() * shape.batch, shape.out_channels * shape.OutFrequency());
  Conv(queue_, shape, x->value, filter->value, out->value);
  OnBackward({"convolution", {x, filter}, out, out->columns}, [=, this] {
    ClaimZeroed(filter);
    ConvFilterGradient(queue_, shape, x->value, out->grad, filter->grad);
    if (!x->needs_grad) return;
    Claim(x);
    ConvDataGradient(queue_, shape, out->grad, filter->value, x->grad);
  });
  return out;
}

void Tape::CrossEntropyLoss(Tensor* logits, const int* labels, int micro_batches, float* loss,
                            bool accumulate) {
  const int rows = logits->rows;
  const float scale = 1 / (static_cast<float>(rows) * static_cast<float>(micro_batches));
  float* row_loss = arena_->Floats(static_cast<size_t>(rows));
  float* lse = arena_->Floats(static_cast<size_t>(rows));
  CrossEntropy(queue_, logits->value, labels, row_loss, lse, rows, logits->columns);
  ReduceLoss(queue_, row_loss, rows, scale, loss, accumulate);
  OnBackward({"cross entropy", {logits}}, [=, this] {
    CrossEntropyBackward(queue_, logits->value, labels, lse, scale, rows, logits->columns);
    logits->grad = logits->value;
    logits->has_grad = true;
  });
}

void Tape::CtcLoss(Tensor* logits, const int* labels, int batch, int max_labels, int micro_batches,
                   float* loss, bool accumulate) {
  const int steps = logits->rows / batch;
  const float scale = 1 / (static_cast<float>(batch) * static_cast<float>(micro_batches));
  float* alpha =
      arena_->Floats(static_cast<size_t>(logits->rows) * (2 * static_cast<size_t>(max_labels) + 1));
  float* row_loss = arena_->Floats(static_cast<size_t>(batch));
  Claim(logits);
  // Loss and gradient come from one kernel, as in warp-ctc.
  Ctc(queue_, logits->value, labels, alpha, row_loss, logits->grad, scale, steps, batch,
      logits->columns, max_labels);
  ReduceLoss(queue_, row_loss, batch, scale, loss, accumulate);
  OnBackward({"ctc", {logits}}, [] {});
}

}  // namespace seqpoint::workload
