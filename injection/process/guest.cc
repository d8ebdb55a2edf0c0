#include "injection/process/guest.h"

#include <string.h>

#include <new>

namespace seqpoint::inject {
namespace {

// With the ring's 15.6 MiB and at most 31.5 MiB of activity buffers under the 64 MiB that the
// library may take. Pages that are never used cost nothing.
constexpr size_t kPoolBytes = 10 << 20;

SpinLock g_making;

}  // namespace

Guest* g_guest = nullptr;

Guest* EnsureGuest() {
  // NVTX may call on one thread while another is inside cuInit.
  LockGuard guard(&g_making);
  if (g_guest != nullptr) return g_guest;
  Pool pool;
  if (!pool.Create(kPoolBytes)) return nullptr;
  Guest* guest = new (pool.Take(sizeof(Guest))) Guest();
  guest->pool = pool;
  guest->features.Init(&guest->ring);
  if (!guest->names.Init(&guest->pool, &guest->ring)) return nullptr;
  if (!guest->graphs.Init(&guest->pool, &guest->names)) return nullptr;
  __atomic_store_n(&g_guest, guest, __ATOMIC_RELEASE);
  return guest;
}

void Guest::StartMeasuring() {
  measuring = true;
  if (cupti.Has(kKeepsNamesOfUnloadedModules)) launch_names.Init(&pool);
  if (reads_records && activity.Init(&cupti, &driver, &pool, &names, &ring, &features) &&
      activity.traces()) {
    features.Report(abi::Feature::kActivity, abi::FeatureState::kReady, 0,
                    "GPU work can be recorded");
  }
  counters.Init(&cupti, &driver, &pool, &ring, &features);
}

void Guest::AddContext(CUcontext context) {
  LockGuard guard(&contexts_lock_);
  for (int i = 0; i < context_count_; ++i) {
    if (contexts_[i] == context) return;
  }
  if (context == nullptr || context_count_ == kMaxContexts) return;
  contexts_[context_count_++] = context;
  ++contexts_seen_;
}

void Guest::RemoveContext(CUcontext context) {
  LockGuard guard(&contexts_lock_);
  for (int i = 0; i < context_count_; ++i) {
    if (contexts_[i] != context) continue;
    for (int j = i + 1; j < context_count_; ++j) contexts_[j - 1] = contexts_[j];
    --context_count_;
    return;
  }
}

void Guest::ForgetContexts() {
  LockGuard guard(&contexts_lock_);
  context_count_ = 0;
}

CUcontext Guest::AnyContext() {
  LockGuard guard(&contexts_lock_);
  return context_count_ > 0 ? contexts_[0] : nullptr;
}

CUcontext Guest::OnlyContext() {
  LockGuard guard(&contexts_lock_);
  return context_count_ == 1 ? contexts_[0] : nullptr;
}

void Guest::ReportDevice(uint32_t device, const char* chip) {
  if (driver.DeviceGetName == nullptr || driver.DeviceGetAttribute == nullptr) return;
  const CUdevice id = static_cast<CUdevice>(device);
  char name[256] = {};
  if (driver.DeviceGetName(name, sizeof(name) - 1, id) != CUDA_SUCCESS) return;
  const auto attribute = [&](CUdevice_attribute which) {
    int value = 0;
    driver.DeviceGetAttribute(&value, which, id);
    return value;
  };
  abi::DeviceEvent event = {};
  event.device = static_cast<uint16_t>(device);
  event.compute_major =
      static_cast<uint16_t>(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR));
  event.compute_minor =
      static_cast<uint16_t>(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
  event.multiprocessors =
      static_cast<uint32_t>(attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
  size_t memory_bytes = 0;
  if (driver.DeviceTotalMem != nullptr) driver.DeviceTotalMem(&memory_bytes, id);
  event.memory_bytes = memory_bytes;
  if (chip != nullptr) strncpy(event.chip, chip, sizeof(event.chip) - 1);
  event.length = static_cast<uint32_t>(strlen(name));
  ring.WriteEvent(abi::EventType::kDevice, &event, sizeof(event), name, event.length);
}

void Guest::ReportNewDevices() {
  CUcontext contexts[kMaxContexts];
  int count = 0;
  {
    LockGuard guard(&contexts_lock_);
    if (contexts_seen_ == reported_contexts_) return;
    reported_contexts_ = contexts_seen_;
    count = context_count_;
    memcpy(contexts, contexts_, sizeof(contexts));
  }
  for (int i = 0; i < count && cupti.GetDeviceId != nullptr; ++i) {
    uint32_t device = 0;
    if (cupti.GetDeviceId(contexts[i], &device) != CUPTI_SUCCESS || device >= 64) continue;
    if ((reported_devices_ >> device & 1) != 0) continue;
    reported_devices_ |= 1ull << device;
    ReportDevice(device, nullptr);
  }
}

CUcontext Guest::ContextOf(CUcontext context) {
  if (context != nullptr) return context;
  CUcontext current = nullptr;
  if (driver.CtxGetCurrent != nullptr) {
    InsideScope inside;
    if (driver.CtxGetCurrent(&current) == CUDA_SUCCESS && current != nullptr) return current;
  }
  return AnyContext();
}

}  // namespace seqpoint::inject
