/* LD_PRELOAD for a program under test: its wall clock is set once while it runs.
 *   SEQPOINT_TEST_SET_CLOCK=AFTER,BY   seconds from its start, and by how many; BY may be negative
 * The monotonic clock stays as it is, as with clock_settime(2). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

static int (*real_gettime)(clockid_t, struct timespec*);
static time_t set_at;
static long set_by;

__attribute__((constructor)) static void Begin(void) {
  const char* text = getenv("SEQPOINT_TEST_SET_CLOCK");
  const char* comma = text == NULL ? NULL : strchr(text, ',');
  struct timespec now;
  real_gettime = (int (*)(clockid_t, struct timespec*))dlsym(RTLD_NEXT, "clock_gettime");
  if (comma == NULL) return;
  real_gettime(CLOCK_MONOTONIC, &now);
  set_at = now.tv_sec + atol(text);
  set_by = atol(comma + 1);
}

int clock_gettime(clockid_t clock, struct timespec* now) {
  struct timespec monotonic;
  if (real_gettime == NULL) Begin(); /* another library's constructor came first */
  const int result = real_gettime(clock, now);
  if (result != 0 || set_by == 0) return result;
  if (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE) return result;
  real_gettime(CLOCK_MONOTONIC, &monotonic);
  if (monotonic.tv_sec >= set_at) now->tv_sec += set_by;
  return result;
}

int gettimeofday(struct timeval* now, void* zone) {
  struct timespec precise;
  (void)zone;
  const int result = clock_gettime(CLOCK_REALTIME, &precise);
  now->tv_sec = precise.tv_sec;
  now->tv_usec = precise.tv_nsec / 1000;
  return result;
}

time_t time(time_t* at) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (at != NULL) *at = now.tv_sec;
  return now.tv_sec;
}
