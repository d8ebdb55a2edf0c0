// Sharded parallelism: each rank keeps a part of every unit's parameters, gradients and optimiser
// state, as FSDP and ZeRO's third stage do.
//
// A unit is gathered on a stream of its own before its forward and again before its backward pass,
// one unit ahead of the computation. Its gradients are reduced and scattered there as soon as the
// backward pass has finished them. Events order the streams. The buffers of gathered units are
// kept: the transfers are those of a sharded training, the memory is not.
//
// Threading: the tape's.
#ifndef SEQPOINT_TESTS_WORKLOADS_SHARDED_H_
#define SEQPOINT_TESTS_WORKLOADS_SHARDED_H_

#include <cstddef>
#include <map>
#include <vector>

#include "tests/workloads/communicator.h"
#include "tests/workloads/optimizer.h"
#include "tests/workloads/sharing.h"
#include "tests/workloads/tape.h"

namespace seqpoint::workload {

class Sharded : public Sharing {
 public:
  // `parameters` are allocated, with units that are multiples of the number of ranks; both outlive
  // this.
  Sharded(Parameters* parameters, Communicator* communicator, const Queue& compute);

  // This rank's part of all units: what the optimiser works on.
  FlatState shard() const { return shard_; }

  void Begin(bool reduces) override;
  void AwaitGradients() override;
  void Updated() override { RecordEvent(updated_, compute_.stream); }
  void BeforeForward(const std::vector<const Tensor*>& reads) override;
  void BackwardBegins(const std::vector<Operation>& operations) override;
  void BeforeBackward(size_t operation) override;
  void AfterBackward(size_t operation) override;

 private:
  struct Unit {
    Parameters::Unit full;
    size_t offset;       // of this rank's part in the shard
    size_t part;         // floats of it
    size_t parameters;   // how many there are
    size_t missing = 0;  // gradients, in this backward pass
    bool gathered = false;
    Event ready;     // its parameters are there
    Event complete;  // its gradients are, on the compute stream
  };

  // The compute stream waits until the unit is there; `next` is gathered meanwhile.
  void Need(size_t unit, size_t next);
  void Gather(size_t unit);

  Parameters* parameters_;
  Communicator* communicator_;
  const Queue compute_;
  Queue communication_;
  FlatState shard_;
  std::vector<Unit> units_;
  std::map<const Tensor*, size_t> unit_of_;
  std::vector<std::vector<size_t>> units_read_;  // by each operation
  FinishedParameters finished_;
  Event updated_;
  Event reduced_;
  bool reduces_ = true;
};

}  // namespace seqpoint::workload

#endif  // SEQPOINT_TESTS_WORKLOADS_SHARDED_H_
