// The layout of --help: names in one column, wrapped descriptions in the next.
// Threading: pure.
#ifndef CLIENT_TEXT_HELP_H_
#define CLIENT_TEXT_HELP_H_

#include <CLI/CLI.hpp>
#include <string>

namespace seqpoint::client {

class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter() { label("Positionals", "Arguments"); }
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override;
  std::string make_usage(const CLI::App* app, std::string name) const override;
  std::string make_option(const CLI::Option* option, bool is_positional) const override;
  std::string make_subcommand(const CLI::App* app) const override;
};

// The text below the options of a command: an explanation of its output.
inline constexpr const char* kJobsHelp = R"(
STATE      waiting: no process has come yet; learning: where an iteration begins is not known yet;
           marking: iterations are found, a few of them are measured; paused, released: by control;
           ended; failed: with another exit status than 0, or by a crash; interrupted: it was
           stopped (Ctrl-C), or its last process vanished without an exit status
LENGTHS    different sequence lengths so far
SEQPOINTS  those with all their measurements / all
TIME       of the whole run where its length is known, else so far
LEVEL      what the library listens to: learn, mark (boundaries, lengths, times), trace (all GPU
           work), counters, off)";
inline constexpr const char* kSeqPointsHelp = R"(
LENGTH         sequence length, or two
STANDS FOR     iterations of the whole run (so far, where its length is unknown)
SHARE          of the run's iterations
MEAN TIME      of an iteration of this length, by the model of all iterations
MEASURED       measurements taken / wanted
BY METRIC SET  the same for each metric set, and for kernel times (trace)

For a job that ran here these are the lengths that its measurements were planned for, as many as the
budget allows; for an imported log those that `seqpoint analyze` lists. `seqpoint playlist JOB
--points K` lists the lengths for K measurements.)";
inline constexpr const char* kProjectHelp = R"(
whole run, remaining   only where the length of the run is known
so far, until its end  what ran
INTERVAL               holds the truth with the given confidence; exact: nothing is estimated
+-                     how far the interval reaches from the value, as a share of it; the
                       farther end counts
Times include the cost of watching the program. They leave out the stops for measuring and the
disturbance by measurements.)";
inline constexpr const char* kPlaylistHelp = R"(
A CSV: a row has an iteration's length, the weight with which its time counts, how often to measure
it, and its time here with the standard deviation. The whole run takes the sum of weight x mean
time; `seqpoint project --playlist FILE --measured TIMES.csv` computes it, with an interval.)";
inline constexpr const char* kAnalyzeHelp = R"(
MEASURE     how often to measure an iteration of this length
ITERATIONS  how many iterations of the log it stands for: the weight of its mean time
SHARE       of the log's iterations
TIME        mean of ordinary iterations of this length
NOISE       standard deviation of one iteration about it
+-          half of an interval that holds the truth with the given confidence, as a share
Nothing is stored. --playlist FILE writes the same points for another machine. `seqpoint import LOG`
makes a job, for which `seqpoint playlist` writes the same points.)";
inline constexpr const char* kImportHelp = R"(
A file is recognised by its content. A trace may be packed with gzip; it needs CPU and GPU:
torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]).

  seqpoint import steps.csv --key tokens --time step_ms --group run,epoch
  seqpoint import rank0.json.gz rank1.json.gz --name resnet
  seqpoint import trace.json --marker 'batch of length (\d+)')";
inline constexpr const char* kReplayHelp = R"(
MEASURED  from the first GPU work of the iteration to that of the next one
REPLAYED  the same time in the replay: how well the trace is understood, and how far a what-if
          can be trusted
CRITICAL PATH  what the time is spent on: if any of it took longer, the end would be later
Of more than 20 iterations the ten with the largest error are shown, or --all.)";
inline constexpr const char* kWhatIfHelp = R"(
STANDS FOR  iterations of the run that a length represents
CHANGE      of the time; an interval holds the truth with the given confidence. It has the error of
            the replay (seqpoint replay JOB) as a share of the saving
TASKS       that a step changed, in all traces

  seqpoint whatif JOB --list
  seqpoint whatif JOB --apply amp,compute=4 --apply cuda-graphs
  seqpoint whatif --show amp > my.whatif; seqpoint whatif JOB --apply ./my.whatif,memory=1.5
  seqpoint whatif JOB --steps 'scale kernels where name ~ "gemm" by 1/2; remove copies')";
