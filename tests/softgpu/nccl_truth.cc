#include "tests/softgpu/nccl_truth.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <mutex>
#include <string>

#include "tests/softgpu/nccl_communicator.h"
#include "tests/softgpu/swgpu.h"

namespace seqpoint::softgpu {
namespace {

// Leaked: the truth file is written in an exit handler.
struct Truth {
  std::mutex mutex;
  SwgpuNcclTotals totals{};
  std::map<std::string, FILE*> files;
  std::map<int, uint64_t> last_end_ns;  // of each world rank of this process
};

Truth& GetTruth() {
  static auto* truth = new Truth;
  return *truth;
}

unsigned long long Number(uint64_t n) { return n; }

void WriteSums(FILE* file) {
  SwgpuNcclTotals t;
  swgpu_nccl_totals(&t);
  fprintf(file,
          ",\n \"nccl\": {\"kernels\": %llu, \"collectives\": %llu, \"transfers\": %llu, "
          "\"bytes\": %llu, \"work_ns\": %llu, \"wait_ns\": %llu, \"transfer_ns\": %llu, "
          "\"last_arrivals\": %llu}",
          Number(t.kernels), Number(t.collectives), Number(t.transfers), Number(t.bytes),
          Number(t.work_ns), Number(t.wait_ns), Number(t.transfer_ns), Number(t.last_arrivals));
}

// The file of the rank, opened at its first line. Null when it cannot be written.
FILE* FileOf(int world_rank, Truth* truth) {
  std::string path = NcclConfig().nccl_truth_file;
  if (const size_t at = path.find("%r"); at != std::string::npos) {
    path.replace(at, 2, std::to_string(world_rank));
  }
  auto [it, is_new] = truth->files.try_emplace(path, nullptr);
  if (!is_new) return it->second;
  it->second = fopen(path.c_str(), "w");
  if (it->second == nullptr) {
    fprintf(stderr, "softgpu: cannot write nccl.truth_file=%s\n", path.c_str());
    return nullptr;
  }
  // Whole lines, so that a killed rank leaves what it did.
  setvbuf(it->second, nullptr, _IOLBF, 0);
  fputs("communicator,kernel,function,sequence,bytes,rank,arrival_ns,start_ns,end_ns,last_rank\n",
        it->second);
  return it->second;
}

}  // namespace

void NoteNcclKernel(const NcclTruthOfKernel& kernel) {
  Truth& truth = GetTruth();
  std::lock_guard lock(truth.mutex);
  NcclHooks().write_nccl_truth.store(WriteSums);
  SwgpuNcclTotals& t = truth.totals;
  ++t.kernels;
  for (const auto& operation : kernel.operations) {
    const bool transfer = operation.function >= NcclFunction::kSendRecv;
    ++(transfer ? t.transfers : t.collectives);
    t.bytes += operation.bytes;
  }
  uint64_t& last_end_ns = truth.last_end_ns[kernel.world_rank];
  if (last_end_ns != 0 && kernel.arrival_ns > last_end_ns) {
    t.work_ns += kernel.arrival_ns - last_end_ns;
  }
  last_end_ns = std::max(last_end_ns, kernel.end_ns);
  t.wait_ns += kernel.start_ns - kernel.arrival_ns;
  t.transfer_ns += kernel.end_ns - kernel.start_ns;
  if (kernel.last_rank == kernel.rank) ++t.last_arrivals;
  if (NcclConfig().nccl_truth_file.empty()) return;
  FILE* file = FileOf(kernel.world_rank, &truth);
  if (file == nullptr) return;
  for (const auto& operation : kernel.operations) {
    fprintf(file, "%016llx,%llu,%s,%llu,%llu,%d,%llu,%llu,%llu,%d\n", Number(kernel.communicator),
            Number(kernel.kernel), Name(operation.function), Number(operation.sequence),
            Number(operation.bytes), kernel.rank, Number(kernel.arrival_ns),
            Number(kernel.start_ns), Number(kernel.end_ns), kernel.last_rank);
  }
}

}  // namespace seqpoint::softgpu

extern "C" __attribute__((visibility("default"))) void swgpu_nccl_totals(SwgpuNcclTotals* totals) {
  using seqpoint::softgpu::GetTruth;
  std::lock_guard lock(GetTruth().mutex);
  *totals = GetTruth().totals;
}
