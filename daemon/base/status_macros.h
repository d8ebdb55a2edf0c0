// Passing an error on to the caller, in one line: the macros that the client has, too.
// Threading: none of its own.
#ifndef DAEMON_BASE_STATUS_MACROS_H_
#define DAEMON_BASE_STATUS_MACROS_H_

#include "proto/status_macros.h"

#endif  // DAEMON_BASE_STATUS_MACROS_H_
