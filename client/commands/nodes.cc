// `seqpoint nodes`.
#include "client/commands/commands.h"
#include "client/text/help.h"
#include "client/text/nodes_text.h"

namespace seqpoint::client {
namespace {

struct NodesOptions {};

absl::StatusOr<int> ShowNodes(const Context& context, NodesOptions&) {
  return context.Ask(&v1::Profiler::Stub::ListNodes, v1::ListNodesRequest(), NodesText);
}

}  // namespace

void AddNodes(CLI::App* app, Context* context) {
  auto [command, options] = AddCommand<NodesOptions>(
      app, context, "nodes", "The nodes that tell a hub, and whether it hears them.", &ShowNodes);
  command->footer(kNodesHelp);
}

}  // namespace seqpoint::client
