#include "injection/nccl/plugin_chain.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "injection/nccl/activation_masks.h"
#include "injection/nccl/profiler_abi.h"

namespace seqpoint::inject {
namespace {

constexpr char kVariable[] = "SEQPOINT_NCCL_PLUGIN";
constexpr char kDefaultPlugin[] = "libnccl-profiler.so";

// Bits of the mask, any of which makes NCCL create an event.
constexpr uint64_t kBelowOperation =
    nccl::kProxyOp | nccl::kProxyStep | nccl::kKernelChannel | nccl::kNetPlugin;
constexpr uint64_t kCopies = nccl::kCopyCollective | nccl::kCopySync | nccl::kCopyBatch;
constexpr uint64_t kOfCollective = nccl::kCollective | kBelowOperation;
constexpr uint64_t kOfTransfer = nccl::kPointToPoint | kBelowOperation;
constexpr uint64_t kOfGroup = nccl::kGroup | kOfCollective | kOfTransfer;
constexpr uint64_t kOfCollectiveApi = nccl::kCollectiveApi | kOfCollective | kCopies;
constexpr uint64_t kOfTransferApi = nccl::kPointToPointApi | kOfTransfer;
constexpr uint64_t kOfGroupApi =
    nccl::kGroupApi | nccl::kKernelLaunch | kOfGroup | kOfCollectiveApi | kOfTransferApi;
// NCCL 2.23 to 2.25.
constexpr uint64_t kOfFirstOperation = nccl::kCollective | nccl::kProxyOp | nccl::kProxyStep;
constexpr uint64_t kOfFirstGroup = kOfFirstOperation | nccl::kPointToPoint;

bool IsOwnLibrary(void* library) {
  Dl_info own;
  link_map* map = nullptr;
  return dladdr(&g_plugin_chain, &own) != 0 && dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 &&
         reinterpret_cast<void*>(map->l_addr) == own.dli_fbase;
}

bool IsLibraryName(const char* name) {
  const size_t length = strlen(name);
  return strncmp(name, "lib", 3) == 0 && length >= 3 && strcmp(name + length - 3, ".so") == 0;
}

}  // namespace

constinit PluginChain g_plugin_chain;

bool PluginChain::Offers(int version) {
  // With NCCL_PROFILER_PLUGIN=STATIC_PLUGIN, or a part of it, the program itself is the plugin, and
  // NCCL looks through all that it has loaded.
  const char* wanted = getenv("NCCL_PROFILER_PLUGIN");
  if (wanted != nullptr && wanted[0] != '\0' &&
      strncasecmp(wanted, "STATIC_PLUGIN", strlen(wanted)) == 0) {
    return false;
  }
  if (!decided_) {
    decided_ = true;
    Load(version);
  }
  return library_ == nullptr || tables_[version] != nullptr;
}

void PluginChain::Load(int newest) {
  newest_ = newest;
  library_ = Open();
  if (library_ == nullptr) return;
  bool any = false;
  for (int version = 1; version <= newest; ++version) {
    char symbol[32];
    snprintf(symbol, sizeof(symbol), "ncclProfiler_v%d", version);
    tables_[version] = dlsym(library_, symbol);
    any = any || tables_[version] != nullptr;
  }
  dlerror();  // NCCL asks for its own errors
  if (!any) {
    snprintf(error_, sizeof(error_), "%.180s has no version of the interface that NCCL knows",
             name_);
    dlclose(library_);
    library_ = nullptr;
  }
  loaded_.store(library_ != nullptr, std::memory_order_release);
}

// As NCCL opens it: by its path or name, or by a part of the name.
void* PluginChain::Open() {
  const char* given = getenv(kVariable);
  const bool named = given != nullptr && given[0] != '\0';
  snprintf(name_, sizeof(name_), "%s", named ? given : kDefaultPlugin);
  void* library = dlopen(name_, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr && named) {
    snprintf(error_, sizeof(error_), "%s", dlerror());
    if (strchr(name_, '/') == nullptr && !IsLibraryName(name_)) {
      snprintf(name_, sizeof(name_), "libnccl-profiler-%.200s.so", given);
      library = dlopen(name_, RTLD_NOW | RTLD_LOCAL);
    }
  }
  if (library != nullptr && IsOwnLibrary(library)) {
    dlclose(library);
    library = nullptr;
  }
  if (library != nullptr) error_[0] = '\0';
  if (library == nullptr) name_[0] = '\0';
  dlerror();
  return library;
}

void PluginChain::UpdateMask() {
  const int mask = __atomic_load_n(&mask_, __ATOMIC_RELAXED);
  if (written_mask_.exchange(mask, std::memory_order_relaxed) != mask) {
    g_activation_masks.SetOthers(mask);
  }
}

void PluginChain::Release() {
  if (users_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  loaded_.store(false, std::memory_order_release);
  if (library_ != nullptr) dlclose(library_);
  library_ = nullptr;
  for (const void*& table : tables_) table = nullptr;
  error_[0] = name_[0] = '\0';
  decided_ = false;
}

int PluginChain::MaskFor(uint64_t type, const void* parent) {
  // NCCL looks at its mask when it starts the event of the group's first call, and again in each
  // further call.
  const bool is_call = type == nccl::kCollectiveApi || type == nccl::kPointToPointApi;
  if (parent != nullptr && (is_call || type == nccl::kCollective || type == nccl::kPointToPoint ||
                            type == nccl::kKernelChannel)) {
    LockGuard guard(&lock_);
    Pair* pair = PlaceOf(pairs_, parent);
    if (pair->handle == parent && !pair->used) {
      pair->used = is_call;
      return pair->mask;
    }
  }
  return __atomic_load_n(&mask_, __ATOMIC_RELAXED);
}

bool PluginChain::Shows(uint64_t type, const void* parent, int bits) const {
  const auto mask = static_cast<uint64_t>(bits);
  const bool first = newest_ <= 2;
  switch (type) {
    case nccl::kGroup:
      return (mask & (first ? kOfFirstGroup : kOfGroup)) != 0;
    case nccl::kCollective:
    case nccl::kPointToPoint:
      // Up to NCCL 2.27 a group without a handle has no operations.
      if (newest_ <= 4 && IsOurs(parent)) return false;
      if (first) return (mask & kOfFirstOperation) != 0;
      return (mask & (type == nccl::kCollective ? kOfCollective : kOfTransfer)) != 0;
    case nccl::kGroupApi:
      return (mask & kOfGroupApi) != 0;
    case nccl::kCollectiveApi:
      return (mask & kOfCollectiveApi) != 0;
    case nccl::kPointToPointApi:
      return (mask & kOfTransferApi) != 0;
    case nccl::kKernelChannel:
      return (mask & nccl::kKernelChannel) != 0;
    default:
      return true;  // we do not ask for it
  }
}

PluginChain::Pair* PluginChain::PlaceOf(Pair* pairs, const void* handle) {
  const uint64_t mixed = reinterpret_cast<uint64_t>(handle) * 0x9E3779B97F4A7C15ull;
  static_assert(kRemembered == 1u << 12);
  return pairs + (mixed >> (64 - 12));
}

void PluginChain::Remember(const void* handle, void* ours, int mask) {
  LockGuard guard(&lock_);
  *PlaceOf(pairs_, handle) = {handle, ours, mask, false};
}

NcclHandle PluginChain::Recall(const void* handle) {
  LockGuard guard(&lock_);
  const Pair& pair = *PlaceOf(pairs_, handle);
  return pair.handle == handle ? NcclHandle::Unpack(pair.ours) : NcclHandle{};
}

}  // namespace seqpoint::inject
