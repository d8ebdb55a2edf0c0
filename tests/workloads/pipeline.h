// Pipeline parallelism: the ranks are stages that have some of the layers each, and an iteration's
// micro-batches pass through them, one forward and one backward at a time (1F1B; Narayanan et al.,
// SC 2021).
//
// Neighbours exchange activations and gradients on the compute stream, so that a stage computes
// only when it has what it needs, and waits while a neighbour is late; what goes to a neighbour and
// what comes from the same one is exchanged at once, as Megatron-LM does.
//
// Threading: one thread.
#ifndef SEQPOINT_TESTS_WORKLOADS_PIPELINE_H_
#define SEQPOINT_TESTS_WORKLOADS_PIPELINE_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <vector>

#include "tests/workloads/communicator.h"
#include "tests/workloads/models.h"
#include "tests/workloads/tape.h"

namespace seqpoint::workload {

class Pipeline {
 public:
  // All of these outlive this. The model is the stage of this rank.
  Pipeline(Model* model, Communicator* communicator, const Queue& queue);

  // Micro-batches of which the stage keeps something at the same time, at most.
  size_t in_flight() const { return micros_.size(); }

  // The passes of `count` micro-batches. `next_batch` gives the next one, which stays as it is for
  // in_flight() more calls; `forward_begins` is called before each forward pass.
  void Run(size_t count, float* loss, const std::function<DeviceBatch()>& next_batch,
           const std::function<void()>& forward_begins);

 private:
  struct Micro {
    explicit Micro(const Queue& queue);
    Arena arena;
    Tape tape;
    DeviceBatch batch;
    Tensor* in = nullptr;   // null: the first stage
    Tensor* out = nullptr;  // null: the last stage
  };

  Micro& At(size_t micro) { return micros_[micro % micros_.size()]; }
  // Takes the micro-batch and makes room for what comes from the stage before.
  void Open(size_t micro);
  void Forward(size_t micro);
  void Backward(size_t micro) { At(micro).tape.Backward(); }

  // Nothing where there is no such neighbour.
  void ReceiveActivations(size_t micro, std::vector<Transfer>* transfers);
  void SendActivations(size_t micro, std::vector<Transfer>* transfers);
  void ReceiveGradients(size_t micro, std::vector<Transfer>* transfers);
  void SendGradients(size_t micro, std::vector<Transfer>* transfers);
  void Exchange(const std::vector<Transfer>& transfers) {
    communicator_->Exchange(queue_, transfers);
  }

  Model* model_;
  Communicator* communicator_;
  const Queue& queue_;
  std::deque<Micro> micros_;
  // Of the iteration under way.
  size_t count_ = 0;
  float* loss_ = nullptr;
  std::function<DeviceBatch()> next_batch_;
  std::function<void()> forward_begins_;
};

}  // namespace seqpoint::workload

#endif  // SEQPOINT_TESTS_WORKLOADS_PIPELINE_H_
