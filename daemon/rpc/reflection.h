// Reflection: gRPC's server reflection in version 1, which clients ask for first. The version that
// gRPC 1.51 brings, v1alpha, is served beside it.
//
// It tells what is linked into this program: services, and the files that define them. Nothing here
// has extensions.
//
// Threading: thread-safe; a stream holds one of gRPC's threads.
#ifndef DAEMON_RPC_REFLECTION_H_
#define DAEMON_RPC_REFLECTION_H_

#include <grpcpp/grpcpp.h>

#include "grpc/reflection/v1/reflection.grpc.pb.h"

namespace seqpoint::rpc {

class Reflection final : public grpc::reflection::v1::ServerReflection::Service {
 public:
  grpc::Status ServerReflectionInfo(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<grpc::reflection::v1::ServerReflectionResponse,
                               grpc::reflection::v1::ServerReflectionRequest>* stream) override;
};

}  // namespace seqpoint::rpc

#endif  // DAEMON_RPC_REFLECTION_H_
