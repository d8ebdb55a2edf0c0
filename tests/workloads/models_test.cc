// The models' arithmetic, with every kernel run on the CPU: gradients against finite differences,
// and training that learns.
#include "tests/workloads/models.h"

#include <gtest/gtest.h>

#include <cmath>
#include <ostream>
#include <string>
#include <vector>

#include "tests/workloads/optimizer.h"
#include "tests/workloads/random.h"

namespace seqpoint::workload {
namespace {

struct Trial {
  const char* name;
  int layers;
  std::vector<Example> examples;
  std::vector<int> max_lengths;
};

void PrintTo(const Trial& trial, std::ostream* out) { *out << trial.name; }

class ModelsTest : public testing::TestWithParam<Trial> {
 protected:
  ModelsTest() : arena_(1 << 20), tape_(queue_, &arena_) {
    const Trial& trial = GetParam();
    ModelConfig config = DefaultConfig(trial.name);
    config.hidden = 8;
    config.layers = trial.layers;
    config.vocabulary = 24;
    config.rnn_chunk = 3;
    config.channels = 2;
    config.batch = static_cast<int>(trial.examples.size());
    config.max_lengths = trial.max_lengths;
    config.seed = 3;
    queue_.workspace = static_cast<float*>(DeviceAlloc(1 << 20));
    queue_.workspace_floats = (1 << 20) / sizeof(float);
    model_ = MakeModel(config);
    model_->parameters().Allocate(nullptr, 5);
    host_ = model_->MakeBatch(trial.examples, trial.max_lengths);
    batch_ = {host_.size, host_.lengths, host_.max_labels};
    const std::vector<size_t> capacity = model_->ArrayBytes();
    for (size_t i = 0; i < host_.arrays.size(); ++i) {
      EXPECT_LE(host_.arrays[i].bytes, capacity[i]);
      batch_.arrays.push_back(DeviceAlloc(capacity[i]));
      CopyToDevice(nullptr, batch_.arrays[i], host_.arrays[i].data, host_.arrays[i].bytes);
    }
  }

  float Loss(bool training) {
    tape_.Reset(training);
    model_->Forward(&tape_, batch_, {&loss_, 1, false});
    return loss_;
  }

  Queue queue_;
  Arena arena_;
  Tape tape_;
  std::unique_ptr<Model> model_;
  HostBatch host_;
  DeviceBatch batch_;
  float loss_ = 0;
};

TEST_P(ModelsTest, GradientsMatchFiniteDifferences) {
  Optimizer optimizer(&model_->parameters(), 0.01f, false);
  optimizer.ClearGradients(queue_, ZeroGrad::kMemset);
  ASSERT_TRUE(std::isfinite(Loss(true)));
  tape_.Backward();
  Random random(11);
  int tensor_index = 0;
  for (const Tensor& tensor : model_->parameters().tensors()) {
    // The entry with the largest gradient: the others can drown in rounding.
    size_t entry = 0;
    for (size_t i = 0; i < tensor.Count(); ++i) {
      if (std::fabs(tensor.grad[i]) > std::fabs(tensor.grad[entry])) entry = i;
    }
    const float gradient = tensor.grad[entry];
    const float value = tensor.value[entry];
    constexpr float kStep = 1e-3f;
    tensor.value[entry] = value + kStep;
    const float above = Loss(false);
    tensor.value[entry] = value - kStep;
    const float below = Loss(false);
    tensor.value[entry] = value;
    const float difference = (above - below) / (2 * kStep);
    EXPECT_NEAR(gradient, difference, 3e-4 + 0.03 * std::fabs(difference))
        << "tensor " << tensor_index << " [" << tensor.rows << ", " << tensor.columns << "]";
    ++tensor_index;
  }
}

TEST_P(ModelsTest, EveryWayOfClearingGivesTheSameGradients) {
  const Parameters& parameters = model_->parameters();
  std::vector<std::vector<float>> results;
  Optimizer optimizer(&model_->parameters(), 0.01f, false);
  for (ZeroGrad mode : {ZeroGrad::kMemset, ZeroGrad::kKernel, ZeroGrad::kNone}) {
    optimizer.ClearGradients(queue_, mode);
    Loss(true);
    tape_.Backward();
    results.emplace_back(parameters.gradients(), parameters.gradients() + parameters.count());
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

TEST_P(ModelsTest, TrainingLowersTheLoss) {
  for (bool foreach : {false, true}) {
    Optimizer optimizer(&model_->parameters(), 0.03f, foreach);
    optimizer.Start(nullptr);
    const float before = Loss(false);
    for (int i = 0; i < 3; ++i) {
      optimizer.ClearGradients(queue_, ZeroGrad::kMemset);
      Loss(true);
      tape_.Backward();
      optimizer.Step(queue_);
    }
    const float after = Loss(false);
    ASSERT_TRUE(std::isfinite(after));
    EXPECT_LT(after, before - 0.05f);
  }
}

INSTANTIATE_TEST_SUITE_P(AllModels, ModelsTest,
                         testing::Values(Trial{"gnmt", 3, {{1, {3, 4}}, {2, {5, 2}}}, {5, 4}},
                                         Trial{"gnmt", 2, {{1, {1, 1}}}, {1, 1}},
                                         Trial{"ds2", 2, {{1, {4}}, {2, {3}}}, {4}},
                                         Trial{"ds2", 2, {{1, {22}}, {2, {26}}}, {26}},
                                         Trial{"transformer", 2, {{1, {4}}, {2, {6}}}, {6}},
                                         Trial{"fixed", 1, {{1, {3}}, {2, {5}}}, {7}}),
                         [](const testing::TestParamInfo<Trial>& info) {
                           return std::string(info.param.name) + "_" +
                                  std::to_string(info.param.max_lengths[0]);
                         });

}  // namespace
}  // namespace seqpoint::workload
