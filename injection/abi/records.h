// The records that travel through the ring. A data record has 64 bytes and goes into a chunk. An
// event record has a payload of up to a few KiB and goes through the event lane. Times are
// nanoseconds of the process' CUPTI clock. Layout: docs/formats/shared-ring.md.
#ifndef SEQPOINT_INJECTION_ABI_RECORDS_H_
#define SEQPOINT_INJECTION_ABI_RECORDS_H_

#include <stdint.h>

namespace seqpoint::abi {

// An operation that the application asked CUDA for. Values are stored and sent: never renumber.
enum class Op : uint8_t {
  kNone = 0,
  kLaunch = 1,  // kernel launch, driver level
  kCopyH2D = 2,
  kCopyD2H = 3,
  kCopyD2D = 4,
  kCopyOther = 5,  // peer, host to host, or direction unknown (unified addressing)
  kMemset = 6,
  kGraphLaunch = 7,
  kStreamSync = 8,    // the host blocks
  kEventSync = 9,     // the host blocks
  kContextSync = 10,  // the host blocks
  kEventRecord = 11,
  kStreamWait = 12,
  kNvtxPush = 13,  // name = range name
  kNvtxPop = 14,
  kNvtxMark = 15,
  kMark = 16,  // seqpoint_iteration_begin(length): bytes = length
  // A framework adapter reports these (seqpoint_forward, seqpoint_step).
  kForward = 17,  // the root module is called; name kForwardName or kEvaluationName
  kFeature = 18,  // a number that was known at the forward before it; name = its name, bytes = its
                  // value
  kStep = 19,     // the optimiser step of an iteration is over
  kCount
};
// The operation in a set of operations.
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
  kArrivals = 8,    // ArrivalsRecord
  kCollective = 9,  // CollectiveRecord
  kCount
};

// One call, at level *learn*. The calls of all threads have one order.
struct CallRecord {
  uint16_t type;      // DataType::kCall
  uint8_t op;         // Op
  uint8_t flags;      // CallFlags
  uint32_t name_id;   // kernel, NVTX or graph name; 0: none. See NameEvent
  uint64_t sequence;  // consecutive over all tried calls of the process: a gap is a known loss
  uint64_t api_ns;    // when the call was entered
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
  kCallHostTime = 2,    // there is no GPU: api_ns is the time of the work
  kCallAfterHole = 4,   // the first one after a time in which nothing was watched
  kCallNoEnd = 8,       // a wait that may return before the GPU's work is done
};
inline constexpr char kForwardName[] = "forward";        // a training batch
inline constexpr char kEvaluationName[] = "evaluation";  // without gradients

