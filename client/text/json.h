// Messages, fields and errors as JSON.
// Threading: pure functions.
#ifndef CLIENT_TEXT_JSON_H_
#define CLIENT_TEXT_JSON_H_

#include <google/protobuf/message.h>

#include <map>
#include <string>

#include "absl/status/status.h"

namespace seqpoint::client {

// The protobuf JSON of a reply, with the field names of the .proto file and with zeros.
std::string ToJson(const google::protobuf::Message& message, bool one_line);

// An object of strings, where there is no reply that could be shown.
std::string FieldsJson(const std::map<std::string, std::string>& fields);
// {"error": {"code": "NOT_FOUND", "message": "no job ..."}}
std::string ErrorJson(const absl::Status& status);

}  // namespace seqpoint::client

#endif  // CLIENT_TEXT_JSON_H_
