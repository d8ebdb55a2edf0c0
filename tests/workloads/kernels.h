// The kernels of the training programs, one function per operation. Each call is one launch (Gemm
// with a split inner dimension: two) on `queue.stream`, preceded by the framework's host work and
// by the kernel's true work for the software GPU: operations counted, every operand counted once
// per launch (what stays in a cache between launches is not modelled).
//
// All matrices are fp32 and row-major; a `stride` or `ld` counts floats. `accumulate` adds to the
// output. All pointers are device memory. Any thread may launch; order is the stream's.
//
// kernels.cu compiles with nvcc and also as plain C++ (cpu_cuda.h), for tests of the arithmetic.
#ifndef SEQPOINT_TESTS_WORKLOADS_KERNELS_H_
#define SEQPOINT_TESTS_WORKLOADS_KERNELS_H_

#include <cstddef>
#include <cstdint>

#include "tests/workloads/gpu.h"

namespace seqpoint::workload {

// C[m,n] = alpha * op(A)[m,k] * op(B)[k,n] (+ C if accumulate), `batch` times, `stride` floats
// apart. Not both operands may be transposed.
struct Operand {
  const float* data = nullptr;
  int ld = 0;
  bool transposed = false;
  int64_t stride = 0;
};
struct Output {
  float* data = nullptr;
  int ld = 0;
  int64_t stride = 0;
};
struct GemmCall {
  int m = 0;
  int n = 0;
  int k = 0;
  Operand a;
  Operand b;
  Output c;
  bool accumulate = false;
  float alpha = 1;
  int batch = 1;
};
void Gemm(const Queue& queue, const GemmCall& call);

// out[r,:] = table[tokens[r],:] (+ positions[r / batch,:] when given).
void EmbeddingGather(const Queue& queue, const int* tokens, const float* table,
                     const float* positions, int batch, float* out, int rows, int columns);
void EmbeddingScatterAdd(const Queue& queue, const int* tokens, const float* d_out, float* d_table,
                         float* d_positions, int batch, int rows, int columns);

enum class Activation { kNone, kGelu, kClippedRelu };
// out = activation(x + bias); x and out may be the same.
void BiasActivation(const Queue& queue, Activation activation, const float* x, const float* bias,
                    float* out, int rows, int columns);
// d_x = d_out * activation'(x + bias).
void ActivationBackward(const Queue& queue, Activation activation, const float* x,
                        const float* bias, const float* d_out, float* d_x, int rows, int columns);
// out[c] += sum over rows of x[r,c].
void ColumnSum(const Queue& queue, const float* x, float* out, int rows, int columns);
// out = a + b, or out += a when b is null.
void Add(const Queue& queue, const float* a, const float* b, float* out, size_t count);
// Copies a matrix between buffers of different row strides, or adds it.
void CopyMatrix(const Queue& queue, const float* from, int from_ld, float* to, int to_ld, int rows,
                int columns, bool accumulate);
void Transpose(const Queue& queue, const float* x, float* out, int rows, int columns);
void FillZero(const Queue& queue, float* data, size_t count);

// One time step. gates[batch, 4 hidden] (input, forget, cell, output) hold the pre-activations
// without bias and become the activations. c_prev is null at the first step. h has row stride h_ld.
void LstmCellForward(const Queue& queue, float* gates, const float* bias, const float* c_prev,
                     float* c, float* h, int h_ld, int batch, int hidden);
// d_h (row stride d_h_ld) plus d_h_next (null at the last step) is the gradient of h; gates become
// their own gradient; d_c is updated in place from the gradient of c to that of c_prev.
void LstmCellBackward(const Queue& queue, float* gates, const float* c_prev, const float* c,
                      const float* d_h, int d_h_ld, const float* d_h_next, float* d_c, bool last,
                      int batch, int hidden);

// Steps [from, to) of a bidirectional tanh recurrence in one launch: h[t] = tanh(gx[t] + bias +
// h[t-1] U). gx and h are [steps, batch, 2 hidden], directions side by side; u is [2, hidden,
// hidden]. Direction 1 runs from the end. `from` counts in each direction's own order.
void RnnForward(const Queue& queue, const float* gx, const float* bias, const float* u, float* h,
                int steps, int from, int to, int batch, int hidden);
// d_a[t] = (d_h[t] + d_a[t+1] U') * (1 - h[t]^2) for own-order steps (to, from], downwards; u_t is
// U transposed.
void RnnBackward(const Queue& queue, const float* u_t, const float* h, const float* d_h, float* d_a,
                 int steps, int from, int to, int batch, int hidden);

// In place over rows of `columns`. Short and long rows have kernels of their own.
void Softmax(const Queue& queue, float* x, int rows, int columns);
// d_x = p * (d_p - sum(d_p * p)), in place over d_p.
void SoftmaxBackward(const Queue& queue, const float* p, float* d_p, int rows, int columns);

// Attention of `queries` over `keys` positions for `batch` independent heads of width `width`,
// fused for short key ranges (keys <= kShortAttentionKeys): p = softmax(scale Q K'), out = p V.
// Element (position, head) of q starts at q + position * q_ld + head * q_stride; k, v, out alike. p
// is [batch, queries, keys].
constexpr int kShortAttentionKeys = 64;
struct AttentionShape {
  int batch;
  int queries;
  int keys;
  int width;
  float scale;
  int q_ld;
  int q_stride;
  int k_ld;
  int k_stride;
  int out_ld;
  int out_stride;
};
void AttentionShort(const Queue& queue, const AttentionShape& shape, const float* q, const float* k,
                    const float* v, float* p, float* out);

// out = layernorm(a + b); b may be null. sum keeps a + b, stats mean and 1/deviation per row.
void LayerNorm(const Queue& queue, const float* a, const float* b, const float* gamma,
               const float* beta, float* sum, float* stats, float* out, int rows, int columns);
// d_x gets the gradient of a + b; d_gamma and d_beta are added to.
void LayerNormBackward(const Queue& queue, const float* sum, const float* stats, const float* gamma,
                       const float* d_out, float* d_x, int rows, int columns);
void LayerNormParameters(const Queue& queue, const float* sum, const float* stats,
                         const float* d_out, float* d_gamma, float* d_beta, int rows, int columns);

// Row losses of logits[rows, columns] against labels; a negative label counts nothing. lse keeps
// log-sum-exp per row.
void CrossEntropy(const Queue& queue, const float* logits, const int* labels, float* row_loss,
                  float* lse, int rows, int columns);
// logits become their own gradient, times scale.
void CrossEntropyBackward(const Queue& queue, float* logits, const int* labels, const float* lse,
                          float scale, int rows, int columns);
// loss[0] = scale * sum of row_loss (+ loss[0] if accumulate).
void ReduceLoss(const Queue& queue, const float* row_loss, int rows, float scale, float* loss,
                bool accumulate);

// Tensors [time, batch, channels, frequency]; filter [out, in, kernel_time, kernel_frequency].
struct ConvShape {
  int batch;
  int in_channels;
  int in_time;
  int in_frequency;
  int out_channels;
  int kernel_time;
  int kernel_frequency;
  int stride;  // both axes; padding is half the kernel
  int OutTime() const { return (in_time - 1) / stride + 1; }
  int OutFrequency() const { return (in_frequency - 1) / stride + 1; }
};
void Conv(const Queue& queue, const ConvShape& shape, const float* x, const float* filter,
          float* out);
void ConvDataGradient(const Queue& queue, const ConvShape& shape, const float* d_out,
                      const float* filter, float* d_x);
// d_filter is added to.
void ConvFilterGradient(const Queue& queue, const ConvShape& shape, const float* x,
                        const float* d_out, float* d_filter);

// Connectionist temporal classification (Graves et al., ICML 2006) over logits [steps, batch,
// symbols], blank 0, symbols <= 32. labels is [batch, max_labels], negative beyond an example's
// own. alpha is [steps, batch, 2 max_labels + 1]. row_loss is per example; d_logits gets the
// gradient times scale. The labels must fit: steps >= 2 labels + 1.
void Ctc(const Queue& queue, const float* logits, const int* labels, float* alpha, float* row_loss,
         float* d_logits, float scale, int steps, int batch, int symbols, int max_labels);

// out[batch][row * batch_size + b]: expands packed sequences to [length, batch], zero beyond the
// end.
void PadTokens(const Queue& queue, const int* packed, const int* offsets, int* tokens, int* labels,
               int length, int batch);

// Partial sums of squares, their reduction to a clipping factor, and Adam (Kingma and Ba, 2015).
// `step` is a device counter, so that a captured graph can be replayed.
constexpr int kNormBlocks = 256;
void GradientNorm(const Queue& queue, const float* gradient, size_t count, float* partial);
void ClipFactor(const Queue& queue, const float* partial, float max_norm, float* factor, int* step);
void Adam(const Queue& queue, bool foreach, float* parameter, const float* gradient, float* m,
          float* v, size_t count, float learning_rate, const float* factor, const int* step);

}  // namespace seqpoint::workload

#endif  // SEQPOINT_TESTS_WORKLOADS_KERNELS_H_