// One unit of the GPU's work at level *trace*, from a CUPTI activity record. At *mark* only the
// clock event has one.
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
struct CopyRecord {  // also for memset, where `kind` is 0
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
struct ApiRecord {  // RUNTIME and DRIVER kinds: a call, seen from the CPU
  uint16_t type;    // DataType::kApi
  uint16_t reserved;
  uint32_t cbid;
  uint64_t start_ns, end_ns;
  uint32_t correlation_id;
  uint32_t thread_id;
  uint8_t op;      // Op of a watched driver call; else 0
  uint8_t blocks;  // 1: by its name, it returns when the GPU is done
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

// Up to four operations on one communicator in one iteration: when the host asked for each.
// Records of a communicator may come in another order than its operations.
struct ArrivalsRecord {
  uint16_t type;          // DataType::kArrivals
  uint16_t communicator;  // CommunicatorEvent::communicator
  uint8_t count;          // operations, 1 to kArrivalsPerRecord
  uint8_t timed;          // of these, those whose CollectiveRecord follows
  uint8_t reserved[2];
  uint64_t base_ns;      // of the first one
  uint64_t iteration;    // the open one
  uint32_t delay_ns[4];  // after base_ns; never shrinks
  uint32_t
      sequence[4];   // of a collective of NCCL: its number, per function of the communicator; of
                     // one of the host's: its number in the group;
                     // for a send or receive: its number among those of the communicator
  uint16_t kind[4];  // CollectiveKindEvent::kind; 0: the table was full
};
inline constexpr uint32_t kArrivalsPerRecord = 4;
// The times of one operation: of NCCL, where kernel channels told them, on the GPU and by the GPU's
// global timer; of the host's own collectives, on the host.
struct CollectiveRecord {
  uint16_t type;  // DataType::kCollective
  uint16_t communicator;
  uint16_t kind;
  uint16_t channels;      // 0: the host's
  uint64_t iteration;     // when the host asked for it
  uint64_t host_ns;       // its arrival
  uint64_t gpu_start_ns;  // of the channel that started first; the host's: host_ns
  uint64_t gpu_end_ns;    // of the channel that ended last; the host's: when the host went on
  uint32_t sequence;      // as in its arrival
  uint32_t reserved[5];
};

union DataRecord {
  uint16_t type;
  CallRecord call;
  KernelRecord kernel;
  CopyRecord copy;
  ApiRecord api;
  SyncRecord sync;
  GraphRecord graph;
  ArrivalsRecord arrivals;
  CollectiveRecord collective;
  uint8_t bytes[64];
};
static_assert(sizeof(CallRecord) == 64 && sizeof(KernelRecord) == 64 && sizeof(CopyRecord) == 64);
static_assert(sizeof(ApiRecord) == 64 && sizeof(SyncRecord) == 64 && sizeof(GraphRecord) == 64);
static_assert(sizeof(ArrivalsRecord) == 64 && sizeof(CollectiveRecord) == 64);
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
  kCommunicator = 21,    // CommunicatorEvent
  kCollectiveKind = 22,  // CollectiveKindEvent
  kCount
};

// A name gets a dense id, from 1, when the process first meets it. The event comes before the first
// record with this id.
struct NameEvent {
  uint32_t name_id;
  uint32_t length;     // bytes of text that follow; a longer name is cut at 4,096
  uint64_t name_hash;  // FNV-1a 64 of the whole name: the same in every process
  // char text[length];
};

// A candidate for the start of iteration `iteration`, which the matcher counts from 0. Several may
// have the same number, because an evaluation batch looks like a training batch until the step. The
// last one before StepEvent{iteration} is the start. The first one after it ends the iteration. A
// rule without a step pattern confirms at once (kConfirmed).
struct BoundaryEvent {
  uint64_t iteration;
  uint64_t api_ns;
  uint64_t call_sequence;  // watched calls so far; at *learn*: CallRecord::sequence
  uint32_t correlation_id;
  uint32_t rule_generation;
  uint8_t level;  // Level, after the boundary
  uint8_t flags;  // BoundaryFlags
  uint16_t reserved;
  uint32_t stopped_ns;  // how long the library held the application since the last boundary
};
enum BoundaryFlags : uint8_t {
  kConfirmed = 1,
  kDistorted = 2,  // a window was switched in the iteration before this boundary, or at its start
  kHostTime = 4,   // kCallHostTime: the difference of two api_ns is the iteration's time
};

// The lengths of an iteration are known. While micro-batches add to them the event comes again, and
// the last one counts.
struct DecisionEvent {
  uint64_t iteration;
  uint64_t api_ns;
  int64_t length[2];
  uint32_t valid;      // bit i: length[i] was read
  uint16_t config_id;  // the measurement of this iteration; 0: none
  uint16_t reserved;
};

// The iteration's optimiser step was seen: it is a training iteration, and its lengths are final.
struct StepEvent {
  uint64_t iteration;
  uint64_t api_ns;
  int64_t length[2];
  uint32_t valid;
  uint32_t micro_batches;  // confirmed candidates in this iteration
};

// The activity record with this correlation id has the iteration's start on the GPU.
struct ClockEvent {
  uint64_t iteration;
  uint64_t api_ns;
  uint32_t correlation_id;
  uint32_t reserved;
};

// Counters of one iteration, by one configuration of one pass.
struct CountersEvent {
  uint64_t iteration;
  int64_t length[2];
  uint16_t config_id;
  uint16_t count;       // values that follow, in the order of the configuration's metric list
  uint32_t status;      // 0: complete; else CUptiResult or CountersStatus
  uint64_t stopped_ns;  // how long the measurement held the application; as in its WindowEvent
  // double value[count];
};
enum CountersStatus : uint32_t {
  kCountersOk = 0,
  kCountersDiscarded = 10001,  // the plan does not want the length
  kCountersRangeDropped = 10002,
  kCountersAborted = 10003,    // evaluation, exit or a new plan came in the middle
  kCountersAmbiguous = 10004,  // kernels: it is not certain which range is which launch
};

// How much of an iteration PM sampling saw. The iteration's CountersEvent follows.
struct SampledEvent {
  uint64_t iteration;
  uint64_t duration_ns;  // by the GPU's clock
  // The time of all samples. The rest lies before sampling began, or its samples were lost. The
  // values are scaled up for lost samples.
  uint64_t covered_ns;
  // The time of the samples that lie across an end of the iteration. They count by their share of
  // time.
  uint64_t edge_ns;
};

// The sums over the launches of one kernel in an iteration, by a configuration of kernels
// (Ranges::kKernels). The events of an iteration follow each other. Its CountersEvent comes last,
// with status 0 and the sums over all kernels. Without it, or with fewer than `kernels` events, the
// values are worthless.
struct KernelCountersEvent {
  uint64_t iteration;
  int64_t length[2];
  uint16_t config_id;
  uint16_t count;     // values that follow, in the order of the configuration's metric list
  uint32_t name_id;   // 0: the table of names was full
  uint32_t launches;  // of this kernel, in the sums
  uint32_t kernels;   // different kernels in the iteration, each with its event
  uint32_t missing;   // launches of any kernel in the iteration that found no room
  uint32_t reserved;
  // double value[count];
};

// An optional feature.
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
  kRoofline = 11,     // counters of single kernels
  kBatches = 12,      // how many batches an iteration takes; `code`: BatchesCode
  kEvaluation = 13,   // failed: some of what was counted as iterations may be evaluation
  kOperators = 14,    // recordings of the framework's operators
  kNccl = 15,         // NCCL's profiler plugin; `code` of kReady: version of its interface
  kCollectives = 16,  // collectives that the host does, as the framework's adapter tells them
  kCount
};
enum class FeatureState : uint16_t {
  kNone = 0,
  kPending = 1,
  kReady = 2,
  kFailed = 3,
  kIgnored = 4
};
// The code of Feature::kBatches. Without such an event each forward pass takes a batch of its own.
enum BatchesCode : uint32_t {
  kBatchEach = 0,     // each forward pass takes one
  kBatchOne = 1,      // an iteration takes one, with any number of forward passes
  kBatchUnknown = 2,  // the message says why
};
// The outcome of an optional feature, with a message that a person can act on.
struct FeatureEvent {
  uint16_t feature;
  uint16_t state;
  uint32_t code;    // CUptiResult, errno or 0
  uint32_t length;  // bytes of text that follow
  uint32_t reserved;
  // char message[length];
};

