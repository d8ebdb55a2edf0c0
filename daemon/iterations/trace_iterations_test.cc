#include "daemon/iterations/trace_iterations.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/support/shared_traces.h"
#include "tests/support/small_trace.h"
#include "tests/support/trace_file.h"

namespace seqpoint::iterations {
namespace {

using trace::CallKind;
using trace::TestTrace;
using trace::WorkKind;

constexpr const char* kWholeTrace =
    "nothing that looks like a training step is repeated: the whole trace";

// The calls of each loop iteration beside the launches of a layer.
enum class LoopKind { kOnlyLaunches, kBatch, kBackwardThread, kCountsForTheHost };

// Eight loop iterations of twelve kernels, and something before.
trace::Trace Iterations(LoopKind kind) {
  TestTrace t;
  double at_us = 0;
  const auto launch = [&](const std::string& name) {
    t.Launch(at_us, at_us + 4, name, at_us + 8, at_us + 18);
    at_us += 20;
  };
  for (int i = 0; i < 7; ++i) launch("embedding_" + std::to_string(i));
  for (int iteration = 0; iteration < 8; ++iteration) {
    if (kind == LoopKind::kBatch) {
      t.Api(at_us, at_us + 4, "cudaMemcpyAsync", CallKind::kCopy);
      t.Run("Memcpy HtoD (Pinned -> Device)", at_us + 8, at_us + 18, WorkKind::kCopyH2D);
      at_us += 20;
    }
    for (int i = 0; i < 6; ++i) launch("forward_" + std::to_string(i));
    if (kind == LoopKind::kCountsForTheHost) {
      t.Api(at_us, at_us + 4, "cudaMemcpyAsync", CallKind::kCopy);
      t.Run("Memcpy DtoH (Device -> Pinned)", at_us + 8, at_us + 18, WorkKind::kCopyD2H);
      t.Api(at_us + 5, at_us + 19, "cudaStreamSynchronize", CallKind::kStreamSync);
      at_us += 20;
    }
    if (kind == LoopKind::kBackwardThread) t.On(1);
    for (int i = 0; i < 6; ++i) launch("backward_" + std::to_string(i));
    t.On(0);
    at_us += 100;
  }
  return t.trace();
}

TEST(TraceIterationsTest, LayersOfOneForwardPassAreNoIterations) {
  for (const LoopKind kind : {LoopKind::kOnlyLaunches, LoopKind::kCountsForTheHost}) {
    const absl::StatusOr<TraceIterations> found = FindIterations(Iterations(kind), "");
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(found->count, 1u) << found->boundary_words;
    EXPECT_EQ(found->starts_ns.front(), 0);
    EXPECT_EQ(found->boundary_words, kWholeTrace);
  }
}

TEST(TraceIterationsTest, TurnsWithABatchOrABackwardThreadAreIterations) {
  for (const LoopKind kind : {LoopKind::kBatch, LoopKind::kBackwardThread}) {
    const absl::StatusOr<TraceIterations> found = FindIterations(Iterations(kind), "");
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(found->count, 8u) << found->boundary_words;
  }
}

TEST(TraceIterationsTest, SaysWhichExpressionTheMarksMatch) {
  TestTrace t;
  for (int i = 0; i < 3; ++i) {
    t.Annotation(100 * i, 100 * i + 90, "train step " + std::to_string(i));
    t.Launch(100 * i + 10, 100 * i + 14, "k", 100 * i + 20, 100 * i + 30);
  }
  const absl::StatusOr<TraceIterations> found = FindIterations(t.trace(), R"(^train step \d)");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->count, 3u);
  EXPECT_EQ(found->boundary_words, R"(annotation matching "^train step \d")");
}

// Recorded ones, without their annotations.
struct Recorded {
  const char* file;
  size_t count;
};
class RecordedTest : public ::testing::TestWithParam<Recorded> {};

TEST_P(RecordedTest, WithoutMarks) {
  const std::string path = SharedTraces() + "/" + GetParam().file;
  if (!std::filesystem::exists(path)) {
    GTEST_SKIP() << path << " is not there; set SEQPOINT_SHARED_DATA to the folder with traces/";
  }
  absl::StatusOr<trace::Trace> trace = ReadTraceFile(path);
  ASSERT_TRUE(trace.ok()) << trace.status();
  std::erase_if(trace->spans,
                [](const trace::Span& s) { return s.kind == trace::SpanKind::kAnnotation; });
  const absl::StatusOr<TraceIterations> found = FindIterations(*trace, "");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->count, GetParam().count) << found->boundary_words;
  EXPECT_EQ(found->boundary_words.find("the whole trace") != std::string::npos,
            GetParam().count == 1)
      << found->boundary_words;
}

INSTANTIATE_TEST_SUITE_P(
    Recorded, RecordedTest,
    ::testing::Values(
        // One forward pass, one with its backward pass, or one step of an optimiser.
        Recorded{"part_a100_forward/bs002.json.gz", 1},
        Recorded{"part_a100_forward/bs008.json.gz", 1},
        Recorded{"part_a100_forward/bs032.json.gz", 1},
        Recorded{"part_a100_forward/bs128.json.gz", 1},
        Recorded{"part_a100_forward/bs512.json.gz", 1},
        Recorded{"licence_not_stated/resnet50_t4_fwdbwd.json.gz", 1},
        Recorded{"licence_not_stated/adam_step_only_a100_40.json.gz", 1},
        Recorded{"switch_moe_a100_b4_pyframes.json.gz", 1},
        Recorded{"inference_two_gpus/bert_small_h100.json.gz", 1},
        Recorded{"inference_two_gpus/vit_nsfw_mi300x.json.gz", 1},
        Recorded{"dlrm_v100x8_two_ranks/rank1.json.gz", 1},
        // Training.
        Recorded{"ddp_compiled_v100x2_rank1.json.gz", 5},
        Recorded{"ddp_resnet_a100x2_rank0.json.gz", 3}, Recorded{"dlrm_a100x8_rank3.json.gz", 6},
        Recorded{"resnet50_v100_dataloader/c1_workers0.json.gz", 6},
        Recorded{"resnet50_v100_dataloader/c2_workers4.json.gz", 6},
        Recorded{"resnet50_v100_dataloader/nomarker_workers4.json.gz", 5},
        Recorded{"linear_rtx2080ti_40it.json.gz", 39}, Recorded{"resnet18_ddp_mi300x.json.gz", 5},
        Recorded{"sync_micro/sgd_gp100_gpu_annotation.json.gz", 5},
        Recorded{"licence_not_stated/deepspeech2_p100_bs32_gpu_only.csv.gz", 5}),
    [](const auto& info) { return TestNameOf(info.param.file); });

}  // namespace
}  // namespace seqpoint::iterations
