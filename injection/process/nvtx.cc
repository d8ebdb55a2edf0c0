#include "injection/process/nvtx.h"

#include <atomic>

#include "injection/process/guest.h"

namespace seqpoint::inject {
namespace {

using abi::Op;

std::atomic<uint64_t> g_next_range{1};

using Message = const char*;
using Details = const nvtxEventAttributes_t*;
constexpr Message kNoName = nullptr;

// `flags`: abi::CallFlags.
void OnNvtx(Op op, Message name, uint8_t flags = 0, uint64_t payload = 0) {
  Guest* guest = g_guest;
  if (guest == nullptr || !guest->state.Watches(op)) return;
  Call call = {};
  call.op = op;
  call.flags = flags;
  call.name = name;
  call.bytes = payload;
  if (guest->state.is_learning()) call.begin_ns = guest->clock.NowNs();
  guest->router.OnCall(call);
}

// Reads only fields that the caller's version of the struct has.
void OnNvtx(Op op, Details attributes) {
  if (attributes == nullptr || attributes->size < NVTX_EVENT_ATTRIB_STRUCT_SIZE) {
    OnNvtx(op, kNoName);
    return;
  }
  Message name = nullptr;
  // A registered string's handle is our own copy of the text.
  if (attributes->messageType == NVTX_MESSAGE_TYPE_ASCII) {
    name = attributes->message.ascii;
  } else if (attributes->messageType == NVTX_MESSAGE_TYPE_REGISTERED) {
    name = reinterpret_cast<Message>(attributes->message.registered);
  }
  uint8_t flags = abi::kCallHasPayload;
  uint64_t payload = 0;
  switch (attributes->payloadType) {
    case NVTX_PAYLOAD_TYPE_UNSIGNED_INT64:
    case NVTX_PAYLOAD_TYPE_INT64:
      payload = attributes->payload.ullValue;
      break;
    case NVTX_PAYLOAD_TYPE_UNSIGNED_INT32:
      payload = attributes->payload.uiValue;
      break;
    case NVTX_PAYLOAD_TYPE_INT32:
      payload = static_cast<uint64_t>(static_cast<int64_t>(attributes->payload.iValue));
      break;
    default:
      flags = 0;  // a floating-point payload is no length
  }
  OnNvtx(op, name, flags, payload);
}

// `Name`: Message or Details.
template <typename Name>
void NVTX_API Mark(Name name) {
  OnNvtx(Op::kNvtxMark, name);
}
template <typename Name>
int NVTX_API RangePush(Name name) {
  OnNvtx(Op::kNvtxPush, name);
  return NVTX_NO_PUSH_POP_TRACKING;
}
int NVTX_API RangePop() {
  OnNvtx(Op::kNvtxPop, kNoName);
  return NVTX_NO_PUSH_POP_TRACKING;
}
template <typename Name>
nvtxRangeId_t NVTX_API RangeStart(Name name) {
  OnNvtx(Op::kNvtxPush, name);
  return g_next_range.fetch_add(1, std::memory_order_relaxed);
}
void NVTX_API RangeEnd(nvtxRangeId_t) { OnNvtx(Op::kNvtxPop, kNoName); }

// The same functions of domains: whose a range is makes no difference.
template <auto kFunction>
struct OfDomain;
template <typename Result, typename... Arguments, Result (*kFunction)(Arguments...)>
struct OfDomain<kFunction> {
  static Result NVTX_API Call(nvtxDomainHandle_t, Arguments... arguments) {
    return kFunction(arguments...);
  }
};
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
      {NVTX_CB_MODULE_CORE, NVTX_CBID_CORE_MarkEx, Erase(Mark<Details>)},
      {NVTX_CB_MODULE_CORE, NVTX_CBID_CORE_MarkA, Erase(Mark<Message>)},
      {NVTX_CB_MODULE_CORE, NVTX_CBID_CORE_RangeStartEx, Erase(RangeStart<Details>)},
      {NVTX_CB_MODULE_CORE, NVTX_CBID_CORE_RangeStartA, Erase(RangeStart<Message>)},
      {NVTX_CB_MODULE_CORE, NVTX_CBID_CORE_RangeEnd, Erase(RangeEnd)},
      {NVTX_CB_MODULE_CORE, NVTX_CBID_CORE_RangePushEx, Erase(RangePush<Details>)},
      {NVTX_CB_MODULE_CORE, NVTX_CBID_CORE_RangePushA, Erase(RangePush<Message>)},
      {NVTX_CB_MODULE_CORE, NVTX_CBID_CORE_RangePop, Erase(RangePop)},
      {NVTX_CB_MODULE_CORE2, NVTX_CBID_CORE2_DomainMarkEx, Erase(OfDomain<Mark<Details>>::Call)},
      {NVTX_CB_MODULE_CORE2, NVTX_CBID_CORE2_DomainRangeStartEx,
       Erase(OfDomain<RangeStart<Details>>::Call)},
      {NVTX_CB_MODULE_CORE2, NVTX_CBID_CORE2_DomainRangeEnd, Erase(OfDomain<RangeEnd>::Call)},
      {NVTX_CB_MODULE_CORE2, NVTX_CBID_CORE2_DomainRangePushEx,
       Erase(OfDomain<RangePush<Details>>::Call)},
      {NVTX_CB_MODULE_CORE2, NVTX_CBID_CORE2_DomainRangePop, Erase(OfDomain<RangePop>::Call)},
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
