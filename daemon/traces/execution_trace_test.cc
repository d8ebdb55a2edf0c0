#include "daemon/traces/execution_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace seqpoint::traces {
namespace {

using ::testing::HasSubstr;

constexpr char kThread[] =
    R"({"name": "[pytorch|profiler|execution_graph|thread]", "id": 2, "rf_id": 0, "parent": 1,
        "fw_parent": 0, "seq_id": -1, "scope": 7, "tid": 1, "fw_tid": 0, "op_schema": "",
        "inputs": [], "input_shapes": [], "input_types": [],
        "outputs": [], "output_shapes": [], "output_types": []},)";

// As PyTorch 1.13 writes it; children end, and are written, before their parents.
std::string Graph(const std::string& nodes) {
  return absl::StrCat(
      R"({"schema": "1.0.1", "pid": 4068, "time": "2026-11-23 17:51:27", "start_ts": 66041730,
          "nodes": [)",
      kThread, nodes, R"(], "finish_ts": 66041803})");
}

constexpr char kAddmm[] =
    R"json({"name": "aten::addmm", "id": 9, "rf_id": 4, "parent": 8, "fw_parent": 0, "seq_id": 731,
        "scope": 0, "tid": 1, "fw_tid": 0,
        "op_schema": "aten::addmm(Tensor self, Tensor mat1, Tensor mat2) -> Tensor",
        "inputs": [[20,21,0,2048,4,"cpu"],[22,23,0,1024,4,"cpu"],[24,25,0,65536,4,"cpu"],1],
        "input_shapes": [[512],[8,128],[128,512],[]], "input_types": ["Tensor(float)"],
        "outputs": [[26,27,0,4096,4,"cpu"]], "output_shapes": [[8,512]],
        "output_types": ["Tensor(float)"]})json";
constexpr char kLinear[] =
    R"({"name": "aten::linear", "id": 8, "rf_id": 3, "parent": 2, "fw_parent": 0, "seq_id": 730,
        "scope": 0, "tid": 1, "fw_tid": 0, "op_schema": "", "inputs": [], "outputs": []})";

TEST(ExecutionTraceTest, OperatorsOfPyTorch113WithTheirTensors) {
  const auto trace = ReadExecutionTrace(Graph(absl::StrCat(kAddmm, ",", kLinear)), "et.json");
  ASSERT_TRUE(trace.ok()) << trace.status();
  ASSERT_EQ(trace->operators.size(), 2U);  // the thread's root is none
  EXPECT_EQ(trace->NameOf(trace->operators[0]), "aten::linear");
  const ExecutedOperator& addmm = trace->operators[1];
  EXPECT_EQ(addmm.parent, 8U);
  EXPECT_EQ(addmm.record_function, 4U);
  EXPECT_EQ(addmm.sequence, 731);
  EXPECT_THAT(trace->names[addmm.schema], HasSubstr("mat1"));
  ASSERT_EQ(trace->Inputs(addmm).size(), 3U);
  const TensorUse& weight = trace->Inputs(addmm)[2];
  EXPECT_EQ(weight.storage, 25U);
  EXPECT_EQ(weight.argument, 2U);
  EXPECT_EQ(weight.bytes(), 65536U * 4);
  EXPECT_TRUE(weight.host);
  ASSERT_EQ(trace->Outputs(addmm).size(), 1U);
  EXPECT_EQ(trace->Outputs(addmm)[0].tensor, 26U);
}

