#include "daemon/service/outbox.h"

#include <algorithm>
#include <iterator>
#include <random>
#include <utility>

#include "daemon/base/status_macros.h"
#include "daemon/base/zstd_frame.h"

namespace seqpoint::service {

absl::StatusOr<std::unique_ptr<Outbox>> Outbox::Open(Store* store) {
  SEQPOINT_ASSIGN_OR_RETURN(std::string node_id, store->NodeId());
  // A batch that an earlier daemon did not finish is whole now.
  SEQPOINT_ASSIGN_OR_RETURN(const int64_t last, store->LastOutboxSequence());
  SEQPOINT_ASSIGN_OR_RETURN(const auto oldest, store->ReadOutbox(0, last, 1));
  const int64_t acknowledged = oldest.empty() ? last : oldest[0].sequence - 1;
  return std::unique_ptr<Outbox>(new Outbox(store, std::move(node_id), last, acknowledged));
}

void Outbox::Collect(const std::vector<jobs::Report>& reports) {
  for (const jobs::Report& report : reports) {
    writer_.Add(report);
    grew_ = true;
    if (writer_.bytes() >= kMostBatchBytes) EndBatch();
  }
}

void Outbox::EndBatch() {
  if (std::exchange(grew_, false)) rows_.push_back({sequence_, ToZstdFrame(writer_.Serialize())});
  whole_next_ = sequence_++;
  writer_.Clear();
  begun_ns_ = 0;
}

void Outbox::AddRows(int64_t monotonic_ns, WriteBatch& batch) {
  {
    absl::MutexLock lock(&mutex_);
    if (acknowledged_ > removed_) batch.acknowledged = removed_ = acknowledged_;
    if (!new_node_id_.empty()) batch.node_id = node_id_next_ = new_node_id_;
  }
  if (!writer_.empty() && begun_ns_ == 0) begun_ns_ = monotonic_ns;
  if (!writer_.empty() && monotonic_ns - begun_ns_ >= kOldestBatchNs) {
    EndBatch();
  } else if (std::exchange(grew_, false)) {
    rows_.push_back({sequence_, ToZstdFrame(writer_.Serialize())});
  }
  if (!rows_.empty()) stored_next_ = rows_.back().sequence;
  std::move(rows_.begin(), rows_.end(), std::back_inserter(batch.outbox));
  rows_.clear();
}

void Outbox::OnStored() {
  const int64_t whole = std::exchange(whole_next_, 0), stored = std::exchange(stored_next_, 0);
  if (whole == 0 && stored == 0 && node_id_next_.empty()) return;
  absl::MutexLock lock(&mutex_);
  if (!node_id_next_.empty()) {
    identity_ = {.node_id = std::exchange(node_id_next_, ""),
                 .former_node_id = std::move(identity_.node_id)};
    new_node_id_.clear();
  }
  if (stored != 0) stored_ = stored;
  if (whole == 0) return;
  whole_ = whole;
  changed_.NotifyAll();
}

void Outbox::Finish() {
  absl::MutexLock lock(&mutex_);
  whole_ = stored_;
  changed_.NotifyAll();
}

Outbox::Identity Outbox::identity() const {
  absl::MutexLock lock(&mutex_);
  return identity_;
}

bool Outbox::RenewNodeId() {
  absl::MutexLock lock(&mutex_);
  if (!new_node_id_.empty()) return false;
  std::random_device random;
  new_node_id_.resize(identity_.node_id.size());
  for (char& byte : new_node_id_) byte = static_cast<char>(random());
  return true;
}

absl::StatusOr<Outbox::Batches> Outbox::ListWhole() {
  const int64_t last = last_sequence();
  SEQPOINT_ASSIGN_OR_RETURN(const auto oldest, store_.ReadOutbox(0, last, 1));
  return Batches{.first = oldest.empty() ? last + 1 : oldest[0].sequence, .last = last};
}

int64_t Outbox::last_sequence() const {
  absl::MutexLock lock(&mutex_);
  return whole_;
}

bool Outbox::AwaitBatches(int64_t after, absl::Duration timeout) {
  absl::MutexLock lock(&mutex_);
  return changed_.Await(mutex_, timeout, [this, after] {
    mutex_.AssertReaderHeld();
    return whole_ > after;
  });
}

absl::StatusOr<std::vector<OutboxRow>> Outbox::Read(int64_t after, int limit) {
  // A batch that becomes whole from here on may be read without its end.
  return store_.ReadOutbox(after, last_sequence(), limit);
}

v1::HubConnection Outbox::DescribeHub() const {
  absl::MutexLock lock(&mutex_);
  v1::HubConnection hub = hub_;
  hub.set_waiting_batches(stored_ - acknowledged_);
  hub.set_acknowledged(acknowledged_);
  return hub;
}

bool Outbox::AwaitHub(absl::Duration timeout) {
  absl::MutexLock lock(&mutex_);
  changed_.Await(mutex_, timeout, [this] {
    mutex_.AssertReaderHeld();
    return !hub_.connected() || acknowledged_ >= stored_;
  });
  return acknowledged_ >= stored_;
}

void Outbox::Acknowledge(int64_t sequence) {
  absl::MutexLock lock(&mutex_);
  acknowledged_ = std::max(acknowledged_, sequence);
  changed_.NotifyAll();
}

}  // namespace seqpoint::service
