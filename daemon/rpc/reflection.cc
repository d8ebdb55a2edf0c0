#include "daemon/rpc/reflection.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>

#include <set>
#include <string>

namespace seqpoint::rpc {
namespace {

namespace reflection = grpc::reflection::v1;
using google::protobuf::DescriptorPool;
using google::protobuf::FileDescriptor;

constexpr const char* kServices[] = {"grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection",
                                     "grpc.reflection.v1alpha.ServerReflection",
                                     "seqpoint.v1.Profiler"};

// The file and, before it, all that it imports.
void AddFile(const FileDescriptor& file, std::set<std::string>* seen,
             reflection::FileDescriptorResponse* response) {
  if (!seen->insert(std::string(file.name())).second) return;
  for (int i = 0; i < file.dependency_count(); ++i) AddFile(*file.dependency(i), seen, response);
  google::protobuf::FileDescriptorProto proto;
  file.CopyTo(&proto);
  response->add_file_descriptor_proto(proto.SerializeAsString());
}

reflection::ServerReflectionResponse Answer(const reflection::ServerReflectionRequest& request) {
  using Request = reflection::ServerReflectionRequest;
  reflection::ServerReflectionResponse response;
  response.set_valid_host(request.host());
  *response.mutable_original_request() = request;
  const auto fail = [&](grpc::StatusCode code, const std::string& why) {
    response.mutable_error_response()->set_error_code(code);
    response.mutable_error_response()->set_error_message(why);
  };
  const auto add = [&](const FileDescriptor* file, const std::string& name) {
    std::set<std::string> seen;
    if (file == nullptr) {
      fail(grpc::StatusCode::NOT_FOUND, "\"" + name + "\" is not known here");
    } else {
      AddFile(*file, &seen, response.mutable_file_descriptor_response());
    }
  };
  const DescriptorPool& pool = *DescriptorPool::generated_pool();
  switch (request.message_request_case()) {
    case Request::kListServices:
      for (const char* name : kServices) {
        response.mutable_list_services_response()->add_service()->set_name(name);
      }
      break;
    case Request::kFileByFilename:
      add(pool.FindFileByName(request.file_by_filename()), request.file_by_filename());
      break;
    case Request::kFileContainingSymbol:
      add(pool.FindFileContainingSymbol(request.file_containing_symbol()),
          request.file_containing_symbol());
      break;
    case Request::kFileContainingExtension:
      add(nullptr, request.file_containing_extension().containing_type());
      break;
    case Request::kAllExtensionNumbersOfType: {
      const std::string& type = request.all_extension_numbers_of_type();
      if (pool.FindMessageTypeByName(type) == nullptr) {
        add(nullptr, type);
      } else {
        response.mutable_all_extension_numbers_response()->set_base_type_name(type);
      }
      break;
    }
    case Request::MESSAGE_REQUEST_NOT_SET:
      fail(grpc::StatusCode::INVALID_ARGUMENT, "the request asks for nothing");
      break;
  }
  return response;
}

}  // namespace

grpc::Status Reflection::ServerReflectionInfo(
    grpc::ServerContext* context,
    grpc::ServerReaderWriter<reflection::ServerReflectionResponse,
                             reflection::ServerReflectionRequest>* stream) {
  reflection::ServerReflectionRequest request;
  while (stream->Read(&request)) {
    if (!stream->Write(Answer(request))) break;
  }
  return grpc::Status::OK;
}

}  // namespace seqpoint::rpc
