// PC sampling of the software libcupti: who has it. No samples are made. The GPU's counters serve
// one use at a time, so a context that is sampled cannot be range-profiled, nor the other way
// round.
#include <cupti_pcsampling.h>

#include <mutex>
#include <set>

#include "tests/softgpu/cupti_images.h"
#include "tests/softgpu/cupti_state.h"

namespace seqpoint::softgpu {
namespace {

std::mutex g_pc_mutex;
std::set<CUcontext>& Sampled() {
  static auto* contexts = new std::set<CUcontext>;
  return *contexts;
}

}  // namespace

bool PcSampled(CUcontext context) {
  std::lock_guard lock(g_pc_mutex);
  return Sampled().count(context) > 0;
}

}  // namespace seqpoint::softgpu

using namespace seqpoint::softgpu;

extern "C" {

CUptiResult CUPTIAPI cuptiPCSamplingEnable(CUpti_PCSamplingEnableParams* params) {
  SWGPU_MAY_FAIL();
  if (params == nullptr || params->size != CUpti_PCSamplingEnableParamsSize) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  CuptiState* state = GetState();
  if (state == nullptr) return CUPTI_ERROR_UNKNOWN;
  if (params->ctx == nullptr) return CUPTI_ERROR_INVALID_CONTEXT;
  if (state->config->cupti_no_privileges) return CUPTI_ERROR_INSUFFICIENT_PRIVILEGES;
  if (RangeProfiled(params->ctx)) return CUPTI_ERROR_HARDWARE_BUSY;
  std::lock_guard lock(g_pc_mutex);
  return Sampled().insert(params->ctx).second ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_OPERATION;
}

CUptiResult CUPTIAPI cuptiPCSamplingDisable(CUpti_PCSamplingDisableParams* params) {
  SWGPU_MAY_FAIL();
  if (params == nullptr || params->size != CUpti_PCSamplingDisableParamsSize) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  std::lock_guard lock(g_pc_mutex);
  return Sampled().erase(params->ctx) > 0 ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_OPERATION;
}

}  // extern "C"
