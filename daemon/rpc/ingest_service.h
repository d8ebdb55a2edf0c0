// IngestService: the hub's side of proto/seqpoint/v1/ingest.proto. Each node has a stream, whose
// batches go to NodeReports and whose acknowledgements come from there.
//
// Threading: gRPC's threads; a stream takes none while it waits. Ownership: keeps a pointer to the
// reports, which outlive the server.
#ifndef DAEMON_RPC_INGEST_SERVICE_H_
#define DAEMON_RPC_INGEST_SERVICE_H_

#include "daemon/service/node_reports.h"
#include "seqpoint/v1/ingest.grpc.pb.h"

namespace seqpoint::rpc {

class IngestService final : public v1::Ingest::CallbackService {
 public:
  explicit IngestService(service::NodeReports* nodes) : nodes_(*nodes) {}

  grpc::ServerBidiReactor<v1::NodeMessage, v1::HubMessage>* Connect(
      grpc::CallbackServerContext* context) override;

 private:
  service::NodeReports& nodes_;
};

}  // namespace seqpoint::rpc

#endif  // DAEMON_RPC_INGEST_SERVICE_H_
