// How long a collective or a transfer takes once all its ranks are there, and which algorithm,
// protocol and number of channels NCCL would name for it. Pure functions of the settings; immutable
// after construction, thread-safe.
//
// With n ranks, S bytes (of AllGather and ReduceScatter: of all ranks together) and B the bandwidth
// of the slowest link that is used:
//
//   ring  base + steps * hop + share * S / B
//         AllReduce 2(n-1) steps, share 2(n-1)/n; AllGather and ReduceScatter n-1 and (n-1)/n;
//         Broadcast and Reduce n-1 and 1
//   tree  base + 2 ceil(log2 n) * hop + 2 S / (B * efficiency)     AllReduce only
//   pair  base + hop + S / B
#ifndef SEQPOINT_TESTS_SOFTGPU_NCCL_LAW_H_
#define SEQPOINT_TESTS_SOFTGPU_NCCL_LAW_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tests/softgpu/config.h"
#include "tests/softgpu/nccl_abi.h"

namespace seqpoint::softgpu {

// ncclFunc_t, as plugins of version 1 see it.
enum class NcclFunction : uint8_t {
  kBroadcast = 0,
  kReduce = 1,
  kAllGather = 2,
  kReduceScatter = 3,
  kAllReduce = 4,
  kSendRecv = 5,
  kSend = 6,
  kRecv = 7,
  kAlltoAll = 8,
  kScatter = 9,
  kGather = 10,
};
inline constexpr int kNcclFunctions = 11;

enum class NcclAlgorithm : uint8_t { kTree = 0, kRing = 1 };
enum class NcclProtocol : uint8_t { kLl = 0, kLl128 = 1, kSimple = 2 };

const char* Name(NcclFunction function);
const char* Name(NcclAlgorithm algorithm);
const char* Name(NcclProtocol protocol);
const char* Name(ncclDataType_t type);  // as NCCL's plugins see it
uint64_t BytesOf(ncclDataType_t type);

class NcclLaw {
 public:
  // `world_ranks`: of each rank of the communicator, its number in the links of the settings.
  NcclLaw(const Config& config, const std::vector<int>& world_ranks);

  struct Choice {
    NcclAlgorithm algorithm;
    NcclProtocol protocol;
    uint8_t channels;
    double transfer_ns;  // without base
  };
  // `bytes`: S above.
  Choice Collective(NcclFunction function, uint64_t bytes) const;
  double TransferNs(int a, int b, uint64_t bytes) const;  // without base
  uint8_t TransferChannels(uint64_t bytes) const;
  double base_ns() const { return base_ns_; }
  int nodes() const { return nodes_; }

 private:
  double LinkGbps(const Config& config, int a, int b) const;

  const std::vector<int> world_ranks_;
  const double base_ns_;
  const double hop_ns_;
  const double tree_efficiency_;
  const uint64_t max_channels_;
  const std::string algorithm_;
  int nodes_ = 1;
  double ring_gbps_ = 0;
  double tree_gbps_ = 0;
  std::vector<double> link_gbps_;  // a row for each rank
};

// The mangled name of NCCL's kernel. NCCL has specialised kernels for sums over LL only, and runs
// the rest in them, too.
std::string KernelName(NcclFunction function, NcclAlgorithm algorithm, ncclDataType_t type);

}  // namespace seqpoint::softgpu

#endif  // SEQPOINT_TESTS_SOFTGPU_NCCL_LAW_H_
