#include "client/text/notes.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/text/format.h"

namespace seqpoint::client {

std::string FormatConfidence(double confidence) {
  return absl::StrFormat("%g %%", confidence * 100);
}

std::string LossesLine(const v1::Losses& losses) {
  std::string text = FormatLosses(losses);
  return text.empty() ? "" : absl::StrCat("left out: ", text, "\n");
}

std::string UncountedNote(const v1::Losses& losses) {
  return losses.uncounted_processes() == 0
             ? ""
             : Note("not all of the job was read: there may have been more iterations");
}

std::string ClockNote(v1::ClockKind kind) {
  return kind == v1::CLOCK_KIND_FOREIGN
             ? "times are not of this machine's clock (a software GPU's, or another tool's)\n"
             : "";
}

std::string Note(const std::string& text) { return text.empty() ? "" : Wrap("note: ", text); }

std::string PartLine(const std::string& part) {
  return part.empty() ? "" : absl::StrCat("of ", part, "\n");
}

}  // namespace seqpoint::client
