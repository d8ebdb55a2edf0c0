// The communicator over NCCL, which is loaded at run time: a machine without it runs the programs
// of one rank.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/softgpu/nccl_abi.h"
#include "tests/workloads/communicator.h"

namespace seqpoint::workload {
namespace {

constexpr char kLibrary[] = "libnccl.so.2";

[[noreturn]] void Fail(const std::string& message) {
  std::fprintf(stderr, "seqpoint_workload: %s\n", message.c_str());
  std::exit(1);
}

struct Nccl {
  decltype(&ncclGetUniqueId) get_unique_id;
  decltype(&ncclCommInitRank) init_rank;
  decltype(&ncclGetErrorString) error_string;
  decltype(&ncclGetLastError) last_error;
  decltype(&ncclAllReduce) all_reduce;
  decltype(&ncclAllGather) all_gather;
  decltype(&ncclReduceScatter) reduce_scatter;
  decltype(&ncclSend) send;
  decltype(&ncclRecv) receive;
  decltype(&ncclGroupStart) group_start;
  decltype(&ncclGroupEnd) group_end;
};

Nccl Load() {
  void* library = dlopen(kLibrary, RTLD_NOW);
  if (library == nullptr) {
    Fail(absl::StrCat("--parallel: cannot load NCCL: ", dlerror(),
                      "; put its folder on LD_LIBRARY_PATH (the software GPU has one, too)"));
  }
  Nccl nccl;
  const auto find = [library](const char* name, auto* function) {
    void* found = dlsym(library, name);
    if (found == nullptr) Fail(absl::StrCat(kLibrary, " has no ", name));
    *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(found);
  };
  find("ncclGetUniqueId", &nccl.get_unique_id);
  find("ncclCommInitRank", &nccl.init_rank);
  find("ncclGetErrorString", &nccl.error_string);
  find("ncclGetLastError", &nccl.last_error);
  find("ncclAllReduce", &nccl.all_reduce);
  find("ncclAllGather", &nccl.all_gather);
  find("ncclReduceScatter", &nccl.reduce_scatter);
  find("ncclSend", &nccl.send);
  find("ncclRecv", &nccl.receive);
  find("ncclGroupStart", &nccl.group_start);
  find("ncclGroupEnd", &nccl.group_end);
  return nccl;
}

cudaStream_t Raw(const Queue& queue) { return static_cast<cudaStream_t>(queue.stream); }

ncclRedOp_t Raw(Reduction reduction) { return reduction == Reduction::kSum ? ncclSum : ncclAvg; }

class NcclCommunicator : public Communicator {
 public:
  NcclCommunicator(const Ranks& ranks, std::function<void()> before_each)
      : ranks_(ranks), before_each_(std::move(before_each)), nccl_(Load()) {
    ncclUniqueId id{};
    if (ranks.rank == 0) Check("ncclGetUniqueId", nccl_.get_unique_id(&id));
    const absl::StatusOr<std::string> shared =
        ShareBytes(ranks, std::string(id.internal, sizeof(id.internal)));
    if (!shared.ok()) Fail(std::string(shared.status().message()));
    std::memcpy(id.internal, shared->data(), sizeof(id.internal));
    Check("ncclCommInitRank", nccl_.init_rank(&communicator_, ranks.count, id, ranks.rank));
  }

  int rank() const override { return ranks_.rank; }
  int ranks() const override { return ranks_.count; }

  void AllReduce(const Queue& queue, float* data, size_t count, Reduction reduction) override {
    Launch(queue, "ncclAllReduce", [&] {
      return nccl_.all_reduce(data, data, count, ncclFloat32, Raw(reduction), communicator_,
                              Raw(queue));
    });
  }
  void AllGather(const Queue& queue, const float* part, float* all, size_t count) override {
    Launch(queue, "ncclAllGather", [&] {
      return nccl_.all_gather(part, all, count, ncclFloat32, communicator_, Raw(queue));
    });
  }
  void ReduceScatter(const Queue& queue, const float* all, float* part, size_t count,
                     Reduction reduction) override {
    Launch(queue, "ncclReduceScatter", [&] {
      return nccl_.reduce_scatter(all, part, count, ncclFloat32, Raw(reduction), communicator_,
                                  Raw(queue));
    });
  }
  void Exchange(const Queue& queue, const std::vector<Transfer>& transfers) override {
    if (transfers.empty()) return;
    Launch(queue, "ncclSendRecv", [&] {
      nccl_.group_start();
      for (const Transfer& t : transfers) {
        const bool sends = t.kind == Transfer::Kind::kSend;
        Check(sends ? "ncclSend" : "ncclRecv",
              sends
                  ? nccl_.send(t.data, t.count, ncclFloat32, t.peer, communicator_, Raw(queue))
                  : nccl_.receive(t.data, t.count, ncclFloat32, t.peer, communicator_, Raw(queue)));
      }
      return nccl_.group_end();
    });
  }

 private:
  template <typename Call>
  void Launch(const Queue& queue, const char* name, const Call& call) {
    before_each_();
    BeforeLaunch(queue, {});
    Check(name, call());
    AfterLaunch(name);
  }

  void Check(const char* call, ncclResult_t result) const {
    if (result == ncclSuccess) return;
    Fail(absl::StrCat(call, " failed: ", nccl_.error_string(result), ": ",
                      nccl_.last_error(communicator_)));
  }

  const Ranks ranks_;
  const std::function<void()> before_each_;
  const Nccl nccl_;
  ncclComm_t communicator_ = nullptr;
};

}  // namespace

std::unique_ptr<Communicator> MakeNcclCommunicator(const Ranks& ranks,
                                                   std::function<void()> before_each) {
  return std::make_unique<NcclCommunicator>(ranks, std::move(before_each));
}

SoftwareNccl FindSoftwareNccl() {
  void* library = dlopen(kLibrary, RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return {};
  return {reinterpret_cast<decltype(SoftwareNccl::totals)>(dlsym(library, "swgpu_nccl_totals")),
          reinterpret_cast<decltype(SoftwareNccl::link)>(dlsym(library, "swgpu_nccl_link")),
          reinterpret_cast<decltype(SoftwareNccl::die)>(dlsym(library, "swgpu_nccl_die"))};
}

}  // namespace seqpoint::workload
