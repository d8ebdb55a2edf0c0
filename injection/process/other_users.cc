#include "injection/process/other_users.h"

#include <cupti_pcsampling.h>
#include <cupti_sass_metrics.h>
#include <dlfcn.h>
#include <stdio.h>

#include <atomic>

#include "injection/cupti/stand_down_requests.h"
#include "injection/process/guest.h"
#include "injection/process/redirect.h"
#include "injection/process/stand_down.h"

namespace seqpoint::inject {
namespace {

// Calls by which a tool begins to use CUPTI, and the name of a tool that did not give one.
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
  X(cuptiEventGroupSetEnable, "a tool in this process that counts CUPTI events")
// clang-format on
constexpr char kRecords[] = "a tool in this process that records CUPTI activities";
constexpr char kMayUse[] = "the program, which may use CUPTI itself";
constexpr char kTooLarge[] = "a program too large to be searched for uses of CUPTI";

// CUPTI is, or may be, used in a way whose end nobody sees.
std::atomic<bool> g_endless{false};

// A tool that announced itself (seqpoint_stand_down) is no news. One for which we stand down
// already is: the end of its subscription need not be the end of all.
void Notice(const char* holder, bool ends) {
  if (g_guest == nullptr || g_guest->ownership.has_nothing_to_leave() || StandsDownAsAsked())
    return;
  if (!ends) g_endless.store(true);
  if (!StandsDown()) StandDownForNoticed(holder);
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
decltype(&::cuptiFinalize) g_finalize = nullptr;

constexpr bool IsSubscription(int beginning) {
  return beginning == k_cuptiSubscribe || beginning == k_cuptiSubscribe_v2;
}

template <int kBeginning, typename Function>
struct Passing;
template <int kBeginning, typename... Arguments>
struct Passing<kBeginning, CUptiResult (*)(Arguments...)> {
  static CUptiResult Call(Arguments... arguments) {
    Notice(kHolders[kBeginning], IsSubscription(kBeginning));
    return reinterpret_cast<CUptiResult (*)(Arguments...)>(g_functions[kBeginning])(arguments...);
  }
};

// A tool of which nothing but its subscription was seen ends with it: CUPTI is free for the helper
// thread to take.
CUptiResult Unsubscribe(CUpti_SubscriberHandle subscriber) {
  const CUptiResult result = g_unsubscribe(subscriber);
  if (result == CUPTI_SUCCESS && g_guest != nullptr && !g_endless.load()) NoticedLeft();
  return result;
}

// The end of CUPTI is that of everything a tool did with it, and of everything that we did: what we
// have open is closed before, and CUPTI is taken again. torch.profiler ends CUPTI so with
// TEARDOWN_CUPTI=1, at some later call of the program (pytorch/kineto, CuptiActivityApi.cpp).
CUptiResult Finalize() {
  Notice("a tool in this process that ended CUPTI", true);
  const CUptiResult result = g_finalize();
  g_endless.store(false);
  if (g_guest != nullptr) NoticedLeft();
  return result;
}

}  // namespace

void WatchOtherUsers(Guest* guest) {
  const Cupti& cupti = guest->cupti;
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(cupti.GetVersion), &info) == 0) return;
  void* library = dlopen(info.dli_fname, RTLD_NOLOAD | RTLD_NOW);
  if (library == nullptr) return;
  g_unsubscribe = cupti.Unsubscribe;
  g_finalize = reinterpret_cast<decltype(g_finalize)>(dlsym(library, "cuptiFinalize"));
  Redirection redirections[kBeginnings + 2] = {
#define SEQPOINT_REDIRECTION(name, holder) \
  {#name, nullptr, reinterpret_cast<void*>(Passing<k_##name, decltype(&::name)>::Call)},
      SEQPOINT_BEGINNINGS(SEQPOINT_REDIRECTION)
#undef SEQPOINT_REDIRECTION
          {"cuptiUnsubscribe", reinterpret_cast<void*>(g_unsubscribe),
           reinterpret_cast<void*>(Unsubscribe)},
      {"cuptiFinalize", reinterpret_cast<void*>(g_finalize), reinterpret_cast<void*>(Finalize)}};
  for (int i = 0; i < kBeginnings; ++i) {
    g_functions[i] = redirections[i].from = dlsym(library, redirections[i].name);
  }
  // Subscribing tells better than a bound call whether there is a subscription now.
  const std::span<const Redirection> beginnings(redirections, kBeginnings);
  constexpr size_t kFirst = k_cuptiActivityRegisterCallbacks;
  size_t which = 0;
  const Called called =
      cupti.was_mapped ? CalledSoFar(beginnings.subspan(kFirst), &which) : Called::kNo;
  if (!RedirectCalls(redirections)) {
    // CUPTI returns a buffer to whoever registered last, be it ours.
    guest->handover.ForbidRecords();
    guest->features.Report(abi::Feature::kActivity, abi::FeatureState::kFailed, 0,
                           "/proc/self/mem cannot be written in this process, so that another user "
                           "of CUPTI would not be noticed: GPU times are not asked for, and "
                           "iterations are timed by their calls");
  }
  if (called == Called::kYes) return Notice(kHolders[kFirst + which], false);
  if (called == Called::kMentioned) return Notice(kMayUse, false);
  if (!cupti.was_mapped) return;
  char file[24], holder[64];
  const Held held = HeldByAnObject(beginnings, file, sizeof(file));
  if (held == Held::kYes) {
    snprintf(holder, sizeof(holder), "%s, which may use CUPTI itself", file);
    Notice(holder, false);
  } else if (held == Held::kUnknown || called == Called::kUnknown) {
    Notice(kTooLarge, false);
  }
}

}  // namespace seqpoint::inject
