// The user's own profiler plugin, which NCCL would have loaded in our place: we load it when NCCL
// loads us, and hand every call on.
//
// It sees what it would see alone:
//   * the version of the interface: NCCL asks our library for its newest version first, and we
//     answer as the user's plugin would (Offers), so NCCL itself converts for an older one;
//   * its contexts, and its own handles: NCCL gets these, and not ours, wherever it gives one;
//   * the events of its own activation mask, which it writes into a word of ours.
// It is unloaded with the last communicator.
//
// Threading: Offers while NCCL loads us (the loader is locked); the rest from any thread. One
// object in the process, outside the guest: the user's plugin works where there is no guest.
#ifndef SEQPOINT_INJECTION_NCCL_PLUGIN_CHAIN_H_
#define SEQPOINT_INJECTION_NCCL_PLUGIN_CHAIN_H_

#include <stdint.h>

#include <atomic>

#include "injection/base/system.h"
#include "injection/nccl/handles.h"

namespace seqpoint::inject {

class PluginChain {
 public:
  static constexpr int kVersions = 6;

  // NCCL looks for this version of the interface. False: the user's plugin does not have it.
  bool Offers(int version);
  bool loaded() const { return loaded_.load(std::memory_order_acquire); }
  // A PluginV1 to PluginV6 of the user's. The version is one that was offered.
  const void* table(int version) const { return tables_[version]; }
  // Its name, and what went wrong when it could not be loaded; empty: there is none.
  const char* name() const { return name_; }
  const char* error() const { return error_; }

  // The mask that its `init` gets, and which it may write at any time.
  int* mask() { return &mask_; }
  // Takes over what it has written; after each call of it.
  void UpdateMask();

  // One communicator more, or less. True: it is the first one. Unloads after the last one.
  bool Retain() { return users_.fetch_add(1, std::memory_order_relaxed) == 0; }
  void Release();

  // NCCL calls its `finalize` for this context.
  bool Ends(const void* context) const { return context != nullptr || newest_ <= 4; }
  // The mask that NCCL goes by for an event of this type (nccl::EventType): for an operation and
  // its channels the one that held when the program called it. `parent`: the descriptor's.
  int MaskFor(uint64_t type, const void* parent);
  // Would NCCL tell it of such an event, by this mask?
  bool Shows(uint64_t type, const void* parent, int mask) const;

  // Remembers what belongs to one of its handles: our handle, which may be null, and the mask. The
  // latest 4,096 handles or fewer are known.
  void Remember(const void* handle, void* ours, int mask);
  NcclHandle Recall(const void* handle);

 private:
  static constexpr uint32_t kRemembered = 4096;
  struct Pair {
    const void* handle;
    void* ours;
    int mask;
    bool used;  // the event of a group: its first call is over
  };

  void Load(int newest);
  void* Open();
  static Pair* PlaceOf(Pair* pairs, const void* handle);

  std::atomic<bool> loaded_{false};
  bool decided_ = false;
  int newest_ = 0;  // version that NCCL knows
  void* library_ = nullptr;
  const void* tables_[kVersions + 1] = {};
  char name_[256] = {};
  char error_[256] = {};
  int mask_ = 0;
  std::atomic<int> written_mask_{0};  // as NCCL has it
  std::atomic<int> users_{0};
  SpinLock lock_;  // for the pairs
  Pair pairs_[kRemembered] = {};
};

extern PluginChain g_plugin_chain;

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_NCCL_PLUGIN_CHAIN_H_
