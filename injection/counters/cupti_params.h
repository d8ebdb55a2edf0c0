// Calls of CUPTI's profiling functions, each of which takes one struct that begins with its own
// size. For members of CounterBackend and their kind: `cupti_` is the library, and Fail reports
// what a function refused.
#ifndef SEQPOINT_INJECTION_COUNTERS_CUPTI_PARAMS_H_
#define SEQPOINT_INJECTION_COUNTERS_CUPTI_PARAMS_H_

// Parameters of cupti`function`, of the size that this code was written for.
#define SEQPOINT_PARAMS(function, name) \
  CUpti_##function##_Params name = {};  \
  name.structSize = CUpti_##function##_Params_STRUCT_SIZE

// The same of a function that works with the profiler's object: `object_`.
#define SEQPOINT_OBJECT_PARAMS(profiler, function, name) \
  SEQPOINT_PARAMS(profiler##_##function, name);          \
  name.p##profiler##Object = object_

// Calls the function, or reports why it does not do what was asked and returns that.
#define SEQPOINT_CALL_OR_RETURN(function, ...)                                            \
  if (const uint32_t refusal = cupti_->function(__VA_ARGS__); refusal != CUPTI_SUCCESS) { \
    return Fail("cupti" #function, refusal);                                              \
  }

#endif  // SEQPOINT_INJECTION_COUNTERS_CUPTI_PARAMS_H_
