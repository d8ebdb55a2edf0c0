#include "daemon/queries/reply_text.h"

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/base/limits.h"
#include "proto/utf8.h"

namespace seqpoint::queries {
namespace {

using google::protobuf::FieldDescriptor;

// Calls `change` for each text of the message and of those in it; one that it returns takes the
// text's place.
template <typename Change>
void ForEachText(google::protobuf::Message* message, const Change& change) {
  const google::protobuf::Reflection* reflection = message->GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection->ListFields(*message, &fields);
  std::string scratch;
  for (const FieldDescriptor* field : fields) {
    const bool is_message = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    if (!is_message && field->type() != FieldDescriptor::TYPE_STRING) continue;
    const int count = field->is_repeated() ? reflection->FieldSize(*message, field) : 1;
    for (int i = 0; i < count; ++i) {
      if (is_message) {
        ForEachText(field->is_repeated() ? reflection->MutableRepeatedMessage(message, field, i)
                                         : reflection->MutableMessage(message, field),
                    change);
        continue;
      }
      const std::string& text =
          field->is_repeated()
              ? reflection->GetRepeatedStringReference(*message, field, i, &scratch)
              : reflection->GetStringReference(*message, field, &scratch);
      std::optional<std::string> changed = change(*field, text);
      if (!changed) continue;
      if (field->is_repeated()) {
        reflection->SetRepeatedString(message, field, i, *std::move(changed));
      } else {
        reflection->SetString(message, field, *std::move(changed));
      }
    }
  }
}

}  // namespace

void MakeFit(google::protobuf::Message* message) {
  ForEachText(message, [](const FieldDescriptor&, const std::string& text) {
    std::optional<std::string> fit;
    if (!IsUtf8(text)) fit = ToUtf8(text);
    if (text.size() > kMaxReplyTextBytes) fit = ClipText(fit.value_or(text), kMaxReplyTextBytes);
    return fit;
  });
}

}  // namespace seqpoint::queries