// The library applied a rule or level of the control block.
struct RuleEvent {
  uint64_t api_ns;
  uint64_t call_sequence;  // CallRecord::sequence at which learning ended or started
  uint64_t next_iteration;
  uint32_t rule_generation;
  uint8_t level;
  uint8_t reserved[3];
};

// Something held the application: a switch of activity kinds, a trace window, a counter range.
// Times are API times, and end_ns is exclusive. Every stop is in exactly one of these events.
struct WindowEvent {
  uint64_t begin_ns, end_ns;
  uint64_t iteration;
  uint64_t stopped_ns;
  uint8_t level;  // level of the window
  uint8_t flags;  // WindowFlags
  uint8_t reserved[6];
};
enum WindowFlags : uint8_t {
  kWindowGivenUp = 1,  // the measurement failed: its records are not those of an iteration
};

// The system's clock (CLOCK_REALTIME) was set by `by_ns` between the watched calls `first_call` and
// `last_call` (BoundaryEvent::call_sequence). Times before it cannot be compared with times after
// it.
struct ClockStepEvent {
  uint64_t real_ns, monotonic_ns;  // when it was noticed, by the clocks after the change
  int64_t by_ns;                   // negative: it was set back
  uint64_t first_call, last_call;
};

struct SyncEvent {     // a call that waited for the GPU's work returned
  uint64_t iteration;  // the open one
  uint64_t begin_ns, end_ns;
  uint8_t op;
  uint8_t reserved[7];
};

