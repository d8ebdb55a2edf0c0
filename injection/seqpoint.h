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
 * Every function may be called from any thread, at any time; marks return at once (about 50 ns).
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

/* Another profiler of this process (`holder`, such as "torch.profiler"; null: not told) is about to
 * start. CUPTI serves one tool at a time: call this first, and its trace is complete. What is being
 * measured ends, our records are taken out, CUPTI is free. Until seqpoint_come_back, iterations are
 * found by NVTX ranges and marks only. Waits for the GPU, and for what another thread of the
 * library is doing at most one second. 0: CUPTI is free of us (also where it never was ours); 1:
 * not yet, it will be in a moment (called in a stream capture in which something is measured, at
 * exit). Calls nest: each wants one seqpoint_come_back. */
SEQPOINT_API int seqpoint_stand_down(const char* holder);

/* The other profiler has stopped. 0: CUPTI is ours again, or somebody else still wants it; 1: it
 * cannot be had now and is asked for again every few seconds (torch.profiler keeps CUPTI's
 * callbacks after its first use; then GPU work of iterations is measured, but calls are not seen).
 * One call too many does nothing. */
SEQPOINT_API int seqpoint_come_back(void);

/* 1 while this library profiles the process, else 0 (before cuInit, in a forked child, disabled).
 */
SEQPOINT_API int seqpoint_active(void);

/* Version of the library, "major.minor.patch". The text lives as long as the process. */
SEQPOINT_API const char* seqpoint_version(void);

#ifdef __cplusplus
}
#endif

#endif /* SEQPOINT_H_ */
