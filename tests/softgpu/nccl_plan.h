// One communication kernel: the operations of one group on one communicator.
//
// A plan is built by the calls of a group, launched, and ended once the other ranks have arrived.
// In a stream it is launched once. In a graph it is launched whenever the graph is; then it lives
// as long as the process.
#ifndef SEQPOINT_TESTS_SOFTGPU_NCCL_PLAN_H_
#define SEQPOINT_TESTS_SOFTGPU_NCCL_PLAN_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "tests/softgpu/nccl_communicator.h"

namespace seqpoint::softgpu {

// One collective, send or receive.
struct NcclTask {
  NcclFunction function;
  const void* send;
  void* receive;
  size_t count;
  ncclDataType_t type;
  ncclRedOp_t op;
  int root;  // or the peer
  cudaStream_t stream;

  uint64_t bytes = 0;          // count times size of an element
  uint64_t traffic_bytes = 0;  // by which NCCL orders the collectives of a group
  NcclLaw::Choice choice{};
  // The plugin's: what it wanted to see when the call was made, and its handles.
  int mask = 0;
  void* group_api_event = nullptr;
  void* api_event = nullptr;
  void* event = nullptr;

  bool is_transfer() const { return function >= NcclFunction::kSendRecv; }
};

class NcclPlan : public JointKernel {
 public:
  explicit NcclPlan(std::shared_ptr<NcclCommunicator> communicator)
      : communicator_(std::move(communicator)) {}

  NcclCommunicator& communicator() { return *communicator_; }
  void Add(const NcclTask& task);
  std::vector<NcclTask>& collectives() { return collectives_; }
  std::vector<NcclTask>& transfers() { return transfers_; }
  CUstream stream() const { return streams_.front(); }
  bool captured() const { return captured_; }

  // Launches the kernel on the first of the streams. It has posted this rank's arrival then, unless
  // a graph captures it.
  ncclResult_t Launch();
  // Waits for the other ranks, without any lock and without virtual time.
  void End();

  // The plugin's.
  void* kernel_launch_event = nullptr;
  void* group_event = nullptr;
  int group_mask = 0;

 private:
  struct Arrivals;

  void Reached(const JointLaunch& launch) override;
  // False: a rank that never comes was aborted.
  bool Post();
  // The end, from the times that the ranks have posted. Nothing: aborted.
  std::optional<Arrivals> Await();
  ncclResult_t JoinStreams();
  void LeaveStreams();
  void Tell(uint64_t end_ns);

  const std::shared_ptr<NcclCommunicator> communicator_;
  std::vector<NcclTask> collectives_;
  std::vector<NcclTask> transfers_;
  std::vector<CUstream> streams_;
  bool captured_ = false;

  // State of the launch under way.
  bool reached_ = false;
  bool posted_ = false;
  JointLaunch launch_{};
  uint64_t kernel_ = 0;      // its number
  uint64_t collective_ = 0;  // its number among those with collectives
  uint32_t round_ = 0;
  std::vector<uint64_t> transfer_numbers_;
};

}  // namespace seqpoint::softgpu

#endif  // SEQPOINT_TESTS_SOFTGPU_NCCL_PLAN_H_
