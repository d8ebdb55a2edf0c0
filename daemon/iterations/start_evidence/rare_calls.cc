#include <algorithm>
#include <string_view>

#include "daemon/iterations/start_evidence.h"

namespace seqpoint::iterations {

using abi::Op;

void JudgeRareCalls(const LogWindow& window, const CommonSubsequence& subsequence,
                    std::vector<Evidence>* places) {
  const size_t n = subsequence.size();
  const size_t iterations = subsequence[0].at.size();
  struct Share {
    double copied = 0, copied_iterations = 0, batches = 0, waits = 0, syncs = 0, nvtx = 0,
           pauses = 0;
  };
  std::vector<Share> shares(n);
  const size_t first_iteration = iterations > 24 ? iterations - 24 : 0;
  const std::vector<uint32_t> batches = BatchCopies(window, subsequence[0].at);
  for (size_t iteration = first_iteration; iteration < iterations; ++iteration) {
    const uint32_t from = subsequence[0].at[iteration];
    const uint32_t to = iteration + 1 < iterations ? subsequence[0].at[iteration + 1] : window.end;
    double bytes = 0;
    uint64_t longest_pause = 0;
    uint32_t longest_at = 0;
    for (uint32_t i = from + 1; i <= to && i < window.end; ++i) {
      if (window.OpAt(i) == Op::kCopyH2D) bytes += static_cast<double>(window.calls()[i].bytes);
      uint64_t pause = window.calls()[i].api_ns - window.calls()[i - 1].api_ns;
      if (window.calls()[i].api_ns < window.calls()[i - 1].api_ns) pause = 0;
      if (BlocksHost(window.OpAt(i - 1))) pause -= std::min(pause, window.calls()[i - 1].bytes);
      if (pause > longest_pause) {
        longest_pause = pause;
        longest_at = i;
      }
    }
    for (size_t i = 0; i < n; ++i) {
      if (i == 0 && iteration + 1 == iterations) continue;
      const uint32_t launch =
          i == 0 ? subsequence[0].at[iteration + 1] : subsequence[i].at[iteration];
      const uint32_t segment = window.SegmentOf(launch);
      bool wait = false, sync = false, nvtx = false;
      double copied = 0;
      for (uint32_t c = segment; c < launch; ++c) {
        const Op op = window.OpAt(c);
        if (op == Op::kCopyH2D) copied += static_cast<double>(window.calls()[c].bytes);
        wait |= op == Op::kStreamWait;
        sync |= BlocksHost(op);
        nvtx |= op == Op::kNvtxPush || op == Op::kNvtxMark || op == Op::kMark;
      }
      if (copied > 0) {
        shares[i].copied += copied / bytes;
        shares[i].copied_iterations += 1;
      }
      shares[i].batches += CountIn(batches, segment, launch) > 0;
      shares[i].waits += wait;
      shares[i].syncs += sync;
      shares[i].nvtx += nvtx;
      shares[i].pauses += longest_at >= segment && longest_at <= launch;
    }
  }
  for (size_t i = 0; i < n; ++i) {
    const double all = static_cast<double>(iterations - first_iteration) - (i == 0 ? 1 : 0);
    if (all < 1) continue;
    Evidence& place = (*places)[i];
    const auto add = [&](double share, double score, std::string_view words) {
      if (share < 0.2) return;
      place.score += score * share;
      place.words.push_back(std::string(words));
    };
    if (shares[i].copied_iterations >= 0.8 * all) {
      add(0.2 + 0.8 * shares[i].copied / all, 1, "host-to-device copy");
    }
    if (shares[i].batches >= 0.8 * all) add(1, 1.5, "the batch's copy");
    add(shares[i].pauses / all, 1, "longest pause of the host");
    add(shares[i].waits / all, 0.7, "a stream waits");
    add(shares[i].syncs / all, 0.3, "the host waits for the GPU");
    add(shares[i].nvtx / all, 0.3, "NVTX");
  }
}

}  // namespace seqpoint::iterations
