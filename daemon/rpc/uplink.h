// Uplink: the node's side of proto/seqpoint/v1/ingest.proto. It sends the batches of the outbox to
// the hub, answers the hub's questions for traces, and connects again when the stream breaks: to
// the next of several hubs. Without a hub nothing changes for the node.
//
//   auto uplink = Uplink::Start({.address = "hub:7443", ...}, daemon->outbox(),
//                               &daemon->trace_answers());
//
// Threading: threads of its own; the functions are thread-safe. Ownership: keeps pointers to the
// outbox and the answers, which outlive it. The destructor ends the stream.
#ifndef DAEMON_RPC_UPLINK_H_
#define DAEMON_RPC_UPLINK_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "daemon/rpc/hub_channel.h"
#include "daemon/service/outbox.h"
#include "daemon/service/trace_answers.h"

namespace seqpoint::rpc {

struct UplinkOptions {
  std::string addresses;  // of hubs, as HubChannel has them, separated by commas
  TlsPem files;           // that change are read again before the next attempt to connect
};

class Uplink {
 public:
  // InvalidArgument: options that cannot be. A hub that does not answer is none of these: the
  // outbox is told, for people (Outbox::DescribeHub).
  static absl::StatusOr<std::unique_ptr<Uplink>> Start(const UplinkOptions& options,
                                                       service::Outbox* outbox,
                                                       const service::TraceAnswers* traces);
  virtual ~Uplink() = default;
};

}  // namespace seqpoint::rpc

#endif  // DAEMON_RPC_UPLINK_H_
