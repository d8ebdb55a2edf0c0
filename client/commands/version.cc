// `seqpoint version`.
#include "absl/strings/str_cat.h"
#include "client/commands/commands.h"
#include "client/text/nodes_text.h"
#include "proto/status_macros.h"

namespace seqpoint::client {
namespace {

struct VersionOptions {};

std::string DaemonText(const v1::GetDaemonReply& reply) {
  std::string text = absl::StrCat(
      "seqpointd ", reply.version(), ", process ", reply.pid(), " on ", reply.host(), ", since ",
      FormatTime(reply.start_ns()), reply.private_daemon() ? ", private" : "", "\n", "store  ",
      reply.store_path(), ", ", FormatQuantity(reply.store_bytes(), "B"), ", ",
      FormatCount(reply.jobs(), "job"), "\n");
  if (reply.has_hub()) absl::StrAppend(&text, "hub    ", HubText(reply.hub()), "\n");
  if (!reply.error().empty()) absl::StrAppend(&text, "problem: ", reply.error(), "\n");
  return text;
}

absl::StatusOr<int> ShowVersions(const Context& context, VersionOptions&) {
  v1::GetDaemonReply daemon;
  absl::StatusOr<std::unique_ptr<Connection>> connection = context.ConnectToRunning();
  if (connection.ok()) {
    SEQPOINT_ASSIGN_OR_RETURN(
        daemon, (*connection)->Call(&v1::Profiler::Stub::GetDaemon, v1::GetDaemonRequest()));
  }
  if (context.json()) {
    const std::string text = ToJson(daemon, /*one_line=*/true);
    Context::Print(absl::StrCat("{\"client_version\": \"", context.version(),
                                "\", \"daemon\": ", connection.ok() ? text : "null", "}\n"));
    return kExitOk;
  }
  Context::Print(absl::StrCat("seqpoint  ", context.version(), "\n"));
  MakePrintable(&daemon);
  Context::Print(connection.ok() ? DaemonText(daemon) : "seqpointd none is running\n");
  return kExitOk;
}

}  // namespace

void AddVersion(CLI::App* app, Context* context) {
  AddCommand<VersionOptions>(app, context, "version",
                             "Print the versions of this program and of the daemon.",
                             &ShowVersions);
}

}  // namespace seqpoint::client
