#include "client/text/nodes_text.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/text/format.h"
#include "client/text/plain_text.h"

namespace seqpoint::client {
namespace {

constexpr size_t kShortId = 8;  // characters

}  // namespace

std::string HubText(const v1::HubConnection& hub) {
  const std::string waiting =
      absl::StrCat("; ", hub.waiting_batches(), " batches of reports are waiting for it");
  const bool error_names_it =
      absl::StrContains(hub.error(), absl::StripPrefix(hub.address(), "unix:"));
  return absl::StrCat(error_names_it ? "" : absl::StrCat(hub.address(), ", "),
                      hub.connected() ? "connected" : "not connected",
                      hub.error().empty() ? "" : absl::StrCat(": ", hub.error()),
                      hub.waiting_batches() > 0 ? waiting : "");
}

std::string NodeName(const v1::Node& node, const v1::ListNodesReply& nodes) {
  const auto same =
      std::count_if(nodes.nodes().begin(), nodes.nodes().end(),
                    [&](const v1::Node& other) { return other.host() == node.host(); });
  if (same < 2) return node.host();
  return absl::StrCat(node.host(), " (node ", node.id().substr(0, kShortId), ")");
}

std::string NodesText(const v1::ListNodesReply& reply) {
  const std::string leader =
      reply.leader().empty()
          ? ""
          : absl::StrCat("hub ", reply.leader(), " leads; the others pass calls to it\n");
  if (reply.nodes_size() == 0) {
    return leader +
           "no node since this hub was started or took over; nodes that know it come back within a "
           "minute, and `seqpointd --hub ADDRESS` makes a machine one\n";
  }
  Table table({"NODE", "STATE", "SINCE", ">PROCESSES", "SEQPOINTD", "ID"});
  for (const v1::Node& node : reply.nodes()) {
    table.AddRow({node.host(), node.connected() ? "connected" : "not connected",
                  node.since_ns() > 0 ? FormatTime(node.since_ns()) : "",
                  FormatCount(node.live_processes()), node.version(),
                  node.id().substr(0, kShortId)});
  }
  return leader + table.ToString();
}

}  // namespace seqpoint::client
