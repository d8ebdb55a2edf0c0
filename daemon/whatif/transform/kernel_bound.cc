#include "daemon/whatif/transform/kernel_bound.h"

#include <re2/re2.h>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"

namespace seqpoint::whatif {

bool IsProduct(const std::string& kernel) {
  static const RE2* const products = new RE2(
      "(?i)gemm|gemv|convol|_conv|conv[0-9_]|asmconv|miopen.*conv|winograd|wgrad|dgrad|fprop|"
      "[shdi468]cudnn_|cutlass|cijk_|xmma|_mma|triton_(tem|mm|bmm|conv)|rnn_blockpersist|flash|"
      "fmha|attention|attn_");
  // They prepare a product or join its parts.
  static const RE2* const helpers = new RE2(
      "(?i)im2col|col2im|winograd_nonfused|winogradWgrad(Data|Delta|Output)|reduce_wgrad|"
      "splitkreduce|precompute_indices|computeoffsets|nchwToNhwc|nhwcToNchw");
  // Arguments may be of a type that is named after products; they follow the last template
  // argument.
  static constexpr absl::string_view kAnonymous = "(anonymous namespace)";
  absl::string_view name = kernel;
  int depth = 0;
  for (size_t at = 0; at < name.size(); ++at) {
    depth += name[at] == '<' ? 1 : name[at] == '>' ? -1 : 0;
    if (name[at] != '(' || depth > 0 || absl::StartsWith(name.substr(at), kAnonymous)) continue;
    name = name.substr(0, at);
  }
  const re2::StringPiece text(name.data(), name.size());
  return RE2::PartialMatch(text, *products) && !RE2::PartialMatch(text, *helpers);
}

}  // namespace seqpoint::whatif
