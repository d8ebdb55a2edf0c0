// DaemonParts: the parts of the daemon that a request works on.
//
// Threading: the parts say. Ownership: none; the parts outlive every request.
#ifndef DAEMON_SERVICE_DAEMON_PARTS_H_
#define DAEMON_SERVICE_DAEMON_PARTS_H_

#include "daemon/base/clock.h"
#include "daemon/service/committer.h"
#include "daemon/service/job_registry.h"
#include "daemon/service/retention.h"
#include "daemon/store/store.h"

namespace seqpoint::service {

class NodeReports;
class NodeTraces;

struct DaemonParts {
  Store& store;
  JobRegistry& registry;
  Committer& committer;
  Retention& retention;
  const Clock& clock;
  // Null where this is no hub.
  NodeReports* nodes = nullptr;
  NodeTraces* traces = nullptr;
};

// The parts of a hub that its nodes speak with.
struct HubParts {
  NodeReports* nodes = nullptr;
  NodeTraces* traces = nullptr;
};

}  // namespace seqpoint::service

#endif  // DAEMON_SERVICE_DAEMON_PARTS_H_
