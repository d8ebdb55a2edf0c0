// The fields that replies have set, by message: "Job.rule", "SeqPoint.weight".
//
// Threading: one thread. Ownership: a value.
#ifndef TESTS_INTEGRATION_CONTRACT_SET_FIELDS_H_
#define TESTS_INTEGRATION_CONTRACT_SET_FIELDS_H_

#include <google/protobuf/message.h>

#include <map>
#include <set>
#include <string>
#include <vector>

namespace seqpoint {

class SetFields {
 public:
  // `where`: the path of the message in the reply, for messages about its fields.
  void Add(const google::protobuf::Message& message, const std::string& where) {
    std::vector<const google::protobuf::FieldDescriptor*> fields;
    message.GetReflection()->ListFields(message, &fields);
    for (const auto* field : fields) {
      const std::string path = where + "." + field->name();
      paths_.try_emplace(NameOf(*field), path);
      if (field->cpp_type() != google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE) continue;
      const auto& reflection = *message.GetReflection();
      if (!field->is_repeated()) {
        Add(reflection.GetMessage(message, field), path);
        continue;
      }
      for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
        Add(reflection.GetRepeatedMessage(message, field, i), path);
      }
    }
  }

  bool Has(const std::string& field) const { return paths_.contains(field); }
  // Where a field that is set was met first.
  const std::map<std::string, std::string>& paths() const { return paths_; }

  // All fields that the message, and those in it, can have.
  static void AddDeclared(const google::protobuf::Descriptor& message,
                          std::set<std::string>* declared) {
    for (int i = 0; i < message.field_count(); ++i) {
      const auto* field = message.field(i);
      if (!declared->insert(NameOf(*field)).second || field->message_type() == nullptr) continue;
      AddDeclared(*field->message_type(), declared);
    }
  }

 private:
  static std::string NameOf(const google::protobuf::FieldDescriptor& field) {
    return field.containing_type()->name() + "." + field.name();
  }

  std::map<std::string, std::string> paths_;
};

}  // namespace seqpoint

#endif  // TESTS_INTEGRATION_CONTRACT_SET_FIELDS_H_
