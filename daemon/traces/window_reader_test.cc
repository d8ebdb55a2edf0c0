#include "daemon/traces/window_reader.h"

#include <gtest/gtest.h>

#include <cstring>

namespace seqpoint::traces {
namespace {

using abi::DataRecord;
using abi::DataType;

DataRecord Kernel(uint32_t name, uint32_t correlation, uint32_t stream, uint64_t start_ns,
                  uint64_t end_ns) {
  DataRecord record;
  std::memset(&record, 0, sizeof(record));
  record.kernel.type = static_cast<uint16_t>(DataType::kKernel);
  record.kernel.name_id = name;
  record.kernel.correlation_id = correlation;
  record.kernel.stream = stream;
  record.kernel.start_ns = start_ns;
  record.kernel.end_ns = end_ns;
  record.kernel.grid_x = 12;
  return record;
}

DataRecord Api(abi::Op op, uint32_t correlation, uint64_t start_ns, uint64_t end_ns,
               bool blocks = false) {
  DataRecord record;
  std::memset(&record, 0, sizeof(record));
  record.api.type = static_cast<uint16_t>(DataType::kApi);
  record.api.op = static_cast<uint8_t>(op);
  record.api.blocks = blocks ? 1 : 0;
  record.api.correlation_id = correlation;
  record.api.thread_id = 77;
  record.api.start_ns = start_ns;
  record.api.end_ns = end_ns;
  return record;
}

TEST(WindowReaderTest, CallsWorkAndStreamSynchronisationsBecomeATrace) {
  WindowReader reader;
  reader.AddName(5, "sgemm");
  reader.AddName(6, "ncclDevKernel_AllReduce");
  reader.Add(Kernel(5, 1, 7, 100, 200));
  reader.Add(Kernel(6, 2, 9, 210, 300));
  reader.Add(Kernel(99, 3, 7, 310, 320));  // its name was lost
  reader.Add(Kernel(5, 4, 7, 400, 390));   // ends before it starts
  reader.Add(Api(abi::Op::kLaunch, 1, 90, 95));
  reader.Add(Api(abi::Op::kCopyH2D, 8, 96, 99, /*blocks=*/true));
  reader.Add(Api(abi::Op::kStreamSync, 9, 310, 330));
  DataRecord copy;
  std::memset(&copy, 0, sizeof(copy));
  copy.copy.type = static_cast<uint16_t>(DataType::kCopy);
  copy.copy.kind = 2;
  copy.copy.bytes = 64;
  copy.copy.start_ns = 500;
  copy.copy.end_ns = 510;
  copy.copy.stream = 7;
  reader.Add(copy);
  DataRecord sync;
  std::memset(&sync, 0, sizeof(sync));
  sync.sync.type = static_cast<uint16_t>(DataType::kSync);
  sync.sync.kind = 3;
  sync.sync.correlation_id = 9;
  sync.sync.stream = 7;
  reader.Add(sync);
  DataRecord call;
  std::memset(&call, 0, sizeof(call));
  call.type = static_cast<uint16_t>(DataType::kCall);  // of level learn: no part of a window
  reader.Add(call);

  reader.Add(Api(abi::Op::kContextSync, 12, 1000, 1001));  // our own, which closes the window
  const trace::Trace trace = reader.Finish({.begin_ns = 70, .end_ns = 1000});
  ASSERT_EQ(trace.works.size(), 4u);
  EXPECT_EQ(trace.names[trace.works[0].name], "sgemm");
  EXPECT_EQ(trace.works[0].grid[0], 12u);
  EXPECT_EQ(trace.works[1].kind, trace::WorkKind::kCollective);
  EXPECT_EQ(trace.names[trace.works[2].name], "");
  EXPECT_EQ(trace.works[3].kind, trace::WorkKind::kCopyD2H);
  EXPECT_EQ(trace.works[3].bytes, 64u);
  ASSERT_EQ(trace.calls.size(), 5u);
  EXPECT_EQ(trace.calls[0].kind, trace::CallKind::kLaunch);
  EXPECT_EQ(trace.names[trace.calls[1].name], "cuMemcpy");
  EXPECT_EQ(trace.calls[2].kind, trace::CallKind::kStreamSync);
  // The window was opened in the calls of kernels 2 and 3.
  EXPECT_EQ(trace.calls[3].correlation, 2u);
  EXPECT_EQ(trace.calls[3].begin_ns, 90);
  EXPECT_EQ(trace.calls[4].correlation, 3u);
  EXPECT_EQ(trace.names[trace.calls[4].name], "cuLaunchKernel");
  EXPECT_EQ(trace.calls[4].kind, trace::CallKind::kLaunch);
  EXPECT_EQ(trace.calls[4].thread, trace.calls[0].thread);
  ASSERT_EQ(trace.waits.size(), 1u);
  EXPECT_EQ(trace.streams[trace.waits[0].stream].id, 7);
}

TEST(WindowReaderTest, AWindowBeginsWhenItsFirstCallWentOnToTheDriver) {
  WindowReader reader;
  reader.AddName(5, "sgemm");
  // The library stopped for 200 ns in the call of kernel 1, which takes no longer than the others
  // from there on.
  reader.Add(Kernel(5, 1, 7, 307, 320));
  reader.Add(Kernel(5, 2, 7, 330, 340));
  reader.Add(Kernel(5, 3, 7, 345, 350));
  reader.Add(Api(abi::Op::kLaunch, 2, 323, 326));
  reader.Add(Api(abi::Op::kLaunch, 3, 330, 333));
  const trace::Trace trace = reader.Finish({.begin_ns = 100, .end_ns = 1000});
  EXPECT_EQ(reader.begin_ns(), 300);
  ASSERT_EQ(trace.calls.size(), 3u);
  EXPECT_EQ(trace.calls[2].correlation, 1u);
  EXPECT_EQ(trace.calls[2].begin_ns, 300);
}

}  // namespace
}  // namespace seqpoint::traces
