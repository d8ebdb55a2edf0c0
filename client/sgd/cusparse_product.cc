#include "client/sgd/cusparse_product.h"

#include <cuda_runtime_api.h>
#include <cusparse.h>
#include <stdio.h>
#include <stdlib.h>

#include <algorithm>
#include <memory>

namespace seqpoint::sgd {
namespace {

[[noreturn]] void Fail(const char* call, const char* why) {
  fprintf(stderr, "seqpoint-sgd: %s: %s; leave --gpu out\n", call, why);
  exit(1);
}
void Check(cudaError_t status, const char* call) {
  if (status != cudaSuccess) Fail(call, cudaGetErrorString(status));
}
void Check(cusparseStatus_t status, const char* call) {
  if (status != CUSPARSE_STATUS_SUCCESS) Fail(call, cusparseGetErrorString(status));
}

cusparseHandle_t Handle() {
  static const cusparseHandle_t handle = [] {
    cusparseHandle_t made = nullptr;
    Check(cusparseCreate(&made), "cusparseCreate");
    return made;
  }();
  return handle;
}

// Memory of the device that grows when it is asked for more.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory() { cudaFree(data_); }

  void* Reserve(size_t bytes) {
    if (bytes <= bytes_) return data_;
    Check(cudaFree(data_), "cudaFree");
    data_ = nullptr;
    Check(cudaMalloc(&data_, bytes), "cudaMalloc");
    bytes_ = bytes;
    return data_;
  }
  void* Fill(const void* from, size_t bytes) {
    Check(cudaMemcpy(Reserve(bytes), from, bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
    return data_;
  }
  void Read(void* to, size_t bytes) const {
    Check(cudaMemcpy(to, data_, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
  }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

class DenseMatrix {
 public:
  DenseMatrix(const Batch& batch, void* data) {
    Check(cusparseCreateDnMat(&matrix_, batch.rows(), batch.cols(), batch.cols(), data, CUDA_R_32F,
                              CUSPARSE_ORDER_ROW),
          "cusparseCreateDnMat");
  }
  DenseMatrix(const DenseMatrix&) = delete;
  DenseMatrix& operator=(const DenseMatrix&) = delete;
  ~DenseMatrix() { cusparseDestroyDnMat(matrix_); }
  cusparseDnMatDescr_t get() const { return matrix_; }

 private:
  cusparseDnMatDescr_t matrix_ = nullptr;
};

// The weights stay on the device; inputs and results travel for each product, because messages
// between ranks leave from the memory of the host.
class CusparseProduct : public LocalProduct {
 public:
  explicit CusparseProduct(Weights* weights) : weights_(*weights) {
    if (Empty()) return;
    void* rows = rows_.Fill(weights_.outerIndexPtr(), sizeof(int32_t) * (weights_.rows() + 1));
    void* columns = columns_.Fill(weights_.innerIndexPtr(), sizeof(int32_t) * weights_.nonZeros());
    void* values = values_.Fill(weights_.valuePtr(), ValueBytes());
    Check(cusparseCreateCsr(&matrix_, weights_.rows(), weights_.cols(), weights_.nonZeros(), rows,
                            columns, values, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_32I,
                            CUSPARSE_INDEX_BASE_ZERO, CUDA_R_32F),
          "cusparseCreateCsr");
  }
  CusparseProduct(const CusparseProduct&) = delete;
  CusparseProduct& operator=(const CusparseProduct&) = delete;
  ~CusparseProduct() override {
    if (matrix_ != nullptr) cusparseDestroySpMat(matrix_);
  }

  void Multiply(const Batch& x, Batch* y) override {
    y->setZero(weights_.rows(), x.cols());
    Multiply(CUSPARSE_OPERATION_NON_TRANSPOSE, x, y);
  }
  void MultiplyAdd(const Batch& x, Batch* y) override {
    Multiply(CUSPARSE_OPERATION_NON_TRANSPOSE, x, y);
  }
  Batch MultiplyTransposed(const Batch& x) override {
    Batch y = Batch::Zero(weights_.cols(), x.cols());
    Multiply(CUSPARSE_OPERATION_TRANSPOSE, x, &y);
    return y;
  }

  // SDDMM: C = alpha A B + beta C where C has a nonzero (cuSPARSE documentation, "cusparseSDDMM").
  void Update(float step, const Batch& gradient, const Batch& input) override {
    if (Empty()) return;
    const DenseMatrix a(gradient, x_.Fill(gradient.data(), Bytes(gradient)));
    const DenseMatrix b(input, y_.Fill(input.data(), Bytes(input)));
    const float alpha = -step;
    const float beta = 1;
    size_t bytes = 0;
    Check(cusparseSDDMM_bufferSize(Handle(), CUSPARSE_OPERATION_NON_TRANSPOSE,
                                   CUSPARSE_OPERATION_TRANSPOSE, &alpha, a.get(), b.get(), &beta,
                                   matrix_, CUDA_R_32F, CUSPARSE_SDDMM_ALG_DEFAULT, &bytes),
          "cusparseSDDMM_bufferSize");
    Check(cusparseSDDMM(Handle(), CUSPARSE_OPERATION_NON_TRANSPOSE, CUSPARSE_OPERATION_TRANSPOSE,
                        &alpha, a.get(), b.get(), &beta, matrix_, CUDA_R_32F,
                        CUSPARSE_SDDMM_ALG_DEFAULT, buffer_.Reserve(bytes)),
          "cusparseSDDMM");
  }

  void Store() override {
    if (!Empty()) values_.Read(weights_.valuePtr(), ValueBytes());
  }

 private:
  // cuSPARSE refuses matrices without rows, columns or nonzeros.
  bool Empty() const { return weights_.nonZeros() == 0; }
  size_t ValueBytes() const { return sizeof(float) * static_cast<size_t>(weights_.nonZeros()); }
  static size_t Bytes(const Batch& batch) {
    return sizeof(float) * static_cast<size_t>(batch.size());
  }

  // `y` += op(W) `x`.
  void Multiply(cusparseOperation_t operation, const Batch& x, Batch* y) {
    if (Empty()) return;
    const DenseMatrix b(x, x_.Fill(x.data(), Bytes(x)));
    const DenseMatrix c(*y, y_.Fill(y->data(), Bytes(*y)));
    const float one = 1;
    size_t bytes = 0;
    Check(cusparseSpMM_bufferSize(Handle(), operation, CUSPARSE_OPERATION_NON_TRANSPOSE, &one,
                                  matrix_, b.get(), &one, c.get(), CUDA_R_32F,
                                  CUSPARSE_SPMM_ALG_DEFAULT, &bytes),
          "cusparseSpMM_bufferSize");
    Check(
        cusparseSpMM(Handle(), operation, CUSPARSE_OPERATION_NON_TRANSPOSE, &one, matrix_, b.get(),
                     &one, c.get(), CUDA_R_32F, CUSPARSE_SPMM_ALG_DEFAULT, buffer_.Reserve(bytes)),
        "cusparseSpMM");
    y_.Read(y->data(), Bytes(*y));
  }

  Weights& weights_;
  DeviceMemory rows_, columns_, values_;
  DeviceMemory x_, y_, buffer_;
  cusparseSpMatDescr_t matrix_ = nullptr;
};

}  // namespace
}  // namespace seqpoint::sgd

extern "C" __attribute__((visibility("default"))) const char* seqpoint_sgd_open_gpu(
    int rank_of_machine) {
  int devices = 0;
  cudaError_t status = cudaGetDeviceCount(&devices);
  if (status == cudaSuccess && devices == 0) status = cudaErrorNoDevice;
  if (status == cudaSuccess) status = cudaSetDevice(rank_of_machine % devices);
  return status == cudaSuccess ? nullptr : cudaGetErrorString(status);
}

extern "C" __attribute__((visibility("default"))) seqpoint::sgd::LocalProduct*
seqpoint_sgd_cusparse_product(seqpoint::sgd::Weights* weights) {
  return std::make_unique<seqpoint::sgd::CusparseProduct>(weights).release();
}
