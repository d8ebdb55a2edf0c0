#include "daemon/sparse/owners_text.h"

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "proto/invalid_argument.h"

namespace seqpoint::sparse {

std::string WriteOwners(const Owners& owners) {
  std::string text;
  for (const std::vector<int32_t>& layer : owners) {
    absl::StrAppend(&text, absl::StrJoin(layer, " "), "\n");
  }
  return text;
}

absl::StatusOr<Owners> ReadOwners(std::string_view bytes, const std::string& file) {
  absl::string_view text(bytes.data(), bytes.size());
  Owners owners;
  if (!text.empty() && !absl::ConsumeSuffix(&text, "\n")) {
    return InvalidArgument(file, ": the last line has no line end: the file was cut off");
  }
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    std::vector<int32_t> parts;
    for (const absl::string_view word :
         absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty())) {
      int32_t part = 0;
      if (!absl::SimpleAtoi(word, &part) || part < 0) {
        return InvalidArgument(file, ":", owners.size() + 1, ": part ", parts.size() + 1, " is \"",
                               absl::CHexEscape(word.substr(0, 20)),
                               "\", not a whole number from 0 on");
      }
      parts.push_back(part);
    }
    if (parts.empty()) {
      return InvalidArgument(file, ":", owners.size() + 1, ": a layer without neurons");
    }
    owners.push_back(std::move(parts));
  }
  return owners;
}

std::string WriteSendLists(const std::vector<Message>& messages) {
  std::string text;
  for (const Message& message : messages) {
    absl::StrAppend(&text, message.layer + 1, " ", message.sender, " ", message.receiver, " ",
                    absl::StrJoin(message.neurons, " "), "\n");
  }
  return text;
}

}  // namespace seqpoint::sparse
