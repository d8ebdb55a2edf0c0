// A CUDA program that has its own protobuf and Abseil, as many training programs do.
#include <cuda.h>
#include <google/protobuf/struct.pb.h>
#include <stdio.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

int main() {
  google::protobuf::Struct message;
  (*message.mutable_fields())["length"].set_number_value(17);
  CUcontext context;
  CUmodule module;
  CUfunction kernel;
  CUdeviceptr data;
  if (cuInit(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
      cuCtxSetCurrent(context) != CUDA_SUCCESS || cuMemAlloc(&data, 4096) != CUDA_SUCCESS ||
      cuModuleLoadData(&module, "image") != CUDA_SUCCESS ||
      cuModuleGetFunction(&kernel, module, "kernel") != CUDA_SUCCESS) {
    return 3;
  }
  void* arguments[] = {&data};
  for (int i = 0; i < 10; ++i) {
    if (cuLaunchKernel(kernel, 4, 1, 1, 64, 1, 1, 0, nullptr, arguments, nullptr) != CUDA_SUCCESS) {
      return 4;
    }
  }
  if (cuCtxSynchronize() != CUDA_SUCCESS) return 5;
  std::string bytes;
  message.SerializeToString(&bytes);
  google::protobuf::Struct parsed;
  if (!parsed.ParseFromString(bytes)) return 6;
  printf("%s\n", absl::StrCat("length ", parsed.fields().at("length").number_value()).c_str());
  return 0;
}
