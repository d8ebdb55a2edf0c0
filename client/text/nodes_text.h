// Nodes and hubs, for people.
// Threading: pure functions.
#ifndef CLIENT_TEXT_NODES_TEXT_H_
#define CLIENT_TEXT_NODES_TEXT_H_

#include <string>

#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::client {

// One line, without its end.
std::string HubText(const v1::HubConnection& hub);
std::string NodesText(const v1::ListNodesReply& reply);

}  // namespace seqpoint::client

#endif  // CLIENT_TEXT_NODES_TEXT_H_
