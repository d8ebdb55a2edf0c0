// Data parallelism: the gradients of all ranks are averaged in buckets while the backward pass goes
// on.
//
// The buckets hold the parameters in reverse order, as the backward pass finishes them. A bucket is
// reduced on a stream of its own as soon as its last gradient is there, and in the order of the
// buckets, so that all ranks reduce the same ones together. Events order the streams. Buckets are
// views of the gradients: nothing is copied.
//
// Threading: the tape's.
#ifndef SEQPOINT_TESTS_WORKLOADS_DATA_PARALLEL_H_
#define SEQPOINT_TESTS_WORKLOADS_DATA_PARALLEL_H_

#include <cstddef>
#include <map>
#include <vector>

#include "tests/workloads/communicator.h"
#include "tests/workloads/sharing.h"
#include "tests/workloads/tape.h"

namespace seqpoint::workload {

class DataParallel : public Sharing {
 public:
  // `bucket_bytes`: a bucket is closed by the parameter with which it reaches them. `parameters`
  // are allocated; both outlive this.
  DataParallel(Parameters* parameters, Communicator* communicator, const Queue& compute,
               size_t bucket_bytes);

  void Begin(bool reduces) override { reduces_ = reduces; }
  void AwaitGradients() override;
  void BackwardBegins(const std::vector<Operation>& operations) override;
  void AfterBackward(size_t operation) override;

 private:
  struct Bucket {
    float* gradients;
    size_t count = 0;
    std::vector<const Tensor*> parameters;
    size_t missing = 0;  // gradients, in this backward pass
    Event complete;      // on the compute stream
  };

  Communicator* communicator_;
  const Queue compute_;
  Queue communication_;
  Event reduced_;
  std::vector<Bucket> buckets_;
  std::map<const Tensor*, size_t> bucket_of_;
  FinishedParameters finished_;
  bool reduces_ = true;
  size_t next_ = 0;  // bucket to reduce
};

}  // namespace seqpoint::workload

#endif  // SEQPOINT_TESTS_WORKLOADS_DATA_PARALLEL_H_
