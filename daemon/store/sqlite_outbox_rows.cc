// What this node has to tell a hub.
#include "daemon/base/status_macros.h"
#include "daemon/store/sqlite_store.h"
#include "daemon/store/store.h"

namespace seqpoint {

absl::Status SqliteStore::Impl::PutOutboxRows(const WriteBatch& batch) {
  for (const OutboxRow& row : batch.outbox) {
    SEQPOINT_RETURN_IF_ERROR(put_outbox_.RunWith(row.sequence, Blob{row.bytes}));
    SEQPOINT_RETURN_IF_ERROR(set_last_sequence_.RunWith(row.sequence));
  }
  if (!batch.node_id.empty()) {
    SEQPOINT_RETURN_IF_ERROR(set_node_id_.RunWith(Blob{batch.node_id}));
  }
  if (batch.acknowledged == 0) return absl::OkStatus();
  return delete_outbox_.RunWith(batch.acknowledged);
}

absl::StatusOr<std::string> SqliteStore::NodeId() {
  SEQPOINT_ASSIGN_OR_RETURN(
      const auto id,
      impl_->ReadFirst<std::string>("SELECT node_id FROM node",
                                    [](Statement& s, std::string& to) { to = s.Text(); }));
  return id.value_or("");
}

absl::StatusOr<int64_t> SqliteStore::LastOutboxSequence() {
  SEQPOINT_ASSIGN_OR_RETURN(
      const auto last, impl_->ReadFirst<int64_t>("SELECT last_sequence FROM node",
                                                 [](Statement& s, int64_t& to) { to = s.Int(); }));
  return last.value_or(0);
}

absl::StatusOr<std::vector<OutboxRow>> SqliteStore::ReadOutbox(int64_t after, int64_t through,
                                                               int limit) {
  return impl_->ReadAll<OutboxRow>(
      "SELECT sequence, bytes FROM outbox WHERE sequence>? AND sequence<=? ORDER BY sequence LIMIT "
      "?",
      [](Statement& s, OutboxRow& row) { s.Read(&row.sequence, &row.bytes); }, after, through,
      limit);
}

}  // namespace seqpoint
