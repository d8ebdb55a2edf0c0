// `seqpoint doctor`.
#include <algorithm>

#include "client/commands/commands.h"
#include "client/commands/doctor/diagnosis.h"
#include "client/text/plain_text.h"

namespace seqpoint::client {
namespace {

struct DoctorOptions {
  std::string python = "python3";
};

absl::StatusOr<int> Doctor(const Context& context, DoctorOptions& options) {
  DoctorFacts facts = CollectFacts("", options.python);
  AskDaemon(context.connect(), &facts);
  const std::vector<Finding> findings = Diagnose(facts, context.version());
  Context::Print(context.json() ? FindingsJson(findings) + "\n"
                                : Printable(FindingsText(findings)));
  const bool problem = std::any_of(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.kind == Finding::kProblem;
  });
  return problem ? kExitError : kExitOk;
}

}  // namespace

void AddDoctor(CLI::App* app, Context* context) {
  auto [command, options] = AddCommand<DoctorOptions>(
      app, context, "doctor", "Say what stands in the way of a profile, and what to do.", &Doctor);
  AddValue(command, "--python PATH", &options->python,
           "the Python of the training, whose PyTorch is looked at; default: python3");
}

}  // namespace seqpoint::client
