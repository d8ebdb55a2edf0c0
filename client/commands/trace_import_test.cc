#include "client/commands/trace_import.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace seqpoint::client {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(TraceImportTextTest, WithoutCallsThereIsNothingToReplay) {
  v1::ImportTraceReply reply;
  reply.mutable_job()->set_id("7");
  reply.add_traces()->set_gpu_tasks(5);
  EXPECT_THAT(TraceImportText(reply, 0),
              AllOf(HasSubstr("\nask next: seqpoint kernels 7, seqpoint export 7 --chrome"),
                    Not(HasSubstr("whatif")), Not(HasSubstr("replay"))));
  reply.add_traces()->set_calls(1);
  EXPECT_THAT(TraceImportText(reply, 0),
              HasSubstr("ask next: seqpoint replay 7, seqpoint whatif 7 --list,\n"));
}

}  // namespace
}  // namespace seqpoint::client
