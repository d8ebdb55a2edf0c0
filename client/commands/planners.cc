#include "client/commands/planners.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "client/commands/commands.h"

namespace seqpoint::client {

bool IsPlanner(const std::string& command) {
  return std::any_of(std::begin(kPlanners), std::end(kPlanners),
                     [&](const Planner& planner) { return command == planner.name; });
}

absl::Status StartPlanner(const std::string& name, const std::vector<std::string>& arguments) {
  std::error_code error;
  const std::filesystem::path here =
      std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  const std::string program = here / absl::StrCat("seqpoint-", name);
  std::vector<const char*> words = {program.c_str()};
  for (const std::string& argument : arguments) words.push_back(argument.c_str());
  words.push_back(nullptr);
  execv(program.c_str(), const_cast<char* const*>(words.data()));
  return absl::InternalError(absl::StrCat("cannot start ", program, ": ", strerror(errno),
                                          "; it belongs next to this program: `./dev build release "
                                          "--target seqpoint-",
                                          name, "` makes it"));
}

void AddPlanners(CLI::App* app, Context* context) {
  for (const Planner& planner : kPlanners) {
    struct NoOptions {};
    AddCommand<NoOptions>(app, context, planner.name, planner.help,
                          [](const Context& given, NoOptions&) -> absl::StatusOr<int> {
                            return given.UsageError("put the command first");
                          })
        .app->prefix_command()
        ->fallthrough(false);
  }
}

}  // namespace seqpoint::client
