// The whole path: launch -> CUPTI's activity buffer -> ring -> seqpointd -> committed, everything
// traced, in real time.
//
//   path_benchmark [--rate 200000] [--seconds 60] [--ring-bytes N]
//
// Ends with 1 when something was lost or the counts do not agree. Whether the machine was fast
// enough is printed, not judged. How the times are measured: path_run.h.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/benchmark/path_run.h"

namespace seqpoint {
namespace {

int Main(uint64_t rate, uint64_t seconds, const std::string& ring_bytes) {
  PathRun run;
  std::map<std::string, std::string> environment;
  if (!ring_bytes.empty()) environment["SEQPOINT_RING_BYTES"] = ring_bytes;
  absl::Status status =
      run.Start({absl::StrCat("rate=", rate), absl::StrCat("seconds=", seconds)}, environment);
  if (status.ok()) status = run.TraceAll();
  absl::StatusOr<PathResult> result =
      status.ok() ? run.Finish() : absl::StatusOr<PathResult>(status);
  if (!result.ok()) {
    std::fprintf(stderr, "path_benchmark: %s\n", std::string(result.status().message()).c_str());
    return 1;
  }
  const double launches = result->launcher["launches"];
  const double launcher_s = result->launcher["seconds"];
  std::printf("launches                    %.0f in %.1f s: %.0f/s; at worst %.1f ms late\n",
              launches, launcher_s, launches / launcher_s, result->launcher["latest_ms"]);
  std::printf("kernel records committed    %llu\n",
              static_cast<unsigned long long>(result->kernels));
  std::printf("driver call records         %llu\n",
              static_cast<unsigned long long>(result->api_calls));
  std::printf("rule                        %s; length: %s\n", result->rule.boundary().c_str(),
              result->rule.length().c_str());
  const abi::RingHeader& header = result->header;
  std::printf("while learning              %llu calls tried, %llu dropped, %llu in the store\n",
              static_cast<unsigned long long>(header.call_sequence),
              static_cast<unsigned long long>(header.call_dropped),
              static_cast<unsigned long long>(result->calls));
  std::printf("events                      %llu tried, %llu dropped; data records dropped %llu\n",
              static_cast<unsigned long long>(header.lane_number),
              static_cast<unsigned long long>(header.lane_dropped),
              static_cast<unsigned long long>(header.data_dropped));
  const v1::Losses& losses = result->losses;
  std::printf(
      "losses                      ring dropped %lld, ring lost %lld, rejected %lld, CUPTI dropped "
      "%lld, invalid timestamps %lld\n",
      static_cast<long long>(losses.ring_dropped()), static_cast<long long>(losses.ring_lost()),
      static_cast<long long>(losses.rejected()), static_cast<long long>(losses.cupti_dropped()),
      static_cast<long long>(losses.invalid_timestamps()));
  const auto print = [](const char* what, const Latencies& times) {
    std::printf("%s p50 %.0f ms, p99 %.0f ms, p99.9 %.0f ms, max %.0f ms (%llu records)\n", what,
                times.Quantile(0.5), times.Quantile(0.99), times.Quantile(0.999), times.max_ms(),
                static_cast<unsigned long long>(times.count()));
  };
  print("published to committed     ", result->publish_to_commit);
  print("kernel's end to committed  ", result->end_to_commit);
  std::printf("CPU                         program with library %.2f cores, daemon %.2f cores\n",
              result->launcher_cpu_s / result->seconds, result->daemon_cpu_s / result->seconds);
  std::printf("store                       %lld MB\n",
              static_cast<long long>(result->store_bytes >> 20));
  const int64_t lost = losses.ring_dropped() + losses.ring_lost() + losses.rejected() +
                       losses.cupti_dropped() + losses.invalid_timestamps();
  const bool exact = lost == 0 && static_cast<double>(result->kernels) == launches;
  if (!result->complete) {
    std::printf(
        "a chunk was filled twice between two looks: published to committed is not exact\n");
  }
  std::printf("every kernel once, none lost: %s; rate: %s; p99 <= 250 ms: %s\n",
              exact ? "yes" : "NO", launches / launcher_s >= 0.99 * rate ? "reached" : "missed",
              result->publish_to_commit.Quantile(0.99) <= 250 ? "reached" : "missed");
  return exact ? 0 : 1;
}

}  // namespace
}  // namespace seqpoint

int main(int argc, char** argv) {
  uint64_t rate = 200'000, seconds = 60;
  std::string ring_bytes;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string option = argv[i];
    if (option == "--rate") {
      rate = std::strtoull(argv[i + 1], nullptr, 10);
    } else if (option == "--seconds") {
      seconds = std::strtoull(argv[i + 1], nullptr, 10);
    } else if (option == "--ring-bytes") {
      ring_bytes = argv[i + 1];
    } else {
      std::fprintf(stderr, "path_benchmark: unknown option %s\n", argv[i]);
      return 2;
    }
  }
  return seqpoint::Main(rate, seconds, ring_bytes);
}
