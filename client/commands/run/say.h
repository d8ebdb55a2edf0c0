// Messages of `seqpoint run` among the output of the program.
// Threading: any thread.
#ifndef CLIENT_COMMANDS_RUN_SAY_H_
#define CLIENT_COMMANDS_RUN_SAY_H_

#include <stdio.h>

#include <string>

#include "client/text/plain_text.h"

namespace seqpoint::client {

// A line on standard error.
inline void Say(const std::string& text) {
  fprintf(stderr, "seqpoint: %s\n", Printable(text).c_str());
}

}  // namespace seqpoint::client

#endif  // CLIENT_COMMANDS_RUN_SAY_H_
