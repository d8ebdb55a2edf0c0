#include "client/text/json.h"

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>

namespace seqpoint::client {

std::string ToJson(const google::protobuf::Message& message, bool one_line) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = !one_line;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string json;
  if (!google::protobuf::util::MessageToJsonString(message, &json, options).ok()) {
    return "{}";  // only a message with bytes that are not UTF-8, which no parsed reply has
  }
  while (!json.empty() && json.back() == '\n') json.pop_back();
  return json;
}

std::string FieldsJson(const std::map<std::string, std::string>& fields) {
  google::protobuf::Struct object;
  for (const auto& [name, value] : fields) {
    (*object.mutable_fields())[name].set_string_value(value);
  }
  return ToJson(object, /*one_line=*/false);
}

std::string ErrorJson(const absl::Status& status) {
  google::protobuf::Struct object;
  auto* error = (*object.mutable_fields())["error"].mutable_struct_value()->mutable_fields();
  (*error)["code"].set_string_value(absl::StatusCodeToString(status.code()));
  (*error)["message"].set_string_value(std::string(status.message()));
  return ToJson(object, /*one_line=*/false);
}

}  // namespace seqpoint::client
