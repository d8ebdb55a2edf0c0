#include "injection/cupti/activity_buffers.h"

#include <stdlib.h>

namespace seqpoint::inject {
namespace {

ActivityBuffers* g_registered = nullptr;

}  // namespace

void ActivityBuffers::ForgetInChild() { g_registered = nullptr; }

uint32_t ActivityBuffers::Register() {
  g_registered = this;
  CallWatch::Scope watch(call_watch_, "cuptiActivityRegisterCallbacks");
  return cupti_->ActivityRegisterCallbacks(OnRequest, OnComplete);
}

void ActivityBuffers::ExpectLoss() {
  for (Buffer& buffer : buffers_) {
    if (buffer.lent.load(std::memory_order_acquire)) buffer.stale.store(true);
  }
}

void ActivityBuffers::OnRequest(uint8_t** buffer, size_t* size, size_t* max_records) {
  *max_records = 0;
  *buffer = nullptr;
  *size = 0;
  if (g_registered != nullptr) g_registered->Request(buffer, size);
}

void ActivityBuffers::OnComplete(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid_bytes) {
  if (g_registered != nullptr) g_registered->Complete(buffer, valid_bytes);
}

void ActivityBuffers::Request(uint8_t** buffer, size_t* size) {
  for (Buffer& one : buffers_) {
    if (one.lent.load(std::memory_order_relaxed) ||
        one.lent.exchange(true, std::memory_order_acquire)) {
      continue;
    }
    const size_t bytes = &one < buffers_ + kBuffers ? kBufferBytes : kSmallBufferBytes;
    void* memory = one.bytes.load(std::memory_order_relaxed);
    if (memory == nullptr && posix_memalign(&memory, kAlignment, bytes) != 0) {
      one.lent.store(false, std::memory_order_release);
      break;
    }
    one.bytes.store(static_cast<uint8_t*>(memory), std::memory_order_release);
    *buffer = static_cast<uint8_t*>(memory);
    *size = bytes;
    return;
  }
  *buffer = cupti_->Has(kNeedsBuffers) ? last_resort_ : nullptr;
  *size = *buffer != nullptr ? kSmallBufferBytes : 0;
}

void ActivityBuffers::Complete(uint8_t* buffer, size_t valid_bytes) {
  Buffer* ours = nullptr;
  for (Buffer& one : buffers_) {
    if (one.bytes.load(std::memory_order_acquire) != buffer || !one.lent.load()) continue;
    ours = &one;
    break;
  }
  if (ours == nullptr && buffer != last_resort_) return;  // another tool's, from before us
  const bool discarded = ours == nullptr || ours >= buffers_ + kBuffers;
  CUpti_Activity* record = nullptr;
  uint64_t count = 0;
  decoder_->ReadClock();
  // Ends with MAX_LIMIT_REACHED, or with INVALID_KIND at the unfinished record of a forced flush.
  while (valid_bytes > 0 &&
         cupti_->ActivityGetNextRecord(buffer, valid_bytes, &record) == CUPTI_SUCCESS) {
    ++count;
    if (!discarded) decoder_->Decode(record);
  }
  decoder_->Count(count);
  if (discarded) ring_->Count(&abi::RingHeader::cupti_dropped, count);
  if (ours != nullptr) {
    if (ours->stale.exchange(false)) ours->bytes.store(nullptr, std::memory_order_relaxed);
    ours->lent.store(false, std::memory_order_release);
  }
  size_t dropped = 0;
  if (cupti_->ActivityGetNumDroppedRecords(nullptr, 0, &dropped) == CUPTI_SUCCESS && dropped > 0) {
    ring_->Count(&abi::RingHeader::cupti_dropped, dropped);
  }
}

}  // namespace seqpoint::inject