inline constexpr const char* kMetricsHelp = R"(
RANGE, PM  passes with each backend (`seqpoint run --counter-backend`). Each pass is measured on
           iterations of its own; -: the chip does not offer it
?          CUPTI's host library, which counts the passes of your own sets, is not installed)";
inline constexpr const char* kCountersHelp = R"(
WHOLE RUN, SO FAR  sum over the run where its length is known, else so far, or until its end
PER ITERATION      mean
MEASURED           number of iterations; derived: computed from other counters)";
inline constexpr const char* kKernelsHelp = R"(
OF KERNEL TIME  share of the time of all kernels together; copies and gaps are not in it
TIME, LAUNCHES  of the whole run where its length is known, else so far, or until its end)";
inline constexpr const char* kRooflineHelp = R"(
OF KERNEL TIME  share of the time of the measured kernels, which ran one after the other
FLOP/BYTE       floating point operations for each byte of device memory moved
BOUND BY        the nearer roof: memory, compute; latency: below 58 % of both
OF ROOF         share of the peak bandwidth, or of the peak rates of the formats used
NOTE            why there is no position
Needs a job that ran under `seqpoint run --roofline`.)";
inline constexpr const char* kRanksHelp = R"(
ITERATION  mean time, of the iterations whose collectives were timed
WORK       of it, outside of collectives
WAIT       of it, in collectives before the last rank came. Where collectives run beside other work,
           it is more than what waiting costs, but still least on the rank that the others wait for
LAST       share of the collectives in which this rank came last
VERDICT    even; slow: its own work takes longer than the other ranks' at equal lengths, by more
           than its noise; was slow; slow in turn: it and others, one after the other
Needs NCCL 2.27 or later (or gloo, which tells less), and the program under `seqpoint run`.)";
inline constexpr const char* kFleetHelp = R"(
GPU TIME         of the iterations so far, on all ranks
TO COME          of a run whose length is known
SLOW RANKS       of the GPU time, lost by waiting for ranks that are slower than they were, or than
                 others
UNEQUAL LENGTHS  of the GPU time, lost because ranks have batches of other lengths
WOULD SAVE       with --whatif, of the whole run, or of what is known of it
Intervals are of 95 %. "-": not known; below the table is why.

  seqpoint fleet --since 7d
  seqpoint fleet --since 7d --whatif amp)";
inline constexpr const char* kNodesHelp = R"(
NODE       host of a seqpointd that was started with --hub
SINCE      it is connected, or is not any more; empty: it was not since this hub was started
PROCESSES  of its jobs that run, or did when it was heard last
ID         of its store, the first digits
Without a hub a node measures by itself, and tells the hub later what it saw.)";
inline constexpr const char* kIterationsHelp = R"(
TIME      "-": unknown
LEVEL     what the library listened to: learn, mark, trace, counters
MEASURED  the configuration
NOTE      first of its length: pays for algorithm search and the like; distorted: the profiler
          changed its time, its length's mean counts instead; redone: repeated after a checkpoint,
          counted once; the name of another phase: no training iteration)";
inline constexpr const char* kSeqpointHelp = R"(
A JOB is its id, "name@run_id", or "name" (its latest run). The options above belong to every
command. `seqpoint help COMMAND` explains what a command prints.

Exit codes: 0 ok; 1 error; 2 wrong usage; 3 no daemon; 4 no such job; 5 no answer yet.
`run` ends as its command ended (127: not found, 126: cannot be run). `doctor` ends with 1 when
there is a problem. With --json an error is also an object on standard output.

Environment: SEQPOINT_DIR (folder of the daemon's sockets; default $XDG_RUNTIME_DIR/seqpoint, then
/run/seqpoint), SEQPOINT_DAEMON (path of seqpointd), SEQPOINT_LIBRARY (path of
libseqpoint_inject.so), SEQPOINT_CUPTI_LIB (path of libcupti), SEQPOINT_ADAPTER (folder of the
PyTorch adapter; 0: none). SEQPOINT_SERVER, SEQPOINT_CA, SEQPOINT_CERT, SEQPOINT_KEY and
SEQPOINT_TOKEN_FILE stand for the options of these names, for all commands but `run`; --socket goes
before them, and they go before SEQPOINT_DIR.)";

}  // namespace seqpoint::client

#endif  // CLIENT_TEXT_HELP_H_
