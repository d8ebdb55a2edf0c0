// A CUDA program that has its own protobuf, Abseil and gRPC, as many training programs do. A gRPC
// server and a client run beside the CUDA work.
#include <cuda.h>
#include <google/protobuf/struct.pb.h>
#include <grpcpp/ext/health_check_service_server_builder_option.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <stdio.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace {

// Asks the server's health service, whose answer is its one field: 1, serving.
bool Ask(grpc::GenericStub* stub) {
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  grpc::ByteBuffer empty(nullptr, 0), reply;
  grpc::Status status;
  auto call = stub->PrepareUnaryCall(&context, "/grpc.health.v1.Health/Check", empty, &queue);
  call->StartCall();
  call->Finish(&reply, &status, &context);
  void* tag = nullptr;
  bool ok = false;
  return queue.Next(&tag, &ok) && ok && status.ok() && reply.Length() == 2;
}

}  // namespace

int main() {
  grpc::EnableDefaultHealthCheckService(true);
  const std::string address = absl::StrCat("unix-abstract:seqpoint-host-", getpid());
  grpc::CallbackGenericService others;
  grpc::ServerBuilder builder;
  builder.RegisterCallbackGenericService(&others);
  builder.AddListeningPort(address, grpc::InsecureServerCredentials());
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) return 7;
  grpc::GenericStub stub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
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
    if (!Ask(&stub)) return 8;
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
