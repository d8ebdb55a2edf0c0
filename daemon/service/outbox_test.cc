// A node keeps what it has to tell its hub until the hub has it.
#include "daemon/service/outbox.h"

#include <atomic>
#include <cstdint>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "daemon/base/zstd_frame.h"
#include "daemon/jobs/job.h"
#include "daemon/jobs/report_codec.h"
#include "daemon/service/node_reports.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/daemon_in_process.h"

namespace seqpoint::service {
namespace {

using ::testing::IsEmpty;

class OutboxTest : public DaemonTest {};

TEST_F(OutboxTest, ANewNodeIdIsTakenWithACommitAndTheBatchesStay) {
  auto store = OpenStore();
  WriteBatch rows;
  rows.outbox.push_back({1, "batch"});
  ASSERT_TRUE(store->Write(rows).ok());
  auto outbox = *Outbox::Open(store.get());
  const std::string before = outbox->identity().node_id;
  EXPECT_TRUE(outbox->RenewNodeId());
  EXPECT_FALSE(outbox->RenewNodeId());
  EXPECT_EQ(outbox->identity().node_id, before) << "it is not stored yet";
  WriteBatch batch;
  outbox->AddRows(1000, batch);
  ASSERT_FALSE(batch.Empty());
  ASSERT_TRUE(store->Write(batch).ok());
  outbox->OnStored();
  const std::string after = outbox->identity().node_id;
  EXPECT_NE(after, before);
  EXPECT_EQ(after.size(), before.size());
  EXPECT_EQ(outbox->identity().former_node_id, before);
  WriteBatch next;
  outbox->AddRows(2000, next);
  EXPECT_TRUE(next.Empty()) << "once";
  outbox = *Outbox::Open(store.get());
  EXPECT_EQ(outbox->identity().node_id, after);
  EXPECT_EQ(outbox->Read(0, 10)->size(), 1u);
}

TEST_F(OutboxTest, ABatchGrowsUntilItIsOldEnoughAndStaysUntilItIsAcknowledged) {
  auto store = OpenStore();
  auto outbox = *Outbox::Open(store.get());
  jobs::Job job({.job_id = 1, .name = "a", .run_id = "1"}, {.reports = true});
  const auto commit = [&](int64_t now_ns) {
    WriteBatch batch;
    outbox->Collect(job.TakeReports());
    outbox->AddRows(now_ns, batch);
    ASSERT_TRUE(store->Write(batch).ok());
    outbox->OnStored();
  };
  const auto rows = [&] { return outbox->Read(0, 10)->size(); };
  job.AddProcess({.process_id = 1, .job_id = 1, .ring_id = std::string(16, 'r')});
  commit(1000);
  EXPECT_EQ(rows(), 0u);  // it may still grow
  EXPECT_EQ(outbox->DescribeHub().waiting_batches(), 1);
  job.AddProcess({.process_id = 2, .job_id = 1, .rank = 1, .ring_id = std::string(16, 's')});
  commit(2000);
  EXPECT_EQ(rows(), 0u);
  commit(1000 + Outbox::kOldestBatchNs);
  ASSERT_EQ(rows(), 1u);
  EXPECT_EQ(outbox->last_sequence(), 1);
  const auto bytes = FromZstdFrame((*outbox->Read(0, 10))[0].bytes, 1 << 20);
  ASSERT_TRUE(bytes.ok());
  EXPECT_EQ(jobs::ReadReports(*bytes)->size(), 2u);
  // A batch that a killed daemon did not finish is whole for the next one.
  job.AddProcess({.process_id = 3, .job_id = 1, .rank = 2, .ring_id = std::string(16, 't')});
  commit(3 * Outbox::kOldestBatchNs);
  EXPECT_EQ(rows(), 1u);
  outbox = *Outbox::Open(store.get());
  EXPECT_EQ(rows(), 2u);
  outbox->Acknowledge(2);
  commit(4 * Outbox::kOldestBatchNs);
  EXPECT_EQ(rows(), 0u);
  EXPECT_EQ(outbox->last_sequence(), 2);
  EXPECT_EQ(outbox->DescribeHub().waiting_batches(), 0);
  // A daemon that ends has no batch that grows, and waits for its hub where there is one.
  job.AddProcess({.process_id = 4, .job_id = 1, .rank = 3, .ring_id = std::string(16, 'u')});
  commit(5 * Outbox::kOldestBatchNs);
  EXPECT_EQ(rows(), 0u);
  outbox->Finish();
  EXPECT_EQ(rows(), 1u);
  EXPECT_FALSE(outbox->AwaitHub(absl::Hours(1)));  // nobody is connected
  v1::HubConnection hub;
  hub.set_connected(true);
  outbox->SetHub(hub);
  outbox->Acknowledge(3);
  EXPECT_TRUE(outbox->AwaitHub(absl::Hours(1)));
}

TEST_F(OutboxTest, OneCommitIsCutIntoBatchesThatAHubReads) {
  auto store = OpenStore();
  auto outbox = *Outbox::Open(store.get());
  jobs::Job job({.job_id = 1, .name = "a", .run_id = "1"}, {.reports = true});
  constexpr int kProcesses = 1000;
  for (int i = 0; i < kProcesses; ++i) {
    job.AddProcess({.process_id = i + 1,
                    .job_id = 1,
                    .rank = i,
                    .ring_id = std::string(16, 'r'),
                    .text = std::string(8000, static_cast<char>('a' + i % 26))});
  }
  WriteBatch batch;
  outbox->Collect(job.TakeReports());
  outbox->AddRows(1000, batch);
  ASSERT_TRUE(store->Write(batch).ok());
  outbox->OnStored();
  EXPECT_GT(outbox->last_sequence(), 20);
  outbox = *Outbox::Open(store.get());  // the last one is whole, too
  const auto rows = outbox->Read(0, 1000);
  ASSERT_TRUE(rows.ok());
  size_t reports = 0;
  for (const OutboxRow& row : *rows) {
    const auto bytes = FromZstdFrame(row.bytes, NodeReports::kMostBatchBytes);
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    reports += jobs::ReadReports(*bytes)->size();
  }
  EXPECT_EQ(reports, size_t{kProcesses});
}

TEST_F(OutboxTest, WithoutAHubNothingIsKept) {
  auto daemon = Start();
  EXPECT_EQ(daemon->outbox(), nullptr);
  EXPECT_EQ(daemon->nodes(), nullptr);
  v1::PrepareJobRequest request;
  request.set_name("a");
  ASSERT_TRUE(daemon->backend().PrepareJob(request).ok());
  daemon.reset();
  EXPECT_THAT(*OpenStore()->ReadOutbox(0, 100, 10), IsEmpty());
}

// Batches become whole at any moment of the other thread's reads.
TEST_F(OutboxTest, ABatchThatIsReadWhileItBecomesWholeHasItsEnd) {
  constexpr int64_t kReports = 6000, kPerBatch = 3;
  auto store = OpenStore();
  auto outbox = *Outbox::Open(store.get());
  std::atomic<bool> over = false;
  std::thread writer([&] {
    for (int64_t i = 0; i <= kReports; ++i) {
      WriteBatch batch;
      if (i < kReports) outbox->Collect({{.process_id = i, .what = v1::ReportedEnd()}});
      outbox->AddRows(1 + i * Outbox::kOldestBatchNs / kPerBatch, batch);
      ASSERT_TRUE(store->Write(batch).ok());
      outbox->OnStored();
    }
    outbox->Finish();
    over = true;
  });
  std::vector<int64_t> seen;
  for (int64_t sent = 0; !over || sent < outbox->last_sequence();) {
    // A hub would say of the batches before the first one that they are lost.
    const auto whole = outbox->ListWhole();
    ASSERT_TRUE(whole.ok()) << whole.status();
    EXPECT_LE(whole->first, sent + 1);
    if (!outbox->AwaitBatches(sent, absl::Milliseconds(10))) continue;
    const auto rows = outbox->Read(sent, 16);
    ASSERT_TRUE(rows.ok()) << rows.status();
    for (const OutboxRow& row : *rows) {
      EXPECT_EQ(row.sequence, ++sent);
      const auto bytes = FromZstdFrame(row.bytes, NodeReports::kMostBatchBytes);
      ASSERT_TRUE(bytes.ok()) << bytes.status();
      const auto reports = jobs::ReadReports(*bytes);
      ASSERT_TRUE(reports.ok()) << reports.status();
      for (const jobs::Report& report : *reports) seen.push_back(report.process_id);
    }
    outbox->Acknowledge(sent);
  }
  writer.join();
  std::vector<int64_t> expected(kReports);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(seen, expected);
}

}  // namespace
}  // namespace seqpoint::service