// The outcome of a configuration of the control block.
struct ConfigEvent {
  uint16_t config_id;
  uint16_t passes;  // as CUPTI counts them; only 1 is accepted
  uint32_t status;  // 0: ready; else CUptiResult
  uint32_t length;  // bytes of the message that follows
  uint32_t reserved;
};

// A GPU on which the process has a context. The event comes again when more is known, and the last
// one counts.
struct DeviceEvent {
  uint16_t device;  // the driver's ordinal
  uint16_t compute_major, compute_minor;
  uint16_t reserved;
  uint32_t multiprocessors;
  uint32_t length;  // bytes of the name that follows
  uint64_t memory_bytes;
  char chip[16];  // CUPTI's name of the chip ("GH100"), padded with 0; empty: not known
  // char name[length];
};

// A micro-batch is over: what it added to the lengths. Rules whose lengths are sums over
// micro-batches have these events. They come before the step that ends the iteration.
struct MicroBatchEvent {
  uint64_t iteration;
  int64_t length[2];
  uint32_t valid;  // bit i: length[i] was read
  uint32_t index;  // in the iteration, from 0
};

// The time that watching the program's calls has cost it so far. The event comes about once a
// second while that grows. It is an estimate: `callback_ns`, the cost of a callback in CUPTI
// itself, is measured once in the process, and the cost of a call in the library is known from its
// benchmark.
struct CostEvent {
  uint64_t calls[4];  // watched ones, by Level: learn, mark, trace; [0] is not used
  uint64_t spent_ns[4];
  uint32_t callback_ns;  // 0: not measured yet
  uint32_t reserved;
};

// The rank of the process, where it was learned after the Hello (torch.distributed).
struct RankEvent {
  int32_t rank;
  int32_t world_size;
};

// A communicator of NCCL, or a group of processes whose host does collectives (gloo). The event
// comes before the first record that refers to it.
struct CommunicatorEvent {
  uint32_t communicator;  // dense, from 1, never used again
  int32_t rank;
  int32_t ranks;     // 0: not known (versions 1 to 3)
  int32_t nodes;     // 0: not known
  uint64_t hash;     // the same on all ranks; 0: not known
  uint32_t version;  // of NCCL's profiler interface; 0: the host's
  uint32_t length;   // bytes of the name that follow
  // char name[length];
};

// A kind of operations gets a dense id, from 1, when the process first meets it.
// The event comes before the first record with this id.
struct CollectiveKindEvent {
  uint32_t kind;
  int32_t peer;       // of a send or receive; else -1
  uint64_t elements;  // of a send or receive: the power of two at or below
  uint32_t length;    // bytes of the text that follows
  uint32_t reserved;
  // char text[length];  "FUNCTION\nDATATYPE\nALGORITHM\nPROTOCOL" in the words of NCCL, or of the
  // framework; the last two may be empty
};

// The library left CUPTI to another profiler (end_ns is 0), or has taken it again (begin_ns is the
// same). In between, the program's CUDA calls are not seen.
struct StandDownEvent {
  uint64_t begin_ns, end_ns;
  uint64_t iteration;  // the open one
  uint32_t length;     // bytes of the other profiler's name that follow
  uint32_t reserved;
  // char holder[length];
};

}  // namespace seqpoint::abi

#endif  // SEQPOINT_INJECTION_ABI_RECORDS_H_
