// A gRPC client stream over a unix socket to a server in a process of its own: what the ring is
// measured against. One message carries 1,024 records and is reused, the cheapest that the
// generated code allows.
//
// Threading: StartRivalServer before any thread; one RivalStream per thread.
#ifndef SEQPOINT_TESTS_BENCHMARK_RING_RIVAL_H_
#define SEQPOINT_TESTS_BENCHMARK_RING_RIVAL_H_

#include <memory>
#include <string>

#include "injection/abi/records.h"

namespace seqpoint {

// Forks the server, which ends with this process, and returns its address.
std::string StartRivalServer();

class RivalStream {
 public:
  enum class Encoding { kFields, kRaw };

  RivalStream(const std::string& address, Encoding encoding);
  ~RivalStream();

  void Write(const abi::DataRecord& record);
  // Sends what is left.
  void Flush();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace seqpoint

#endif  // SEQPOINT_TESTS_BENCHMARK_RING_RIVAL_H_
