/* Optional marks for SeqPoint Profiler. A training program works with the profiler without any
 * change; whoever wants to tell it where an iteration begins and how long its sequences are calls
 * these. The functions live in libseqpoint_inject.so, which is present only while the program is
 * profiled, so declare the use weak (this header does) and test the address:
 *
 *   #include <seqpoint.h>
 *   ...
 *   if (seqpoint_iteration_begin) seqpoint_iteration_begin(batch_length);
 *
 * From Python: ctypes.CDLL(None).seqpoint_iteration_begin, under the same condition.
 *
 * Every function may be called from any thread, at any time, and returns at once (about 50 ns).
 * Before the first CUDA context exists, in a forked child, and with the profiler disabled, a mark
 * does nothing. */
#ifndef SEQPOINT_H_
#define SEQPOINT_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef SEQPOINT_API
#define SEQPOINT_API __attribute__((weak))
#endif

/* A training iteration begins here; `length` is the sequence length of its batch (the padded length
 * that the kernels see), in the unit that you would use yourself: steps, tokens, frames. */
SEQPOINT_API void seqpoint_iteration_begin(int64_t length);

/* The same for models with two lengths, such as source and target of a translation. */
SEQPOINT_API void seqpoint_iteration_begin2(int64_t length0, int64_t length1);

/* 1 while this library profiles the process, else 0 (before cuInit, in a forked child, disabled).
 */
SEQPOINT_API int seqpoint_active(void);

/* Version of the library, "major.minor.patch". The text lives as long as the process. */
SEQPOINT_API const char* seqpoint_version(void);

#ifdef __cplusplus
}
#endif

#endif /* SEQPOINT_H_ */
