// The progress thread of a communicator: tells the plugin when a kernel started and ended on each
// of its channels, and, by a setting, what a network transfer would do. NCCL's own thread looks at
// memory that the kernel writes; this one looks at the clock.
//
// Add, Drain and Stop are called by the communicator's users. The thread starts with the first Add.
#ifndef SEQPOINT_TESTS_SOFTGPU_NCCL_PROGRESS_H_
#define SEQPOINT_TESTS_SOFTGPU_NCCL_PROGRESS_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

namespace seqpoint::softgpu {

class NcclProgress {
 public:
  // One operation of a kernel.
  struct Operation {
    void* context;  // the plugin's
    int mask;       // of the operation
    void* event;    // the plugin's, of the operation
    int rank;
    int peer;  // of a transfer, or the next rank of the ring
    bool sends;
    bool receives;
    uint64_t bytes;
    uint8_t channels;
    uint64_t start_ns;
    uint64_t end_ns;
    // While it runs.
    bool started = false;
    std::vector<void*> kernel_events = {};
    std::vector<void*> proxy_ops = {};
    std::vector<void*> proxy_steps = {};
  };

  void Add(const Operation& operation);
  // Returns when the plugin has heard of everything that was added. The clock has passed it.
  void Drain();
  // Ends the thread; what it has not told stays untold.
  void Stop();
  ~NcclProgress() { Stop(); }

 private:
  void Loop();
  // One look at the clock. Returns whether something ended.
  bool Look();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Operation> operations_;
  std::thread thread_;
  bool stop_ = false;
};

}  // namespace seqpoint::softgpu

#endif  // SEQPOINT_TESTS_SOFTGPU_NCCL_PROGRESS_H_
