#include "injection/cupti/contexts.h"

#include <string.h>

namespace seqpoint::inject {

void Contexts::Add(CUcontext context) {
  LockGuard guard(&lock_);
  for (int i = 0; i < count_; ++i) {
    if (contexts_[i] == context) return;
  }
  if (context == nullptr || count_ == kMaxContexts) return;
  contexts_[count_++] = context;
  ++seen_;
}

void Contexts::Remove(CUcontext context) {
  LockGuard guard(&lock_);
  int kept = 0;
  for (int i = 0; i < count_; ++i) {
    if (contexts_[i] != context) contexts_[kept++] = contexts_[i];
  }
  count_ = kept;
}

void Contexts::Forget() {
  LockGuard guard(&lock_);
  count_ = 0;
}

CUcontext Contexts::Any() {
  LockGuard guard(&lock_);
  return count_ > 0 ? contexts_[0] : nullptr;
}

CUcontext Contexts::Only() {
  LockGuard guard(&lock_);
  return count_ == 1 ? contexts_[0] : nullptr;
}

void Contexts::ReportDevice(uint32_t device, const char* chip) {
  const CUdevice id = static_cast<CUdevice>(device);
  char name[256] = {};
  if (driver_->DeviceGetName(name, sizeof(name) - 1, id) != CUDA_SUCCESS) return;
  const auto attribute = [&](CUdevice_attribute which) {
    int value = 0;
    driver_->DeviceGetAttribute(&value, which, id);
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
  driver_->DeviceTotalMem(&memory_bytes, id);
  event.memory_bytes = memory_bytes;
  if (chip != nullptr) strncpy(event.chip, chip, sizeof(event.chip) - 1);
  event.length = static_cast<uint32_t>(strlen(name));
  ring_->WriteEvent(abi::EventType::kDevice, &event, sizeof(event), name, event.length);
}

void Contexts::ReportNewDevices() {
  CUcontext contexts[kMaxContexts];
  int count = 0;
  {
    LockGuard guard(&lock_);
    if (seen_ == reported_) return;
    reported_ = seen_;
    count = count_;
    memcpy(contexts, contexts_, sizeof(contexts));
  }
  for (int i = 0; i < count && cupti_->GetDeviceId != nullptr; ++i) {
    uint32_t device = 0;
    if (cupti_->GetDeviceId(contexts[i], &device) != CUPTI_SUCCESS || device >= 64) continue;
    if ((reported_devices_ >> device & 1) != 0) continue;
    reported_devices_ |= 1ull << device;
    ReportDevice(device, nullptr);
  }
}

CUcontext Contexts::Of(CUcontext context) {
  if (context != nullptr) return context;
  CUcontext current = nullptr;
  InsideScope inside;
  if (driver_->CtxGetCurrent(&current) == CUDA_SUCCESS && current != nullptr) return current;
  return Any();
}

}  // namespace seqpoint::inject
