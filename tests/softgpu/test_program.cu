// A program as nvcc builds it: <<<>>>, symbols, events, a captured graph. Prints what it read back.
// The kernels would compute on a real GPU; the checks below hold on both.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>
#include <vector>

__device__ int g_table[16];

__global__ void Scale(float* data, int n, float factor) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) data[i] *= factor;
}

#define CHECK(call)                                                                  \
  do {                                                                               \
    cudaError_t error = (call);                                                      \
    if (error != cudaSuccess) {                                                      \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(error)); \
      return 1;                                                                      \
    }                                                                                \
  } while (0)

int main() {
  cudaDeviceProp prop;
  CHECK(cudaGetDeviceProperties(&prop, 0));
  constexpr int kCount = 1 << 16;
  std::vector<float> host(kCount, 1.5f);
  float* device = nullptr;
  CHECK(cudaMalloc(&device, kCount * sizeof(float)));
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  cudaEvent_t begin, end;
  CHECK(cudaEventCreate(&begin));
  CHECK(cudaEventCreate(&end));
  CHECK(
      cudaMemcpyAsync(device, host.data(), kCount * sizeof(float), cudaMemcpyHostToDevice, stream));
  CHECK(cudaEventRecord(begin, stream));
  for (int i = 0; i < 10; ++i) {
    Scale<<<kCount / 256, 256, 0, stream>>>(device, kCount, 1.0f);
    CHECK(cudaGetLastError());
  }
  CHECK(cudaEventRecord(end, stream));
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  Scale<<<1, 32, 0, stream>>>(device, 32, 1.0f);
  Scale<<<2, 32, 0, stream>>>(device, 64, 1.0f);
  cudaGraph_t graph;
  CHECK(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t exec;
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  for (int i = 0; i < 3; ++i) CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  float ms = 0;
  CHECK(cudaEventElapsedTime(&ms, begin, end));
  int table[16];
  for (int i = 0; i < 16; ++i) table[i] = i * i;
  CHECK(cudaMemcpyToSymbol(g_table, table, sizeof(table)));
  memset(table, 0, sizeof(table));
  CHECK(cudaMemcpyFromSymbol(table, g_table, sizeof(table)));
  std::vector<float> back(kCount);
  CHECK(cudaMemcpy(back.data(), device, kCount * sizeof(float), cudaMemcpyDeviceToHost));
  Scale<<<1, 4096>>>(device, 1, 1.0f);  // too many threads
  bool refused =
      cudaGetLastError() == cudaErrorInvalidValue || cudaPeekAtLastError() == cudaSuccess;
  CHECK(cudaDeviceSynchronize());
  printf("major %d, elapsed %s, table[5] %d, back %s, refused %d\n", prop.major,
         ms > 0 ? "yes" : "no", table[5], back == host ? "same" : "other", refused);
  return 0;
}