// As PyTorch 2.x writes it, up to the newest schema.
TEST(ExecutionTraceTest, OperatorsOfChakraSchemas) {
  const auto trace = ReadExecutionTrace(
      R"({"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": [
        {"id": 5, "name": "autograd::engine::evaluate_function: MulBackward0", "ctrl_deps": 2,
         "inputs": {"values": [], "shapes": [], "types": [], "strides": []},
         "outputs": {"values": [[[7,8,0,4,2,"cuda:0"],[9,10,0,6,2,"cuda:0"]], []], "shapes": []},
         "attrs": [{"name": "rf_id", "type": "uint64", "value": 77},
                   {"name": "fw_parent", "type": "uint64", "value": 0},
                   {"name": "seq_id", "type": "int64", "value": 12},
                   {"name": "scope", "type": "uint64", "value": 1},
                   {"name": "tid", "type": "uint64", "value": 4},
                   {"name": "fw_tid", "type": "uint64", "value": 3},
                   {"name": "op_schema", "type": "string", "value": ""},
                   {"name": "kernel_backend", "type": "string", "value": ""}]},
        {"id": 1, "name": "[pytorch|profiler|execution_trace|process]", "ctrl_deps": 1,
         "inputs": {"values": []}, "outputs": {"values": []}, "attrs": []}],
        "finish_ts": 5})",
      "et.json");
  ASSERT_TRUE(trace.ok()) << trace.status();
  ASSERT_EQ(trace->operators.size(), 1U);
  const ExecutedOperator& op = trace->operators[0];
  EXPECT_EQ(op.record_function, 77U);
  EXPECT_EQ(op.sequence, 12);
  EXPECT_EQ(op.scope, kBackwardScope);
  EXPECT_EQ(op.thread, 4U);
  EXPECT_EQ(op.forward_thread, 3U);
  ASSERT_EQ(trace->Outputs(op).size(), 2U);
  EXPECT_EQ(trace->Outputs(op)[1].element, 1U);
  EXPECT_FALSE(trace->Outputs(op)[1].host);
  EXPECT_FALSE(op.compiled);
}

TEST(ExecutionTraceTest, ListsOfNumbersAndEmptyTensorsAreNoTensors) {
  const auto trace = ReadExecutionTrace(
      Graph(
          R"({"name": "aten::view", "id": 4, "parent": 2, "op_schema": "", "seq_id": -1,
              "inputs": [[1,2,3,4,5,6], [5,6,0,0,8,"cpu"], [1,2,3,4,5], ["a",2,3,4,5,"cpu"],
                         [5,0,0,3,8,""], "<None>", -1, 0.5, [[5,6,0,3,8,"cpu"], "<None>"]],
              "outputs": []})"),
      "et.json");
  ASSERT_TRUE(trace.ok()) << trace.status();
  ASSERT_EQ(trace->Inputs(trace->operators[0]).size(), 1U);
  EXPECT_EQ(trace->Inputs(trace->operators[0])[0].argument, 8U);
}

TEST(ExecutionTraceTest, TheSizeOfATensorDoesNotOverflow) {
  EXPECT_EQ((TensorUse{.elements = uint64_t{1} << 62, .item_bytes = 8}).bytes(), UINT64_MAX);
}

std::string ErrorOf(const std::string& text) {
  return std::string(ReadExecutionTrace(text, "et.json").status().message());
}

TEST(ExecutionTraceTest, WhatIsWrongIsSaidWithTheNodeAndAWayOut) {
  EXPECT_THAT(ErrorOf(""), HasSubstr("et.json: is no JSON object"));
  EXPECT_THAT(ErrorOf("[]"), HasSubstr("ExecutionTraceObserver"));
  EXPECT_THAT(ErrorOf(R"({"traceEvents": []})"), HasSubstr("has no \"nodes\""));
  EXPECT_THAT(ErrorOf(R"({"nodes": 5})"), HasSubstr("\"nodes\" is no list"));
  EXPECT_THAT(ErrorOf(R"({"nodes": []})"), HasSubstr("has no operators; call"));
  EXPECT_THAT(ErrorOf(R"({"nodes": [{"name": "a"}]})"), HasSubstr("node 1 has no \"id\""));
  EXPECT_THAT(ErrorOf(R"({"nodes": [{"id": -3}]})"), HasSubstr("node 1: \"id\" is no number"));
  EXPECT_THAT(ErrorOf(Graph(absl::StrCat(kLinear, ",", kLinear))), HasSubstr("the id 8"));
  EXPECT_THAT(ErrorOf(Graph(absl::StrReplaceAll(kLinear, {{R"("parent": 2)", R"("parent": 8)"}}))),
              HasSubstr("node 8 (aten::linear) has the parent 8, which began later"));
  const std::string whole = Graph(absl::StrCat(kAddmm, ",", kLinear));
  EXPECT_THAT(ErrorOf(whole.substr(0, whole.size() / 2)), HasSubstr("unregister_callback()"));
  EXPECT_THAT(ErrorOf(absl::StrReplaceAll(whole, {{"[26,27,", "[2\"6,27,"}})),
              HasSubstr("no JSON"));
}

}  // namespace
}  // namespace seqpoint::traces
