// The arithmetic of several ranks, with every kernel run on the CPU: ranks that share their work
// train to the same loss as one rank that does all of it.
//
// Ranks are threads of which one runs at a time: a collective hands on to the others.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "tests/workloads/data_parallel.h"
#include "tests/workloads/models.h"
#include "tests/workloads/optimizer.h"
#include "tests/workloads/pipeline.h"
#include "tests/workloads/sharded.h"

namespace seqpoint::workload {
namespace {

constexpr int kRanks = 2;
constexpr int kSteps = 2;
constexpr float kLearningRate = 0.01f;

// What the ranks meet in.
struct Room {
  struct Meeting {
    std::vector<const float*> from = std::vector<const float*>(kRanks);
    std::vector<float*> to = std::vector<float*>(kRanks);
    int arrived = 0;
    bool done = false;
  };
  std::mutex mutex;  // the rank that runs has it
  std::condition_variable changed;
  std::map<int, Meeting> meetings;  // by their numbers
  std::map<std::pair<int, int>, std::deque<std::vector<float>>> sent;
};

class ThreadCommunicator : public Communicator {
 public:
  ThreadCommunicator(Room* room, std::unique_lock<std::mutex>* turn, int rank)
      : room_(room), turn_(turn), rank_(rank) {}
  int rank() const override { return rank_; }
  int ranks() const override { return kRanks; }

  void AllReduce(const Queue&, float* data, size_t count, Reduction reduction) override {
    Meet(data, data, [=](const Room::Meeting& all) {
      const std::vector<float> sum = Reduced(all, count, reduction);
      for (float* to : all.to) std::memcpy(to, sum.data(), count * sizeof(float));
    });
  }
  void AllGather(const Queue&, const float* part, float* whole, size_t count) override {
    Meet(part, whole, [=](const Room::Meeting& all) {
      for (float* to : all.to) {
        for (size_t r = 0; r < kRanks; ++r) {
          std::memcpy(to + r * count, all.from[r], count * sizeof(float));
        }
      }
    });
  }
  void ReduceScatter(const Queue&, const float* whole, float* part, size_t count,
                     Reduction reduction) override {
    Meet(whole, part, [=](const Room::Meeting& all) {
      const std::vector<float> sum = Reduced(all, kRanks * count, reduction);
      for (size_t r = 0; r < kRanks; ++r) {
        std::memcpy(all.to[r], sum.data() + r * count, count * sizeof(float));
      }
    });
  }
  void Exchange(const Queue&, const std::vector<Transfer>& transfers) override {
    for (const Transfer& t : transfers) {
      if (t.kind == Transfer::Kind::kReceive) continue;
      room_->sent[{rank_, t.peer}].emplace_back(t.data, t.data + t.count);
      room_->changed.notify_all();
    }
    for (const Transfer& t : transfers) {
      if (t.kind == Transfer::Kind::kSend) continue;
      auto& mail = room_->sent[{t.peer, rank_}];
      room_->changed.wait(*turn_, [&mail] { return !mail.empty(); });
      ASSERT_EQ(mail.front().size(), t.count);
      std::memcpy(t.data, mail.front().data(), t.count * sizeof(float));
      mail.pop_front();
    }
  }

 private:
  static std::vector<float> Reduced(const Room::Meeting& all, size_t count, Reduction reduction) {
    std::vector<float> sum(count);
    for (const float* from : all.from) {
      for (size_t i = 0; i < count; ++i) sum[i] += from[i];
    }
    if (reduction == Reduction::kAverage) {
      for (float& value : sum) value /= kRanks;
    }
    return sum;
  }

  // The last rank to come does it for all.
  void Meet(const float* from, float* to, const std::function<void(const Room::Meeting&)>& act) {
    Room::Meeting& meeting = room_->meetings[next_++];
    meeting.from[static_cast<size_t>(rank_)] = from;
    meeting.to[static_cast<size_t>(rank_)] = to;
    if (++meeting.arrived == kRanks) {
      act(meeting);
      meeting.done = true;
      room_->changed.notify_all();
    }
    room_->changed.wait(*turn_, [&meeting] { return meeting.done; });
  }

