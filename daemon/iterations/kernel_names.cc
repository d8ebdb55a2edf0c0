#include "daemon/iterations/kernel_names.h"

#include "absl/strings/str_cat.h"
#include "daemon/base/demangle.h"

namespace seqpoint::iterations {

std::string ShortName(std::string_view name) {
  if (name.empty()) return "an unnamed kernel";
  if (name.substr(0, 2) == "_Z") {
    std::string text = Demangle(std::string(name));
    if (text != name) {
      const std::string anonymous = "(anonymous namespace)::";
      for (size_t at; (at = text.find(anonymous)) != std::string::npos;) {
        text.erase(at, anonymous.size());
      }
      return ShortName(text);
    }
  }
  if (name.substr(0, 5) == "void ") name.remove_prefix(5);
  const size_t end = name.find_first_of("<(");
  if (end != std::string_view::npos && end > 0) name = name.substr(0, end);
  std::string text(name.substr(0, 80));
  if (name.size() > 80) text.replace(77, 3, "...");
  return text;
}

std::string Ordinal(uint32_t n) {
  const uint32_t tens = n % 100;
  const char* suffix = tens >= 11 && tens <= 13 ? "th"
                       : n % 10 == 1            ? "st"
                       : n % 10 == 2            ? "nd"
                       : n % 10 == 3            ? "rd"
                                                : "th";
  return absl::StrCat(n, suffix);
}

}  // namespace seqpoint::iterations
