// Nodes and hubs, for people.
// Threading: pure functions.
#ifndef CLIENT_TEXT_NODES_TEXT_H_
#define CLIENT_TEXT_NODES_TEXT_H_

#include <string>

#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::client {

// One line, without its end.
std::string HubText(const v1::HubConnection& hub);
// Its host, with the short id where two of the nodes have that host: "n1 (node 3f2a91bc)".
std::string NodeName(const v1::Node& node, const v1::ListNodesReply& nodes);
std::string NodesText(const v1::ListNodesReply& reply);

}  // namespace seqpoint::client

#endif  // CLIENT_TEXT_NODES_TEXT_H_
