// The records that travel through the ring. Data records are 64 bytes each and go into chunks;
// event records have a payload of any size up to a few KiB and go through the event lane. Times are
// nanoseconds of the process' CUPTI clock. Layout: docs/formats/shared-ring.md.
#ifndef SEQPOINT_INJECTION_ABI_RECORDS_H_
#define SEQPOINT_INJECTION_ABI_RECORDS_H_

#include <stdint.h>

namespace seqpoint::abi {

// What the application asked of CUDA. Values are stored and sent: never renumber.
enum class Op : uint8_t {
  kNone = 0,
  kLaunch = 1,  // kernel launch, driver level
  kCopyH2D = 2,
  kCopyD2H = 3,
  kCopyD2D = 4,
  kCopyOther = 5,  // peer, host to host, or direction unknown (unified addressing)
  kMemset = 6,
  kGraphLaunch = 7,
  kStreamSync = 8,    // host blocks
  kEventSync = 9,     // host blocks
  kContextSync = 10,  // host blocks
  kEventRecord = 11,
  kStreamWait = 12,
  kNvtxPush = 13,  // name = range name
  kNvtxPop = 14,
  kNvtxMark = 15,
  kMark = 16,  // seqpoint_iteration_begin(length): bytes = length
  // What a framework adapter tells (seqpoint_forward, seqpoint_step).
  kForward = 17,  // the root module is called; name kForwardName or kEvaluationName
  kFeature = 18,  // a number known at the forward before it; name = what it is, bytes = the number
  kStep = 19,     // the optimiser step of an iteration is over
  kCount
};
// Of a set of operations.
constexpr uint32_t OpBit(Op op) { return 1u << static_cast<uint32_t>(op); }

enum class DataType : uint16_t {
  kNone = 0,
  kCall = 1,
  kKernel = 2,
  kCopy = 3,
  kMemset = 4,
  kSync = 5,
  kApi = 6,
  kGraph = 7,
  kCount
};

// Level *learn*: one call, in call order over all threads.
struct CallRecord {
  uint16_t type;      // DataType::kCall
  uint8_t op;         // Op
  uint8_t flags;      // CallFlags
  uint32_t name_id;   // kernel, NVTX or graph name; 0: none. See NameEvent
  uint64_t sequence;  // consecutive over all tried calls of the process: a gap is a known loss
  uint64_t api_ns;    // call entered
  uint32_t grid_x;
  uint16_t grid_y;
  uint16_t grid_z;
  uint16_t block_x, block_y, block_z;
  uint16_t context;  // small dense number of the CUDA context
  uint64_t stream;   // handle value, opaque
  uint64_t bytes;    // copy or memset size; NVTX or mark: payload; sync: nanoseconds blocked
  uint32_t thread_id;
  uint32_t correlation_id;  // of the driver callback; joins with activity records
};
enum CallFlags : uint8_t {
  kCallHasPayload = 1,  // `bytes` of an NVTX call is valid
  kCallHostTime = 2,    // no GPU works behind the program's back: api_ns is the time of the work
  kCallAfterHole = 4,   // before it, nothing was watched for a while
  kCallNoEnd = 8,       // a wait behind which the GPU's work need not be done
};
inline constexpr char kForwardName[] = "forward";        // of a training batch
inline constexpr char kEvaluationName[] = "evaluation";  // without gradients

// Level *trace* (and the clock event at *mark*): one unit of GPU work, from a CUPTI activity
// record.
struct KernelRecord {
  uint16_t type;  // DataType::kKernel
  uint16_t device;
  uint32_t name_id;
  uint64_t start_ns, end_ns;
  uint32_t correlation_id;
  uint32_t stream;  // CUPTI stream id
  uint32_t grid_x;
  uint16_t grid_y, grid_z;
  uint16_t block_x, block_y, block_z;
  uint16_t registers_per_thread;
  uint32_t context;
  uint32_t graph_id;  // 0: not from a graph
  uint32_t static_shared_bytes;
  uint32_t dynamic_shared_bytes;
};
struct CopyRecord {  // also memset: `kind` is 0 there
  uint16_t type;     // DataType::kCopy or kMemset
  uint16_t device;
  uint8_t kind;  // CUpti_ActivityMemcpyKind
  uint8_t reserved[3];
  uint64_t start_ns, end_ns;
  uint64_t bytes;
  uint32_t correlation_id;
  uint32_t stream;
  uint32_t context;
  uint32_t graph_id;
  uint64_t reserved2[2];
};
struct ApiRecord {  // RUNTIME/DRIVER kinds: the CPU side of a call
  uint16_t type;    // DataType::kApi
  uint16_t reserved;
  uint32_t cbid;
  uint64_t start_ns, end_ns;
  uint32_t correlation_id;
  uint32_t thread_id;
  uint8_t op;      // Op, of a watched driver call; else 0
  uint8_t blocks;  // 1: by its name it returns when the GPU is done
  uint8_t reserved2[30];
};
struct SyncRecord {
  uint16_t type;  // DataType::kSync
  uint16_t kind;  // CUpti_ActivitySynchronizationType
  uint32_t context;
  uint64_t start_ns, end_ns;
  uint32_t correlation_id;
  uint32_t stream;
  uint32_t reserved[8];
};
struct GraphRecord {  // GRAPH_TRACE: one graph launch
  uint16_t type;      // DataType::kGraph
  uint16_t device;
  uint32_t graph_id;
  uint64_t start_ns, end_ns;
  uint32_t correlation_id;
  uint32_t stream;
  uint32_t context;
  uint32_t reserved[7];
};

union DataRecord {
  uint16_t type;
  CallRecord call;
  KernelRecord kernel;
  CopyRecord copy;
  ApiRecord api;
  SyncRecord sync;
  GraphRecord graph;
  uint8_t bytes[64];
};
static_assert(sizeof(CallRecord) == 64 && sizeof(KernelRecord) == 64 && sizeof(CopyRecord) == 64);
static_assert(sizeof(ApiRecord) == 64 && sizeof(SyncRecord) == 64 && sizeof(GraphRecord) == 64);
static_assert(sizeof(DataRecord) == 64);

enum class EventType : uint16_t {
  kNone = 0,
  kName = 1,             // NameEvent
  kBoundary = 2,         // BoundaryEvent
  kDecision = 3,         // DecisionEvent
  kStep = 4,             // StepEvent
  kClock = 5,            // ClockEvent
  kCounters = 6,         // CountersEvent
  kFeature = 7,          // FeatureEvent
  kRule = 8,             // RuleEvent
  kWindow = 9,           // WindowEvent
  kClockStep = 10,       // ClockStepEvent
  kSync = 11,            // SyncEvent
  kConfig = 12,          // ConfigEvent
  kDevice = 13,          // DeviceEvent
  kMicroBatch = 14,      // MicroBatchEvent
  kStandDown = 15,       // StandDownEvent
  kCost = 16,            // CostEvent
  kKernelCounters = 17,  // KernelCountersEvent
  kSampled = 18,         // SampledEvent
  kRank = 20,            // RankEvent
  kCount
};

// A name gets a dense id, from 1, the first time the process meets it; sent before its first use.
struct NameEvent {
  uint32_t name_id;
  uint32_t length;     // bytes of text that follow; longer names are cut at 4,096
  uint64_t name_hash;  // FNV-1a 64 of the whole name: the same in every process
  // char text[length];
};

// A candidate for the begin of iteration `iteration` (0-based, counted by the matcher). Several may
// carry the same number (an evaluation batch looks like a training batch until the step): the last
// one before StepEvent{iteration} is the begin; the first one after it ends the iteration. A rule
// without a step pattern confirms at once (kConfirmed).
struct BoundaryEvent {
  uint64_t iteration;
  uint64_t api_ns;
  uint64_t call_sequence;  // number of watched calls so far; at *learn*: CallRecord::sequence
  uint32_t correlation_id;
  uint32_t rule_generation;
  uint8_t level;  // Level, after the boundary
  uint8_t flags;  // BoundaryFlags
  uint16_t reserved;
  uint32_t stopped_ns;  // how long this library held the application since the last boundary
};
enum BoundaryFlags : uint8_t {
  kConfirmed = 1,
  kDistorted = 2,  // a window was switched at or inside the iteration before this boundary
  kHostTime = 4,   // kCallHostTime: the difference of two api_ns is the iteration's time
};

// The lengths of an iteration are known. Repeated (last one counts) while micro-batches add up.
struct DecisionEvent {
  uint64_t iteration;
  uint64_t api_ns;
  int64_t length[2];
  uint32_t valid;      // bit i: length[i] was read
  uint16_t config_id;  // measurement taken for this iteration; 0: none
  uint16_t reserved;
};

// The iteration's optimiser step was seen: it is a training iteration, its lengths are final.
struct StepEvent {
  uint64_t iteration;
  uint64_t api_ns;
  int64_t length[2];
  uint32_t valid;
  uint32_t micro_batches;  // confirmed candidates in this iteration
};

// The activity record with this correlation id carries the GPU start stamp of the iteration.
struct ClockEvent {
  uint64_t iteration;
  uint64_t api_ns;
  uint32_t correlation_id;
  uint32_t reserved;
};

// Counters of one iteration, one one-pass configuration.
struct CountersEvent {
  uint64_t iteration;
  int64_t length[2];
  uint16_t config_id;
  uint16_t count;       // values that follow, in the order of the configuration's metric list
  uint32_t status;      // 0: complete; else CUptiResult or CountersStatus
  uint64_t stopped_ns;  // how long collecting held the application; its WindowEvent has it, too
  // double value[count];
};
enum CountersStatus : uint32_t {
  kCountersOk = 0,
  kCountersDiscarded = 10001,  // the length was not the wanted one
  kCountersRangeDropped = 10002,
  kCountersAborted = 10003,  // evaluation, exit or a new plan in the middle
  kCountersNotTold = 10004,  // of kernels: which range is which launch is not certain
};

// How much of an iteration PM sampling saw; its CountersEvent comes right behind.
struct SampledEvent {
  uint64_t iteration;
  uint64_t duration_ns;  // by the GPU's clock
  // In samples. What is missing lies before sampling began, or was lost; for lost samples the
  // values are scaled up.
  uint64_t covered_ns;
  // Of the samples that lie across an end of the iteration, which count by their share of time.
  uint64_t edge_ns;
};

// Of a configuration of kernels (Ranges::kKernels): the sums over the launches of one kernel in the
// iteration. Those of an iteration come one after the other, and behind them its CountersEvent,
// with the sums over all of them, and status 0: without it, or when `kernels` events did not come,
// they are worth nothing.
struct KernelCountersEvent {
  uint64_t iteration;
  int64_t length[2];
  uint16_t config_id;
  uint16_t count;     // values that follow, in the order of the configuration's metric list
  uint32_t name_id;   // 0: the table of names was full
  uint32_t launches;  // of this kernel that are in the sums
  uint32_t kernels;   // names in the iteration: so many of these events
  uint32_t missing;   // launches of the iteration, of any name, that found no room
  uint32_t reserved;
  // double value[count];
};

// An optional feature and what became of it, with a sentence a person can act on.
enum class Feature : uint16_t {
  kNone = 0,
  kCupti = 1,
  kCallbacks = 2,
  kActivity = 3,
  kCounters = 4,
  kNvtx = 5,
  kRing = 6,
  kMatcher = 7,
  kFork = 8,
  kExit = 9,
  kFramework = 10,
  kRoofline = 11,    // counters of single kernels
  kBatches = 12,     // batches that an iteration takes; `code`: BatchesCode
  kEvaluation = 13,  // failed: some of what was counted as iterations may be evaluation
  kOperators = 14,   // recordings of the framework's operators
  kCount
};
enum class FeatureState : uint16_t {
  kNone = 0,
  kPending = 1,
  kReady = 2,
  kFailed = 3,
  kIgnored = 4
};
// Of Feature::kBatches. Without such an event each forward pass takes a batch of its own.
enum BatchesCode : uint32_t {
  kBatchEach = 0,     // forward pass
  kBatchOne = 1,      // an iteration takes one, whatever its forward passes
  kBatchUnknown = 2,  // the sentence says why
};
struct FeatureEvent {
  uint16_t feature;
  uint16_t state;
  uint32_t code;    // CUptiResult, errno or 0
  uint32_t length;  // bytes of text that follow
  uint32_t reserved;
  // char sentence[length];
};

// The library applied a rule or level of the control block.
struct RuleEvent {
  uint64_t api_ns;
  uint64_t call_sequence;  // CallRecord::sequence at which learning ended or began
  uint64_t next_iteration;
  uint32_t rule_generation;
  uint8_t level;
  uint8_t reserved[3];
};

// Something held the application: a switch of activity kinds, a trace window, a counter range.
// [begin, end) in API time. Every stop is in exactly one of these.
struct WindowEvent {
  uint64_t begin_ns, end_ns;
  uint64_t iteration;
  uint64_t stopped_ns;
  uint8_t level;  // level of the window
  uint8_t flags;  // WindowFlags
  uint8_t reserved[6];
};
enum WindowFlags : uint8_t {
  kWindowGivenUp = 1,  // a measurement that came to nothing: what it recorded is not an iteration
};

// The system's clock (CLOCK_REALTIME) was set by `by_ns`: between the watched calls
// `first_call` and `last_call` (BoundaryEvent::call_sequence). Times on either side of it cannot be
// compared.
struct ClockStepEvent {
  uint64_t real_ns, monotonic_ns;  // when it was noticed, by the clock as it is now
  int64_t by_ns;                   // negative: it was set back
  uint64_t first_call, last_call;
};

struct SyncEvent {     // a call that waited for work of the GPU returned
  uint64_t iteration;  // the open one
  uint64_t begin_ns, end_ns;
  uint8_t op;
  uint8_t reserved[7];
};

// What became of a configuration of the control block.
struct ConfigEvent {
  uint16_t config_id;
  uint16_t passes;  // as the host library counts; only 1 is accepted
  uint32_t status;  // 0: ready; else CUptiResult
  uint32_t length;  // bytes of the sentence that follows
  uint32_t reserved;
};

// A GPU on which the process has a context. Sent again when more is known; the last one counts.
struct DeviceEvent {
  uint16_t device;  // the driver's ordinal
  uint16_t compute_major, compute_minor;
  uint16_t reserved;
  uint32_t multiprocessors;
  uint32_t length;  // bytes of the name that follows
  uint64_t memory_bytes;
  char chip[16];  // as the counters' library calls it ("GH100"), padded with 0; empty: not known
  // char name[length];
};

// A micro-batch is over. Of rules whose lengths are sums over micro-batches: what this one added,
// each before the step that ends the iteration.
struct MicroBatchEvent {
  uint64_t iteration;
  int64_t length[2];
  uint32_t valid;  // bit i: length[i] was read
  uint32_t index;  // in the iteration, from 0
};

// What watching the program's calls has taken of its time so far: about once a second while it
// grows. An estimate: `callback_ns`, the way through CUPTI in and out, is measured once in the
// process, and what the library itself does with a call is known from its benchmark.
struct CostEvent {
  uint64_t calls[4];  // that were watched, by Level: learn, mark, trace; [0] is not used
  uint64_t spent_ns[4];
  uint32_t callback_ns;  // 0: not measured yet
  uint32_t reserved;
};

// The rank of the process, learned after its Hello (torch.distributed).
struct RankEvent {
  int32_t rank;
  int32_t world_size;
};

// The program asked the library to leave CUPTI to another profiler (end_ns 0), or CUPTI was taken
// again (the same begin_ns). In between the program's CUDA calls are not seen.
struct StandDownEvent {
  uint64_t begin_ns, end_ns;
  uint64_t iteration;  // the open one
  uint32_t length;     // bytes of the other profiler's name that follow
  uint32_t reserved;
  // char holder[length];
};

}  // namespace seqpoint::abi

#endif  // SEQPOINT_INJECTION_ABI_RECORDS_H_
