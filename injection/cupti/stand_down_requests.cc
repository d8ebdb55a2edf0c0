#include "injection/cupti/stand_down_requests.h"

#include <stdio.h>

#include <atomic>

#include "injection/base/system.h"

namespace seqpoint::inject {
namespace {

std::atomic<int> g_asked{0};         // stand-downs that nobody took back
std::atomic<bool> g_noticed{false};  // there is one that nobody asked for
SpinLock g_holder_lock;
char g_holder[64];

void SetHolder(const char* holder) {
  if (StandsDown()) return;
  LockGuard guard(&g_holder_lock);
  snprintf(g_holder, sizeof(g_holder), "%s", holder != nullptr ? holder : "another profiler");
}

}  // namespace

void AskToStandDown(const char* holder) {
  SetHolder(holder);
  g_asked.fetch_add(1);
}

bool TakeBackStandDown() {
  int asked = g_asked.load();
  while (asked > 0 && !g_asked.compare_exchange_weak(asked, asked - 1)) {
  }
  return asked > 0 ? asked == 1 && !g_noticed.load() : g_noticed.exchange(false);
}

bool NoticeTool(const char* holder) {
  SetHolder(holder);
  return !g_noticed.exchange(true);
}

bool ForgetNoticedTool() { return g_noticed.exchange(false); }
bool StandsDownAsAsked() { return g_asked.load() > 0; }
bool StandsDown() { return StandsDownAsAsked() || g_noticed.load(); }

void CopyHolder(char* text, size_t bytes) {
  LockGuard guard(&g_holder_lock);
  snprintf(text, bytes, "%s", g_holder);
}

void ForgetStandDownInChild() {
  g_asked.store(0);
  g_noticed.store(false);
  g_holder_lock.Unlock();
}

}  // namespace seqpoint::inject
