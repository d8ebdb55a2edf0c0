#include "daemon/placement/operator_arguments.h"

#include "absl/container/flat_hash_set.h"

namespace seqpoint::placement {
namespace {

// The names that native_functions.yaml gives to arguments that are parameters of modules: weight,
// in_proj_bias, ffn_weight_1; params of aten::lstm, w_ih of aten::lstm_cell.
bool NamesParameter(std::string_view argument) {
  static const auto* const kNames =
      new absl::flat_hash_set<std::string_view>{"params", "w_ih", "w_hh", "b_ih", "b_hh"};
  return argument.find("weight") != argument.npos || argument.find("bias") != argument.npos ||
         argument.starts_with("running_") || kNames->contains(argument);
}

}  // namespace

std::vector<Argument> ArgumentsOf(std::string_view schema) {
  std::vector<Argument> arguments;
  const size_t open = schema.find('(');
  if (open == schema.npos) return arguments;
  int depth = 0;
  size_t begin = open + 1;
  for (size_t at = begin; at < schema.size(); ++at) {
    const char c = schema[at];
    const bool last = c == ')' && depth == 0;
    if (last || (c == ',' && depth == 0)) {
      std::string_view text = schema.substr(begin, at - begin);
      begin = at + 1;
      const bool written = text.find('!') != text.npos;
      text = text.substr(0, text.find('='));
      const size_t blank = text.rfind(' ');
      const std::string_view name = blank == text.npos ? text : text.substr(blank + 1);
      if (!name.empty() && name != "*") arguments.push_back({NamesParameter(name), written});
      if (last) break;
    }
    if (c == '(' || c == '[') ++depth;
    if (c == ')' || c == ']') --depth;
  }
  return arguments;
}

}  // namespace seqpoint::placement
