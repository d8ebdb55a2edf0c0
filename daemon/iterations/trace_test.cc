// The learner on recorded training traces, markers hidden. The traces are not part of the
// repository: SEQPOINT_SHARED_DATA names the folder that holds traces/.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/iterations/marked_boundaries.h"
#include "tests/support/shared_traces.h"
#include "tests/support/trace_file.h"

namespace seqpoint::iterations {
namespace {

struct Trace {
  const char* file;
  const char* marker;
  bool points;  // the markers are points in time; the last one only ends a step
};

class TraceTest : public ::testing::TestWithParam<Trace> {};

TEST_P(TraceTest, OneBoundaryInEachStep) {
  const std::string path = SharedTraces() + "/" + GetParam().file;
  if (!std::filesystem::exists(path)) {
    GTEST_SKIP() << path << " is not there; set SEQPOINT_SHARED_DATA to the folder with traces/";
  }
  const auto trace = ReadTraceFile(path);
  ASSERT_TRUE(trace.ok()) << trace.status();
  const MarkedBoundaries marked = FindMarkedBoundaries(*trace, GetParam().marker);
  ASSERT_TRUE(marked.judged());
  ASSERT_TRUE(marked.found.rule.has_value());
  SCOPED_TRACE(marked.found.rule->boundary_words + "; " + marked.found.rule->evidence);
  EXPECT_EQ(marked.points, GetParam().points);
  EXPECT_EQ(marked.outside, 0);
  for (size_t i = 0; i < marked.per_step.size(); ++i) {
    EXPECT_EQ(marked.per_step[i], 1) << "step " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Recorded, TraceTest,
    ::testing::Values(
        Trace{"ddp_compiled_v100x2_rank1.json.gz", "ProfilerStep#", false},
        Trace{"ddp_resnet_a100x2_rank0.json.gz", "ProfilerStep#", false},
        Trace{"dlrm_a100x8_rank3.json.gz", "ProfilerStep#", false},
        Trace{"resnet50_v100_dataloader/c1_workers0.json.gz", "ProfilerStep#", false},
        Trace{"resnet50_v100_dataloader/c1_workers4.json.gz", "ProfilerStep#", false},
        Trace{"resnet50_v100_dataloader/c2_workers0.json.gz", "ProfilerStep#", false},
        Trace{"resnet50_v100_dataloader/c2_workers4.json.gz", "ProfilerStep#", false},
        Trace{"resnet50_v100_dataloader/nomarker_workers0.json.gz", "Optimizer.zero_grad#", true},
        Trace{"resnet50_v100_dataloader/nomarker_workers4.json.gz", "Optimizer.zero_grad#", true},
        Trace{"linear_rtx2080ti_40it.json.gz", "Optimizer.zero_grad#", true},
        Trace{"resnet18_ddp_mi300x.json.gz", "Optimizer.zero_grad#", true},
        Trace{"sync_micro/sgd_gp100_gpu_annotation.json.gz", "Optimizer.zero_grad#", true},
        Trace{"transformer_layer_h100/runA_cycle1.json.gz", "ProfilerStep#", false},
        Trace{"transformer_layer_h100/runA_cycle2.json.gz", "ProfilerStep#", false}),
    [](const auto& info) { return TestNameOf(info.param.file); });

}  // namespace
}  // namespace seqpoint::iterations
