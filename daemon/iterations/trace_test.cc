// The learner on recorded training traces, markers hidden. The traces are not part of the
// repository: SEQPOINT_SHARED_DATA names the folder that holds traces/.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "daemon/iterations/learner.h"
#include "daemon/traces/call_records.h"
#include "daemon/traces/read_file.h"
#include "tests/support/shared_traces.h"

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
  const auto trace = traces::ReadTraceFile(path);
  ASSERT_TRUE(trace.ok()) << trace.status();
  const traces::CallRecords stream = traces::ToCallRecords(*trace, GetParam().marker);
  const std::vector<traces::Marker>& markers = stream.markers;
  ASSERT_GE(markers.size(), 3u);
  IterationLearner learner;
  for (uint32_t id = 1; id < trace->names.size(); ++id) learner.AddName(id, trace->names[id]);
  for (const abi::CallRecord& call : stream.calls) learner.AddCall(call);
  const auto learned = learner.Analyse();
  ASSERT_TRUE(learned.has_value());
  SCOPED_TRACE(learned->boundary_words + "; " + learned->evidence);

  std::vector<int> per_step(markers.size(), 0);
  int outside = 0;
  abi::Matcher matcher(learned->rule);
  bool open = false;
  size_t open_step = 0;
  for (const abi::CallRecord& call : stream.calls) {
    const uint32_t flags = matcher.OnEvent(ToMatchEvent(call, learner.stream().names()));
    if (flags & abi::kMatchedStep) open = false;
    if ((flags & abi::kMatchedBoundary) == 0) continue;
    const auto next = std::upper_bound(markers.begin(), markers.end(), call.api_ns,
                                       [](uint64_t t, const auto& m) { return t < m.begin_ns; });
    if (next == markers.begin()) {
      ++outside;
      continue;
    }
    const auto step = static_cast<size_t>(next - markers.begin()) - 1;
    if (open) --per_step[open_step];  // replaced
    ++per_step[step];
    open = true;
    open_step = step;
  }
  if (GetParam().points) {
    per_step.pop_back();
    outside = 0;  // part of a step before the first marker
  }
  EXPECT_EQ(outside, 0);
  for (size_t i = 0; i < per_step.size(); ++i) EXPECT_EQ(per_step[i], 1) << "step " << i;
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