  Room* room_;
  std::unique_lock<std::mutex>* turn_;
  const int rank_;
  int next_ = 0;
};

// What each rank returned.
std::vector<float> OnEachRank(const std::function<float(Communicator*)>& body) {
  Room room;
  std::vector<float> results(kRanks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      std::unique_lock turn(room.mutex);
      ThreadCommunicator communicator(&room, &turn, rank);
      results[static_cast<size_t>(rank)] = body(&communicator);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

// A model, or a rank's part of it, with what it takes to train it.
class Training {
 public:
  explicit Training(const std::string& name, const ModelPart& part = {}, size_t unit_multiple = 1,
                    int hidden = 8)
      : arena_(1 << 22), tape_(queue_, &arena_) {
    config_ = DefaultConfig(name);
    config_.hidden = hidden;
    config_.layers = 2;
    config_.vocabulary = 24;
    config_.rnn_chunk = 3;
    config_.channels = 2;
    config_.batch = 2;
    config_.max_lengths = name == "gnmt" ? std::vector<int>{6, 6} : std::vector<int>{6};
    config_.seed = 3;
    config_.part = part;
    queue_.workspace = static_cast<float*>(DeviceAlloc(1 << 20));
    queue_.workspace_floats = (1 << 20) / sizeof(float);
    model_ = MakeModel(config_);
    model_->parameters().Allocate(nullptr, 5, unit_multiple, 6);
    optimizer_ = std::make_unique<Optimizer>(&parameters(), kLearningRate, false);
  }

  // Micro-batch `number` of the data set.
  DeviceBatch Batch(int number) {
    std::vector<Example> examples;
    const auto lengths = static_cast<size_t>(LengthsPerExample(config_.name));
    for (int i = 0; i < 2; ++i) {
      examples.push_back(
          {static_cast<uint64_t>(2 * number + i), std::vector<int>(lengths, 4 + (number + i) % 3)});
    }
    hosts_.push_back(model_->MakeBatch(examples, config_.max_lengths));
    const HostBatch& host = hosts_.back();
    DeviceBatch batch{host.size, host.lengths, host.max_labels, {}};
    for (const HostArray& array : host.arrays) {
      batch.arrays.push_back(DeviceAlloc(array.bytes));
      CopyToDevice(nullptr, batch.arrays.back(), array.data, array.bytes);
    }
    return batch;
  }

  // Trains on one micro-batch of `count`.
  void MicroBatch(int number, int micro, int count, Sharing* sharing = nullptr) {
    tape_.Watch(sharing);
    const DeviceBatch batch = Batch(number);
    if (micro == 0) optimizer_->ClearGradients(queue_, ZeroGrad::kMemset);
    tape_.Reset(true);
    if (sharing != nullptr) sharing->Begin(micro + 1 == count);
    model_->Forward(&tape_, batch, {&loss_, count, micro > 0});
    tape_.Backward();
    if (micro + 1 < count) return;
    if (sharing != nullptr) sharing->AwaitGradients();
    optimizer_->Step(queue_);
    if (sharing != nullptr) sharing->Updated();
  }
  // The loss of a micro-batch without training.
  float Loss(int number, Sharing* sharing = nullptr) {
    tape_.Watch(sharing);
    tape_.Reset(false);
    if (sharing != nullptr) sharing->Begin(false);
    model_->Forward(&tape_, Batch(number), {&loss_, 1, false});
    return loss_;
  }

  Model* model() { return model_.get(); }
  Parameters& parameters() { return model_->parameters(); }
  Optimizer& optimizer() { return *optimizer_; }
  const Queue& queue() const { return queue_; }
  float* loss() { return &loss_; }

 private:
  Queue queue_;
  Arena arena_;
  Tape tape_;
  ModelConfig config_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Optimizer> optimizer_;
  std::deque<HostBatch> hosts_;
  float loss_ = 0;
};

// One rank that takes `micro_batches` a step: its loss on another batch in the end.
float Alone(const std::string& name, int micro_batches) {
  Training training(name);
  training.optimizer().Start(nullptr);
  for (int step = 0; step < kSteps; ++step) {
    for (int micro = 0; micro < micro_batches; ++micro) {
      training.MicroBatch(step * micro_batches + micro, micro, micro_batches);
    }
  }
  return training.Loss(99);
}

class SharingTest : public testing::TestWithParam<const char*> {};

TEST_P(SharingTest, DataParallelRanksTrainAsOneThatAccumulates) {
  const float alone = Alone(GetParam(), kRanks);
  EXPECT_GT(std::fabs(alone - Training(GetParam()).Loss(99)), 1e-3f);  // it learns
  const std::vector<float> losses = OnEachRank([](Communicator* communicator) {
    Training training(GetParam());
    DataParallel sharing(&training.parameters(), communicator, training.queue(), 2048);
    training.optimizer().Start(nullptr);
    for (int step = 0; step < kSteps; ++step) {
      training.MicroBatch(step * kRanks + communicator->rank(), 0, 1, &sharing);
    }
    return training.Loss(99);
  });
  for (float loss : losses) EXPECT_NEAR(loss, alone, 1e-4);
}

TEST_P(SharingTest, ShardedRanksTrainAsOneThatAccumulates) {
  const float alone = Alone(GetParam(), kRanks);
  const std::vector<float> losses = OnEachRank([](Communicator* communicator) {
    Training training(GetParam(), {}, kRanks);
    Sharded sharing(&training.parameters(), communicator, training.queue());
    training.optimizer().Use(sharing.shard());
    training.optimizer().JoinNorms(communicator);
    training.optimizer().Start(nullptr);
    // Nobody has all parameters: what is not gathered shows.
    std::memset(training.parameters().values(), 0xff,
                training.parameters().count() * sizeof(float));
    for (int step = 0; step < kSteps; ++step) {
      training.MicroBatch(step * kRanks + communicator->rank(), 0, 1, &sharing);
    }
    return training.Loss(99, &sharing);
  });
  for (float loss : losses) EXPECT_NEAR(loss, alone, 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Models, SharingTest, testing::Values("gnmt", "ds2", "transformer"),
                         [](const auto& info) { return std::string(info.param); });

// The values of a tensor's rows and columns from these on.
void CopyPart(const Tensor& whole, int row, int column, Tensor* part) {
  for (int r = 0; r < part->rows; ++r) {
    std::memcpy(part->value + r * part->columns, whole.value + (row + r) * whole.columns + column,
                static_cast<size_t>(part->columns) * sizeof(float));
  }
}

// Where a rank's part of a tensor begins: its rows, or its columns, are split.
std::pair<int, int> PartOf(const Tensor& whole, const Tensor& part, int rank) {
  return {part.rows < whole.rows ? rank * part.rows : 0,
          part.columns < whole.columns ? rank * part.columns : 0};
}

TEST(TensorParallelTest, RanksHaveTheirPartOfTheGradientsOfTheWhole) {
  OnEachRank([](Communicator* communicator) {
    constexpr int kTwoHeads = 128;
    Training whole("transformer", {}, 1, kTwoHeads);
    Training training("transformer", {.tensor = communicator}, 1, kTwoHeads);
    auto from = whole.parameters().tensors().begin();
    for (Tensor& tensor : training.parameters().tensors()) {
      const auto [row, column] = PartOf(*from, tensor, communicator->rank());
      CopyPart(*from++, row, column, &tensor);
    }
    EXPECT_NEAR(training.Loss(99), whole.Loss(99), 1e-5);
    // A step of two micro-batches, the second of which adds to the gradients of the first.
    for (Training* each : {&whole, &training}) {
      each->MicroBatch(0, 0, 3);
      each->MicroBatch(1, 1, 3);
    }
    from = whole.parameters().tensors().begin();
    double largest = 0;
    for (const Tensor& tensor : training.parameters().tensors()) {
      const auto [row, column] = PartOf(*from, tensor, communicator->rank());
      for (int r = 0; r < tensor.rows; ++r) {
        for (int c = 0; c < tensor.columns; ++c) {
          const float expected = from->grad[(row + r) * from->columns + column + c];
          largest = std::max(largest, std::fabs(static_cast<double>(expected)));
          EXPECT_NEAR(tensor.grad[r * tensor.columns + c], expected, 1e-5)
              << "tensor of " << from->rows << " x " << from->columns << ", " << r << " " << c;
        }
      }
      ++from;
    }
    EXPECT_GT(largest, 1e-3);
    return 0.f;
  });
}

TEST(PipelineTest, StagesTrainAsOneRankThatAccumulates) {
  for (int micro_batches : {1, 3}) {
    SCOPED_TRACE(micro_batches);
    // The loss of the last step, over its micro-batches.
    Training alone("transformer");
    alone.optimizer().Start(nullptr);
    for (int step = 0; step < kSteps; ++step) {
      for (int micro = 0; micro < micro_batches; ++micro) {
        alone.MicroBatch(step * micro_batches + micro, micro, micro_batches);
      }
    }
    const std::vector<float> losses = OnEachRank([=](Communicator* communicator) {
      Training whole("transformer");
      Training training("transformer", {.stage = communicator->rank(), .stages = kRanks});
      auto& own = training.parameters().tensors();
      auto from = whole.parameters().tensors().begin();
      if (communicator->rank() > 0) from = whole.parameters().tensors().end() - own.size();
      for (Tensor& tensor : own) CopyPart(*from++, 0, 0, &tensor);
      Pipeline pipeline(training.model(), communicator, training.queue());
      training.optimizer().JoinNorms(communicator);
      training.optimizer().Start(nullptr);
      int next = 0;
      for (int step = 0; step < kSteps; ++step) {
        training.optimizer().ClearGradients(training.queue(), ZeroGrad::kMemset);
        pipeline.Run(
            static_cast<size_t>(micro_batches), training.loss(),
            [&] { return training.Batch(next++); }, [] {});
        training.optimizer().Step(training.queue());
      }
      return *training.loss();
    });
    EXPECT_NEAR(losses.back(), *alone.loss(), 1e-4);
  }
}

}  // namespace
}  // namespace seqpoint::workload
