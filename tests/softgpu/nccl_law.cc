#include "tests/softgpu/nccl_law.h"

#include <algorithm>

namespace seqpoint::softgpu {
namespace {

// Sizes at which NCCL's protocols and channels roughly change on one node. They only name: the law
// knows no protocols.
constexpr uint64_t kLlBytes = 64 << 10;
constexpr uint64_t kLl128Bytes = 4 << 20;
constexpr uint64_t kBytesPerChannel = 128 << 10;
constexpr uint64_t kBytesPerTransferChannel = 512 << 10;
constexpr uint64_t kTransferChannels = 4;

int CeilLog2(int n) {
  int bits = 0;
  while ((1 << bits) < n) ++bits;
  return bits;
}

uint8_t Channels(uint64_t bytes, uint64_t per_channel, uint64_t most) {
  return static_cast<uint8_t>(std::clamp<uint64_t>(bytes / per_channel, 1, most));
}

}  // namespace

const char* Name(NcclFunction function) {
  static constexpr const char* kNames[kNcclFunctions] = {
      "Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce", "SendRecv",
      "Send",      "Recv",   "AlltoAll",  "Scatter",       "Gather"};
  return kNames[static_cast<int>(function)];
}

const char* Name(NcclAlgorithm algorithm) {
  return algorithm == NcclAlgorithm::kTree ? "TREE" : "RING";
}

const char* Name(NcclProtocol protocol) {
  static constexpr const char* kNames[] = {"LL", "LL128", "SIMPLE"};
  return kNames[static_cast<int>(protocol)];
}

const char* Name(ncclDataType_t type) {
  // NCCL has no name for ncclUint8.
  static constexpr const char* kNames[ncclNumTypes] = {
      "ncclInt8",    "Unknown",      "ncclInt32",      "ncclUint32",
      "ncclInt64",   "ncclUint64",   "ncclFloat16",    "ncclFloat32",
      "ncclFloat64", "ncclBfloat16", "ncclFloat8e4m3", "ncclFloat8e5m2"};
  return type >= 0 && type < ncclNumTypes ? kNames[type] : "Unknown";
}

uint64_t BytesOf(ncclDataType_t type) {
  static constexpr uint8_t kBytes[ncclNumTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return type >= 0 && type < ncclNumTypes ? kBytes[type] : 0;
}

NcclLaw::NcclLaw(const Config& config, const std::vector<int>& world_ranks)
    : world_ranks_(world_ranks),
      base_ns_(static_cast<double>(config.nccl_base_ns)),
      hop_ns_(static_cast<double>(config.nccl_hop_ns)),
      tree_efficiency_(config.nccl_tree_efficiency),
      max_channels_(config.nccl_channels),
      algorithm_(config.nccl_algorithm) {
  const int n = static_cast<int>(world_ranks.size());
  if (config.nccl_ranks_per_node > 0) {
    std::vector<int> nodes;
    for (int rank : world_ranks)
      nodes.push_back(rank / static_cast<int>(config.nccl_ranks_per_node));
    std::sort(nodes.begin(), nodes.end());
    nodes_ = static_cast<int>(std::unique(nodes.begin(), nodes.end()) - nodes.begin());
  }
  for (int a = 0; a < n; ++a) {
    for (int b = 0; b < n; ++b) link_gbps_.push_back(LinkGbps(config, a, b));
  }
  const auto link = [&](int a, int b) { return link_gbps_[static_cast<size_t>(a * n + b)]; };
  ring_gbps_ = tree_gbps_ = link(0, n - 1);
  for (int rank = 1; rank < n; ++rank) ring_gbps_ = std::min(ring_gbps_, link(rank - 1, rank));
  for (int rank = 1; rank < n; ++rank) {
    const int parent = (rank - 1) / 2;
    tree_gbps_ = rank == 1 ? link(parent, rank) : std::min(tree_gbps_, link(parent, rank));
  }
}

double NcclLaw::LinkGbps(const Config& config, int a, int b) const {
  const int from = world_ranks_[static_cast<size_t>(a)];
  const int to = world_ranks_[static_cast<size_t>(b)];
  const int per_node = static_cast<int>(config.nccl_ranks_per_node);
  const bool one_node = per_node == 0 || from / per_node == to / per_node;
  double gbps = one_node ? config.nccl_bus_gbps : config.nccl_network_gbps;
  for (const Config::Link& link : config.nccl_link) {
    if ((link.a == from && link.b == to) || (link.a == to && link.b == from)) gbps *= link.factor;
  }
  return gbps;
}

NcclLaw::Choice NcclLaw::Collective(NcclFunction function, uint64_t bytes) const {
  const double n = static_cast<double>(world_ranks_.size());
  const auto size = static_cast<double>(bytes);
  double steps = n - 1;
  double share = 1;
  if (function == NcclFunction::kAllReduce) {
    steps = 2 * (n - 1);
    share = 2 * (n - 1) / n;
  } else if (function == NcclFunction::kAllGather || function == NcclFunction::kReduceScatter) {
    share = (n - 1) / n;
  }
  Choice choice{};
  choice.algorithm = NcclAlgorithm::kRing;
  choice.transfer_ns = steps * hop_ns_ + share * size / ring_gbps_;
  if (function == NcclFunction::kAllReduce && algorithm_ != "ring") {
    const double tree_ns =
        2 * CeilLog2(static_cast<int>(n)) * hop_ns_ + 2 * size / (tree_gbps_ * tree_efficiency_);
    if (algorithm_ == "tree" || tree_ns < choice.transfer_ns) {
      choice.algorithm = NcclAlgorithm::kTree;
      choice.transfer_ns = tree_ns;
    }
  }
  choice.protocol = bytes <= kLlBytes      ? NcclProtocol::kLl
                    : bytes <= kLl128Bytes ? NcclProtocol::kLl128
                                           : NcclProtocol::kSimple;
  choice.channels = Channels(bytes, kBytesPerChannel, max_channels_);
  return choice;
}

double NcclLaw::TransferNs(int a, int b, uint64_t bytes) const {
  const size_t n = world_ranks_.size();
  const double gbps = link_gbps_[static_cast<size_t>(a) * n + static_cast<size_t>(b)];
  return hop_ns_ + static_cast<double>(bytes) / gbps;
}

uint8_t NcclLaw::TransferChannels(uint64_t bytes) const {
  return Channels(bytes, kBytesPerTransferChannel, std::min(max_channels_, kTransferChannels));
}

std::string KernelName(NcclFunction function, NcclAlgorithm algorithm, ncclDataType_t type) {
  // Signed and unsigned integers have the same sum, hence one kernel.
  static constexpr const char* kTypes[ncclNumTypes] = {
      "u8", "u8", "u32", "u32", "u64", "u64", "f16", "f32", "f64", "bf16", "f8e4m3", "f8e5m2"};
  std::string name = std::string("ncclDevKernel_") + Name(function);
  switch (function) {
    case NcclFunction::kAllReduce:
    case NcclFunction::kReduce:
    case NcclFunction::kReduceScatter:
      name += std::string("_Sum_") + kTypes[type] + "_" + Name(algorithm) + "_LL";
      break;
    case NcclFunction::kAllGather:
    case NcclFunction::kBroadcast:
      name += "_RING_LL";
      break;
    default:
      name = "ncclDevKernel_SendRecv";
  }
  return "_Z" + std::to_string(name.size()) + name + "24ncclDevKernelArgsStorageILm4096EE";
}

}  // namespace seqpoint::softgpu
