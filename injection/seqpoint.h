/* Optional marks for SeqPoint Profiler. A training program works with the profiler without any
 * change; whoever wants to tell it where an iteration begins and how long its sequences are calls
 * these. The functions live in libseqpoint_inject.so, which is present only while the program is
 * profiled, so declare the use weak (this header does) and test the address:
 *
 *   #include <seqpoint.h>
 *   ...
 *   if (seqpoint_iteration_begin) seqpoint_iteration_begin(batch_length);
 *
 * From Python, in a program with or without a GPU:
 *
 *   import ctypes; seqpoint = ctypes.CDLL(None)
 *   ...
 *   if hasattr(seqpoint, "seqpoint_iteration_begin"):
 *       seqpoint.seqpoint_attach(0)
 *       seqpoint.seqpoint_iteration_begin(ctypes.c_int64(int(batch_length)))
 *
 * Every function may be called from any thread, at any time; marks return at once (about 50 ns).
 * In a forked child, with the profiler disabled, and before the first CUDA context exists or
 * seqpoint_attach was called, a mark does nothing. */
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

/* For framework adapters: what a training framework knows of its own loop. (The PyTorch adapter
 * that `seqpoint run` brings along calls these; a program that calls seqpoint_iteration_begin needs
 * none of them, and goes first where both are there.) */

/* Profiles this process from here on although the CUDA driver did not ask for it. `uses_gpu` 0: the
 * host does the work itself, so that wall time is the time of an iteration (also when CUDA begins
 * later: then GPU work is seen, too). Where the process is
 * profiled already, nothing changes. Answers seqpoint_active(). */
SEQPOINT_API int seqpoint_attach(int uses_gpu);

/* The root module of the model is about to work on a batch: with gradients (`training` not 0), or
 * an evaluation batch. `names[i]` says what `values[i]` is ("input_ids.shape[1]"); at most 32, the
 * same names in the same order each time; the texts must outlive the call. `at_ns`: when it was, on
 * CLOCK_REALTIME; 0: now. */
SEQPOINT_API void seqpoint_forward(int training, uint32_t count, const char* const* names,
                                   const int64_t* values, uint64_t at_ns);

/* More numbers of the batch of the last forward, of a module called outside of the root. */
SEQPOINT_API void seqpoint_features(uint32_t count, const char* const* names, const int64_t* values,
                                    uint64_t at_ns);

/* The optimiser step that ends an iteration is over; the iteration itself lasts to the next
 * forward. Forwards between two steps are micro-batches of one iteration. */
SEQPOINT_API void seqpoint_step(uint64_t at_ns);

/* Tells whoever asks about the job what the adapter found, in one message; `works`: 0 when it gave
 * up and iterations are found without it. */
SEQPOINT_API void seqpoint_describe(int works, const char* message);

/* How many batches of the program's data an iteration takes: 0: each of its training forwards takes
 * one, as is assumed; 1: one, however many forwards it has; -1: it is not known, and lengths that
 * the user gives then say nothing of when the run will end. Why, in one message. */
SEQPOINT_API void seqpoint_batches(int per_iteration, const char* message);

/* Shall the operators of the iteration that has just begun be recorded (`seqpoint run
 * --operators`)? Then its length is that of a SeqPoint. Ask after seqpoint_forward. Answers how
 * many lengths it has, 0 to 2, and writes them; -1: no. */
SEQPOINT_API int seqpoint_wants_operators(int64_t length[2]);

/* Whoever slows the open iteration down, as a recording does, says so, in the same thread: its time
 * is then used for nothing. */
SEQPOINT_API void seqpoint_distort(void);

/* Tells whoever asks about the job which operators were recorded, in one message; `works`: 0 when
 * none are. */
SEQPOINT_API void seqpoint_operators(int works, const char* message);

/* Collectives that the host does itself (gloo), by groups of processes. All functions return at
 * once. */

/* A group begins: its name, a number that is the same on all of its ranks and no other group's,
 * this process' rank in it, and how many ranks it has. Answers what the calls below take. */
SEQPOINT_API uint64_t seqpoint_group(const char* name, uint64_t hash, int rank, int ranks);
SEQPOINT_API void seqpoint_group_end(uint64_t group);

/* The host enters a collective, send or receive. `function` ("AllReduce") and `datatype` are texts
 * that outlive the process' last call, the same text at the same address; `peer`: of a send or
 * receive, else -1. `sequence`: the number of the collective in the group, equal on all ranks, also
 * where nothing is recorded meanwhile. Answers what seqpoint_collective_end takes; 0: it is not
 * recorded. */
SEQPOINT_API uint64_t seqpoint_collective_begin(uint64_t group, const char* function,
                                                const char* datatype, uint64_t elements, int peer,
                                                uint64_t sequence);
/* The host has what it waited for, and goes on. */
SEQPOINT_API void seqpoint_collective_end(uint64_t collective);

/* Tells whoever asks about the job which collectives are recorded, in one message; `works`: 0 when
 * none are. */
SEQPOINT_API void seqpoint_collectives(int works, const char* message);

/* The process' rank among so many, where the environment (RANK, WORLD_SIZE) does not tell. Before
 * the first iteration; best before seqpoint_attach. */
SEQPOINT_API void seqpoint_rank(int rank, int world_size);

/* Another profiler of this process (`holder`, such as "torch.profiler"; null: unknown) is about to
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
 * Nothing is measured in the first second, as a stream capture may have begun unseen.
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
