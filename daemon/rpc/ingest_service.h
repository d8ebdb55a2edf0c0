// IngestService: the hub's side of proto/seqpoint/v1/ingest.proto. Each node has a stream, whose
// batches go to NodeReports, where acknowledgements and plans come from, and whose traces go to
// NodeTraces.
//
// Threading: gRPC's threads; a stream takes none while it waits. Ownership: keeps pointers to the
// parts, which outlive the server.
#ifndef DAEMON_RPC_INGEST_SERVICE_H_
#define DAEMON_RPC_INGEST_SERVICE_H_

#include "daemon/service/daemon_parts.h"
#include "seqpoint/v1/ingest.grpc.pb.h"

namespace seqpoint::rpc {

class IngestService final : public v1::Ingest::CallbackService {
 public:
  explicit IngestService(const service::HubParts& hub) : hub_(hub) {}

  grpc::ServerBidiReactor<v1::NodeMessage, v1::HubMessage>* Connect(
      grpc::CallbackServerContext* context) override;

 private:
  const service::HubParts hub_;
};

}  // namespace seqpoint::rpc

#endif  // DAEMON_RPC_INGEST_SERVICE_H_
