// Passing an error on to the caller, in one line.
//
//   SEQPOINT_RETURN_IF_ERROR(store.Write(batch));
//   SEQPOINT_ASSIGN_OR_RETURN(const Plan plan, MakePlan(problem));
//   SEQPOINT_ASSIGN_OR_RETURN(*plan, MakePlan(problem));
//
// They return from the function or lambda that they stand in, whose result an absl::Status becomes.
// Each is several statements: an `if` around one needs braces.
//
// Threading: none of its own.
#ifndef PROTO_STATUS_MACROS_H_
#define PROTO_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// The expression is evaluated once.
#define SEQPOINT_RETURN_IF_ERROR(...)                        \
  if (absl::Status status_ = (__VA_ARGS__); !status_.ok()) { \
    return status_;                                          \
  }

// `target` is a declaration or something that can be assigned to. A type with a comma outside of
// parentheses needs `auto` or a name of its own.
#define SEQPOINT_ASSIGN_OR_RETURN(target, ...) \
  SEQPOINT_ASSIGN_OR_RETURN_IMPL_(SEQPOINT_JOIN_(status_or_, __LINE__), target, __VA_ARGS__)

#define SEQPOINT_ASSIGN_OR_RETURN_IMPL_(result, target, ...) \
  auto result = (__VA_ARGS__);                               \
  if (!result.ok()) return std::move(result).status();       \
  target = *std::move(result)
#define SEQPOINT_JOIN_(a, b) SEQPOINT_JOIN_IMPL_(a, b)
#define SEQPOINT_JOIN_IMPL_(a, b) a##b

#endif  // PROTO_STATUS_MACROS_H_
