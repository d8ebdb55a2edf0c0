#include "tests/workloads/pipeline.h"

#include <algorithm>

namespace seqpoint::workload {
namespace {

constexpr size_t kChunkBytes = size_t{64} << 20;

}  // namespace

Pipeline::Micro::Micro(const Queue& queue) : arena(kChunkBytes), tape(queue, &arena) {}

Pipeline::Pipeline(Model* model, Communicator* communicator, const Queue& queue)
    : model_(model), communicator_(communicator), queue_(queue) {
  for (int stage = communicator->rank(); stage < communicator->ranks(); ++stage) {
    micros_.emplace_back(queue);
  }
}

void Pipeline::Open(size_t number) {
  Micro& micro = At(number);
  micro.batch = next_batch_();
  micro.tape.Reset(/*training=*/true);
  if (communicator_->rank() == 0) return;
  const auto [rows, columns] = model_->BoundaryShape(micro.batch);
  micro.in = micro.tape.New(rows, columns);
}

void Pipeline::Forward(size_t number) {
  Micro& micro = At(number);
  if (communicator_->rank() == 0) Open(number);
  forward_begins_();
  micro.out = model_->Stage(&micro.tape, micro.batch, {loss_, static_cast<int>(count_), number > 0},
                            micro.in);
}

void Pipeline::ReceiveActivations(size_t number, std::vector<Transfer>* transfers) {
  if (communicator_->rank() == 0) return;
  Open(number);
  const Tensor* in = At(number).in;
  transfers->push_back(
      {Transfer::Kind::kReceive, communicator_->rank() - 1, in->value, in->Count()});
}

void Pipeline::SendActivations(size_t number, std::vector<Transfer>* transfers) {
  const Tensor* out = At(number).out;
  if (out == nullptr) return;
  transfers->push_back(
      {Transfer::Kind::kSend, communicator_->rank() + 1, out->value, out->Count()});
}

void Pipeline::ReceiveGradients(size_t number, std::vector<Transfer>* transfers) {
  Micro& micro = At(number);
  if (micro.out == nullptr) return;
  micro.out->grad = micro.arena.Floats(micro.out->Count());
  micro.out->has_grad = true;
  transfers->push_back(
      {Transfer::Kind::kReceive, communicator_->rank() + 1, micro.out->grad, micro.out->Count()});
}

void Pipeline::SendGradients(size_t number, std::vector<Transfer>* transfers) {
  const Tensor* in = At(number).in;
  if (in == nullptr) return;
  transfers->push_back({Transfer::Kind::kSend, communicator_->rank() - 1, in->grad, in->Count()});
}

void Pipeline::Run(size_t count, float* loss, const std::function<DeviceBatch()>& next_batch,
                   const std::function<void()>& forward_begins) {
  count_ = count;
  loss_ = loss;
  next_batch_ = next_batch;
  forward_begins_ = forward_begins;
  // Stages after this one must be filled before the first gradient can come back.
  const size_t ahead = std::min(micros_.size() - 1, count);
  for (size_t micro = 0; micro < ahead; ++micro) {
    std::vector<Transfer> before, after;
    ReceiveActivations(micro, &before);
    Exchange(before);
    Forward(micro);
    SendActivations(micro, &after);
    Exchange(after);
  }
  if (ahead < count) {
    std::vector<Transfer> first;
    ReceiveActivations(ahead, &first);
    Exchange(first);
  }
  for (size_t micro = 0; micro < count; ++micro) {
    const size_t newest = micro + ahead;
    std::vector<Transfer> with_next, with_previous;
    if (newest < count) {
      Forward(newest);
      SendActivations(newest, &with_next);
    }
    ReceiveGradients(micro, &with_next);
    Exchange(with_next);
    Backward(micro);
    SendGradients(micro, &with_previous);
    if (newest + 1 < count) ReceiveActivations(newest + 1, &with_previous);
    Exchange(with_previous);
  }
}

}  // namespace seqpoint::workload
