#include "daemon/service/resume_logs.h"

#include <string>
#include <utility>
#include <vector>

#include "spdlog/spdlog.h"

namespace seqpoint::service {

void LoadResumeLogs(Store& store, jobs::Job& job) {
  constexpr int kPage = 10'000;
  for (const jobs::Job::WantedLog& wanted : job.WantedLogs()) {
    std::vector<jobs::KnownLengths> log(static_cast<size_t>(wanted.end - wanted.begin));
    int64_t next = wanted.begin;
    while (next < wanted.end) {
      const auto rows = store.ReadIterations(job.row().job_id, wanted.rank, next, kPage);
      if (!rows.ok()) {
        spdlog::warn("{}", std::string(rows.status().message()));
        break;
      }
      if (rows->empty()) break;
      for (const IterationRow& row : *rows) {
        if (row.length_count == 0 || row.number >= wanted.end) continue;
        log[static_cast<size_t>(row.number - wanted.begin)].emplace(row.length[0], row.length[1]);
      }
      next = rows->back().number + 1;
    }
    job.SetLog(wanted.process_id, wanted.begin, std::move(log));
  }
}

}  // namespace seqpoint::service
