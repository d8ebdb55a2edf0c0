#include "injection/other_users.h"

#include <cupti_pcsampling.h>
#include <cupti_sass_metrics.h>
#include <dlfcn.h>

#include <atomic>

#include "injection/guest.h"
#include "injection/redirect.h"
#include "injection/stand_down.h"

namespace seqpoint::inject {
namespace {

// Calls by which a tool begins to use CUPTI, and how the tool is named when nobody told its name.
// clang-format off
#define SEQPOINT_BEGINNINGS(X) \
  X(cuptiSubscribe, "a tool in this process that watches CUPTI callbacks") \
  X(cuptiSubscribe_v2, "a tool in this process that watches CUPTI callbacks") \
  X(cuptiActivityRegisterCallbacks, kRecords) \
  X(cuptiActivityEnable, kRecords) \
  X(cuptiActivityEnableContext, kRecords) \
  X(cuptiActivityEnableAndDump, kRecords) \
  X(cuptiActivityEnableDriverApi, kRecords) \
  X(cuptiActivityEnableRuntimeApi, kRecords) \
  X(cuptiActivityRegisterTimestampCallback, "a tool in this process that sets CUPTI's clock") \
  X(cuptiRangeProfilerEnable, "a tool in this process that uses CUPTI's range profiler") \
  X(cuptiProfilerBeginSession, "a tool in this process that uses CUPTI's profiler") \
  X(cuptiPmSamplingEnable, "a tool in this process that uses CUPTI's PM sampling") \
  X(cuptiPCSamplingEnable, "a tool in this process that uses CUPTI's PC sampling") \
  X(cuptiSassMetricsEnable, "a tool in this process that uses CUPTI's SASS metrics") \
  X(cuptiEventGroupEnable, "a tool in this process that counts CUPTI events") \
  X(cuptiEventGroupSetEnable, "a tool in this process that counts CUPTI events") \
  X(cuptiFinalize, "a tool in this process that ended CUPTI")
// clang-format on
constexpr char kRecords[] = "a tool in this process that records CUPTI activities";
constexpr char kMayUse[] = "the program, which may use CUPTI itself";

// A tool was noticed and has not left.
std::atomic<bool> g_noticed{false};

// A tool that was announced (seqpoint_stand_down), or noticed before, is no news.
void Notice(const char* holder) {
  if (g_guest == nullptr || StandsDown()) return;
  g_noticed.store(true);
  StandDown(holder);
}

enum Beginning {
#define SEQPOINT_NAME(name, holder) k_##name,
  SEQPOINT_BEGINNINGS(SEQPOINT_NAME)
#undef SEQPOINT_NAME
      kBeginnings
};
constexpr const char* kHolders[] = {
#define SEQPOINT_HOLDER(name, holder) holder,
    SEQPOINT_BEGINNINGS(SEQPOINT_HOLDER)
#undef SEQPOINT_HOLDER
};
void* g_functions[kBeginnings];  // CUPTI's own
decltype(&::cuptiUnsubscribe) g_unsubscribe = nullptr;

template <int kBeginning, typename Function>
struct Passing;
template <int kBeginning, typename... Arguments>
struct Passing<kBeginning, CUptiResult (*)(Arguments...)> {
  static CUptiResult Call(Arguments... arguments) {
    Notice(kHolders[kBeginning]);
    return reinterpret_cast<CUptiResult (*)(Arguments...)>(g_functions[kBeginning])(arguments...);
  }
};

// A tool that gives its subscription back has ended: CUPTI is free for the helper thread to take.
CUptiResult Unsubscribe(CUpti_SubscriberHandle subscriber) {
  const CUptiResult result = g_unsubscribe(subscriber);
  if (result == CUPTI_SUCCESS && g_noticed.exchange(false)) ComeBackLater();
  return result;
}

}  // namespace

void WatchOtherUsers(Guest* guest, bool was_mapped) {
  const Cupti& cupti = guest->cupti;
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(cupti.GetVersion), &info) == 0) return;
  void* library = dlopen(info.dli_fname, RTLD_NOLOAD | RTLD_NOW);
  if (library == nullptr) return;
  Redirection redirections[kBeginnings + 1] = {
#define SEQPOINT_REDIRECTION(name, holder) \
  {#name, nullptr, reinterpret_cast<void*>(Passing<k_##name, decltype(&::name)>::Call)},
      SEQPOINT_BEGINNINGS(SEQPOINT_REDIRECTION)
#undef SEQPOINT_REDIRECTION
          {"cuptiUnsubscribe", reinterpret_cast<void*>(cupti.Unsubscribe),
           reinterpret_cast<void*>(Unsubscribe)}};
  for (int i = 0; i < kBeginnings; ++i) {
    g_functions[i] = redirections[i].from = dlsym(library, redirections[i].name);
  }
  g_unsubscribe = cupti.Unsubscribe;
  // Subscribing tells better than a bound call whether there is a subscription now.
  constexpr size_t kFirst = k_cuptiActivityRegisterCallbacks;
  size_t which = 0;
  const Called called =
      was_mapped ? CalledSoFar(redirections + kFirst, kBeginnings - kFirst, &which) : Called::kNo;
  RedirectCalls(redirections, kBeginnings + 1);
  // One that is subscribed as well is known by its subscription, and by its end.
  if (called == Called::kNo || guest->callbacks.Subscribe(false) != CUPTI_SUCCESS) return;
  guest->callbacks.Unsubscribe();
  Notice(called == Called::kYes ? kHolders[kFirst + which] : kMayUse);
}

}  // namespace seqpoint::inject
