#include "tests/workloads/sharded.h"

#include <algorithm>

namespace seqpoint::workload {

Sharded::Sharded(Parameters* parameters, Communicator* communicator, const Queue& compute)
    : parameters_(parameters),
      communicator_(communicator),
      compute_(compute),
      communication_(compute) {
  communication_.stream = CreateStream();
  updated_ = CreateEvent(/*timed=*/false);
  reduced_ = CreateEvent(/*timed=*/false);
  const auto ranks = static_cast<size_t>(communicator->ranks());
  shard_.count = parameters->count() / ranks;
  const size_t bytes = shard_.count * sizeof(float);
  for (float** buffer : {&shard_.values, &shard_.gradients, &shard_.m, &shard_.v}) {
    *buffer = static_cast<float*>(DeviceAlloc(bytes));
    MemsetZero(compute.stream, *buffer, bytes);
  }
  for (const Parameters::Unit& full : parameters->units()) {
    const size_t part = full.count / ranks;
    units_.push_back({.full = full,
                      .offset = full.begin / ranks,
                      .part = part,
                      .parameters = 0,
                      .ready = CreateEvent(/*timed=*/false),
                      .complete = CreateEvent(/*timed=*/false)});
    const float* own =
        parameters->values() + full.begin + static_cast<size_t>(communicator->rank()) * part;
    const int width = static_cast<int>(part);
    CopyMatrix(compute_, own, width, shard_.values + units_.back().offset, width, 1, width, false);
  }
  for (const Tensor& tensor : parameters->tensors()) {
    const auto at = static_cast<size_t>(tensor.value - parameters->values());
    const auto after =
        std::upper_bound(units_.begin(), units_.end(), at,
                         [](size_t offset, const Unit& unit) { return offset < unit.full.begin; });
    const auto unit = static_cast<size_t>(after - units_.begin()) - 1;
    unit_of_[&tensor] = unit;
    ++units_[unit].parameters;
  }
  Updated();
}

void Sharded::Begin(bool reduces) {
  reduces_ = reduces;
  for (Unit& unit : units_) unit.gathered = false;
  WaitEvent(communication_.stream, updated_);
}

void Sharded::Gather(size_t number) {
  Unit& unit = units_[number];
  if (unit.gathered) return;
  unit.gathered = true;
  communicator_->AllGather(communication_, shard_.values + unit.offset,
                           parameters_->values() + unit.full.begin, unit.part);
  RecordEvent(unit.ready, communication_.stream);
}

void Sharded::Need(size_t unit, size_t next) {
  Gather(unit);
  WaitEvent(compute_.stream, units_[unit].ready);
  if (next < units_.size()) Gather(next);
}

void Sharded::BeforeForward(const std::vector<const Tensor*>& reads) {
  for (const Tensor* tensor : reads) {
    const auto found = unit_of_.find(tensor);
    if (found != unit_of_.end()) Need(found->second, found->second + 1);
  }
}

void Sharded::BackwardBegins(const std::vector<Operation>& operations) {
  for (Unit& unit : units_) {
    unit.gathered = false;
    unit.missing = unit.parameters;
  }
  finished_.Begin(operations);
  units_read_.assign(operations.size(), {});
  for (size_t i = 0; i < operations.size(); ++i) {
    for (const Tensor* tensor : operations[i].reads) {
      const auto found = unit_of_.find(tensor);
      if (found != unit_of_.end()) units_read_[i].push_back(found->second);
    }
  }
}

void Sharded::BeforeBackward(size_t operation) {
  for (size_t unit : units_read_[operation]) Need(unit, unit - 1);
}

void Sharded::AfterBackward(size_t operation) {
  for (const Tensor* tensor : finished_.By(operation)) {
    const auto found = unit_of_.find(tensor);
    if (found == unit_of_.end()) continue;
    Unit& unit = units_[found->second];
    if (--unit.missing > 0 || !reduces_) continue;
    RecordEvent(unit.complete, compute_.stream);
    WaitEvent(communication_.stream, unit.complete);
    communicator_->ReduceScatter(communication_, parameters_->gradients() + unit.full.begin,
                                 shard_.gradients + unit.offset, unit.part, Reduction::kAverage);
  }
}

void Sharded::AwaitGradients() {
  RecordEvent(reduced_, communication_.stream);
  WaitEvent(compute_.stream, reduced_);
}

}  // namespace seqpoint::workload
