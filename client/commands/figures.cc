#include "client/commands/figures.h"

#include "absl/strings/str_cat.h"
#include "client/commands/options.h"

namespace seqpoint::client {

void FigureOptions::AddTo(CLI::App* command) {
  AddValue(command, "--confidence C", &confidence,
           "probability that the interval holds the truth; default 95%", Confidence());
  horizon.AddTo(command);
}

absl::Status NothingToShow(const std::string& why, const v1::Job& job) {
  const std::string& reason = job.error().empty() ? job.overhead().message() : job.error();
  return absl::FailedPreconditionError(absl::StrCat(
      why, "; ", reason.empty() ? "`seqpoint doctor` says what stands in the way" : reason));
}

}  // namespace seqpoint::client
