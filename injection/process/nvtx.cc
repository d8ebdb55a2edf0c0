#include "injection/process/nvtx.h"

#include <atomic>

#include "injection/process/guest.h"

namespace seqpoint::inject {
namespace {

using abi::Op;

std::atomic<uint64_t> g_next_range{1};

void OnNvtx(Op op, const char* name, bool has_payload, uint64_t payload) {
  Guest* guest = g_guest;
  if (guest == nullptr || !guest->state.Watches(op)) return;
  Call call = {};
  call.op = op;
  call.name = name;
  if (has_payload) {
    call.flags = abi::kCallHasPayload;
    call.bytes = payload;
  }
  if (guest->state.is_learning()) call.begin_ns = guest->clock.NowNs();
  guest->router.OnCall(call);
}

// What follows reads only fields that the caller's version of the struct has.
void OnAttributes(Op op, const nvtxEventAttributes_t* attributes) {
  const char* name = nullptr;
  bool has_payload = false;
  uint64_t payload = 0;
  if (attributes != nullptr && attributes->size >= NVTX_EVENT_ATTRIB_STRUCT_SIZE) {
    // A registered string's handle is our own copy of the text.
    if (attributes->messageType == NVTX_MESSAGE_TYPE_ASCII) {
      name = attributes->message.ascii;
    } else if (attributes->messageType == NVTX_MESSAGE_TYPE_REGISTERED) {
      name = reinterpret_cast<const char*>(attributes->message.registered);
    }
    switch (attributes->payloadType) {
      case NVTX_PAYLOAD_TYPE_UNSIGNED_INT64:
      case NVTX_PAYLOAD_TYPE_INT64:
        has_payload = true;
        payload = attributes->payload.ullValue;
        break;
      case NVTX_PAYLOAD_TYPE_UNSIGNED_INT32:
        has_payload = true;
        payload = attributes->payload.uiValue;
        break;
      case NVTX_PAYLOAD_TYPE_INT32:
        has_payload = true;
        payload = static_cast<uint64_t>(static_cast<int64_t>(attributes->payload.iValue));
        break;
      default:
        break;  // a floating-point payload is no length
    }
  }
  OnNvtx(op, name, has_payload, payload);
}

void NVTX_API MarkEx(const nvtxEventAttributes_t* attributes) {
  OnAttributes(Op::kNvtxMark, attributes);
}
void NVTX_API MarkA(const char* message) { OnNvtx(Op::kNvtxMark, message, false, 0); }
int NVTX_API RangePushEx(const nvtxEventAttributes_t* attributes) {
  OnAttributes(Op::kNvtxPush, attributes);
  return NVTX_NO_PUSH_POP_TRACKING;
}
int NVTX_API RangePushA(const char* message) {
  OnNvtx(Op::kNvtxPush, message, false, 0);
  return NVTX_NO_PUSH_POP_TRACKING;
}
int NVTX_API RangePop() {
  OnNvtx(Op::kNvtxPop, nullptr, false, 0);
  return NVTX_NO_PUSH_POP_TRACKING;
}
nvtxRangeId_t NVTX_API RangeStartEx(const nvtxEventAttributes_t* attributes) {
  OnAttributes(Op::kNvtxPush, attributes);
  return g_next_range.fetch_add(1, std::memory_order_relaxed);
}
nvtxRangeId_t NVTX_API RangeStartA(const char* message) {
  OnNvtx(Op::kNvtxPush, message, false, 0);
  return g_next_range.fetch_add(1, std::memory_order_relaxed);
}
void NVTX_API RangeEnd(nvtxRangeId_t) { OnNvtx(Op::kNvtxPop, nullptr, false, 0); }

void NVTX_API DomainMarkEx(nvtxDomainHandle_t, const nvtxEventAttributes_t* attributes) {
  OnAttributes(Op::kNvtxMark, attributes);
}
int NVTX_API DomainRangePushEx(nvtxDomainHandle_t, const nvtxEventAttributes_t* attributes) {
  return RangePushEx(attributes);
}
int NVTX_API DomainRangePop(nvtxDomainHandle_t) { return RangePop(); }
nvtxRangeId_t NVTX_API DomainRangeStartEx(nvtxDomainHandle_t,
                                          const nvtxEventAttributes_t* attributes) {
  return RangeStartEx(attributes);
}
void NVTX_API DomainRangeEnd(nvtxDomainHandle_t, nvtxRangeId_t range) { RangeEnd(range); }
nvtxStringHandle_t NVTX_API DomainRegisterStringA(nvtxDomainHandle_t, const char* text) {
  Guest* guest = g_guest;
  if (guest == nullptr) return nullptr;
  const char* copy = guest->names.Intern(text).text;
  return reinterpret_cast<nvtxStringHandle_t>(const_cast<char*>(copy));
}

struct Patch {
  NvtxCallbackModule module;
  uint32_t id;
  NvtxFunctionPointer function;
};

template <typename Function>
NvtxFunctionPointer Erase(Function* function) {
  return reinterpret_cast<NvtxFunctionPointer>(function);
}

}  // namespace

bool PatchNvtx(NvtxGetExportTableFunc_t get_export_table) {
  const auto* callbacks =
      static_cast<const NvtxExportTableCallbacks*>(get_export_table(NVTX_ETID_CALLBACKS));
  if (callbacks == nullptr || callbacks->GetModuleFunctionTable == nullptr) return false;
  const auto* version =
      static_cast<const NvtxExportTableVersionInfo*>(get_export_table(NVTX_ETID_VERSIONINFO));
  if (version != nullptr && version->SetInjectionNvtxVersion != nullptr) {
    version->SetInjectionNvtxVersion(NVTX_VERSION);
  }
  const Patch patches[] = {
      {NVTX_CB_MODULE_CORE, NVTX_CBID_CORE_MarkEx, Erase(MarkEx)},
      {NVTX_CB_MODULE_CORE, NVTX_CBID_CORE_MarkA, Erase(MarkA)},
      {NVTX_CB_MODULE_CORE, NVTX_CBID_CORE_RangeStartEx, Erase(RangeStartEx)},
      {NVTX_CB_MODULE_CORE, NVTX_CBID_CORE_RangeStartA, Erase(RangeStartA)},
      {NVTX_CB_MODULE_CORE, NVTX_CBID_CORE_RangeEnd, Erase(RangeEnd)},
      {NVTX_CB_MODULE_CORE, NVTX_CBID_CORE_RangePushEx, Erase(RangePushEx)},
      {NVTX_CB_MODULE_CORE, NVTX_CBID_CORE_RangePushA, Erase(RangePushA)},
      {NVTX_CB_MODULE_CORE, NVTX_CBID_CORE_RangePop, Erase(RangePop)},
      {NVTX_CB_MODULE_CORE2, NVTX_CBID_CORE2_DomainMarkEx, Erase(DomainMarkEx)},
      {NVTX_CB_MODULE_CORE2, NVTX_CBID_CORE2_DomainRangeStartEx, Erase(DomainRangeStartEx)},
      {NVTX_CB_MODULE_CORE2, NVTX_CBID_CORE2_DomainRangeEnd, Erase(DomainRangeEnd)},
      {NVTX_CB_MODULE_CORE2, NVTX_CBID_CORE2_DomainRangePushEx, Erase(DomainRangePushEx)},
      {NVTX_CB_MODULE_CORE2, NVTX_CBID_CORE2_DomainRangePop, Erase(DomainRangePop)},
      {NVTX_CB_MODULE_CORE2, NVTX_CBID_CORE2_DomainRegisterStringA, Erase(DomainRegisterStringA)},
  };
  bool patched = false;
  for (const Patch& patch : patches) {
    NvtxFunctionTable table = nullptr;
    unsigned int size = 0;
    if (callbacks->GetModuleFunctionTable(patch.module, &table, &size) == 0) continue;
    if (patch.id >= size || table == nullptr || table[patch.id] == nullptr) continue;
    *table[patch.id] = patch.function;
    patched = true;
  }
  return patched;
}

}  // namespace seqpoint::inject
