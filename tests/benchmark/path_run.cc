#include "tests/benchmark/path_run.h"

#include <signal.h>
#include <sqlite3.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <zstd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <memory>
#include <optional>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "daemon/ingest/cursor.h"
#include "injection/abi/records.h"
#include "injection/abi/ring.h"
#include "tests/support/api.h"
#include "tests/support/process_usage.h"
#include "tests/support/ring_view.h"

namespace seqpoint {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr char kJobName[] = "path";
constexpr milliseconds kLookEvery{1};

double NowS(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// The database, through a connection of its own.
class StoreView {
 public:
  explicit StoreView(const fs::path& path) {
    if (sqlite3_open_v2(path.c_str(), &connection_, SQLITE_OPEN_READONLY, nullptr) != SQLITE_OK) {
      return;
    }
    sqlite3_busy_timeout(connection_, 1000);
    Prepare("PRAGMA data_version", &version_);
    Prepare("SELECT bytes FROM ring_cursor", &cursor_);
    Prepare(
        "SELECT segment_id, number, zstd_bytes FROM trace_segment WHERE segment_id > ? "
        "ORDER BY segment_id",
        &segments_);
  }
  ~StoreView() {
    for (sqlite3_stmt* statement : {version_, cursor_, segments_}) sqlite3_finalize(statement);
    sqlite3_close(connection_);
  }
  bool ok() const { return segments_ != nullptr; }

  // True when somebody else committed something since the last call.
  bool Changed() {
    int64_t version = 0;
    if (sqlite3_step(version_) == SQLITE_ROW) version = sqlite3_column_int64(version_, 0);
    sqlite3_reset(version_);
    return std::exchange(last_version_, version) != version;
  }

  // Data records that the committed cursor has; nothing: there is none (any more).
  std::optional<uint64_t> Received() {
    std::optional<uint64_t> received;
    if (sqlite3_step(cursor_) == SQLITE_ROW) {
      const auto cursor = ingest::Cursor::Parse(Blob(cursor_, 0));
      if (cursor.ok()) received = cursor->records_received;
    }
    sqlite3_reset(cursor_);
    return received;
  }

  // Hands every new segment to visit(number, records).
  template <typename Visit>
  void NewSegments(Visit visit) {
    sqlite3_bind_int64(segments_, 1, last_segment_);
    while (sqlite3_step(segments_) == SQLITE_ROW) {
      last_segment_ = sqlite3_column_int64(segments_, 0);
      const std::string_view bytes = Blob(segments_, 2);
      records_.resize(ZSTD_getFrameContentSize(bytes.data(), bytes.size()) /
                      sizeof(abi::DataRecord));
      ZSTD_decompress(records_.data(), records_.size() * sizeof(abi::DataRecord), bytes.data(),
                      bytes.size());
      visit(sqlite3_column_int64(segments_, 1), records_);
    }
    sqlite3_reset(segments_);
  }

 private:
  void Prepare(const char* sql, sqlite3_stmt** statement) {
    sqlite3_prepare_v2(connection_, sql, -1, statement, nullptr);
  }
  static std::string_view Blob(sqlite3_stmt* statement, int column) {
    return {static_cast<const char*>(sqlite3_column_blob(statement, column)),
            static_cast<size_t>(sqlite3_column_bytes(statement, column))};
  }

  sqlite3* connection_ = nullptr;
  sqlite3_stmt *version_ = nullptr, *cursor_ = nullptr, *segments_ = nullptr;
  int64_t last_version_ = 0;
  int64_t last_segment_ = 0;
  std::vector<abi::DataRecord> records_;
};

}  // namespace

void Latencies::Add(double ms, uint64_t count) {
  const auto bucket = static_cast<size_t>(std::max(ms, 0.0));
  buckets_[std::min(bucket, buckets_.size() - 1)] += count;
  count_ += count;
  if (count > 0) max_ms_ = std::max(max_ms_, ms);
}

double Latencies::Quantile(double share) const {
  uint64_t below = 0;
  for (size_t i = 0; i < buckets_.size(); ++i) {
    below += buckets_[i];
    if (static_cast<double>(below) >= share * static_cast<double>(count_)) {
      return static_cast<double>(i + 1);
    }
  }
  return 0;
}

// The observations of one run.
class PathRun::Watch {
 public:
  Watch(std::unique_ptr<RingView> ring, const fs::path& store, double mark_s, PathResult* result)
      : ring_(std::move(ring)), store_(store), mark_s_(mark_s), result_(result) {}

  bool ok() const { return ring_ != nullptr && store_.ok(); }

  void Look() {
    const double now_s = NowS(CLOCK_REALTIME);
    const uint64_t published = ring_->Published();
    if (published > published_) publications_.push_back({last_look_s_, published});
    published_ = published;
    last_look_s_ = now_s;
    if (store_.Changed()) LookAtStore();
  }

  // No look missed anything.
  bool complete() { return ring_->Published() == ring_->Count(); }
  abi::RingHeader Header() const { return ring_->Header(); }

  void LookAtStore() {
    const std::optional<uint64_t> received = store_.Received();
    const double committed_s = NowS(CLOCK_REALTIME);
    // Records published before the first observation have no time.
    if (!received_.has_value()) received_ = received;
    while (received && *received_ < *received && !publications_.empty()) {
      const auto& [published_s, upto] = publications_.front();
      const uint64_t end = std::min(upto, *received);
      if (end > *received_ && published_s >= mark_s_) {
        result_->publish_to_commit.Add((committed_s - published_s) * 1e3, end - *received_);
      }
      received_ = std::max(*received_, end);
      if (upto > *received) break;
      publications_.pop_front();
    }
    store_.NewSegments([&](int64_t number, const std::vector<abi::DataRecord>& records) {
      for (const abi::DataRecord& record : records) Count(number, record, committed_s);
    });
  }

 private:
  void Count(int64_t number, const abi::DataRecord& record, double committed_s) {
    const double start_s = static_cast<double>(record.kernel.start_ns) * 1e-9;
    switch (static_cast<abi::DataType>(record.type)) {
      case abi::DataType::kCall:
        if (calls_.insert(record.call.sequence).second) ++result_->calls;
        return;
      case abi::DataType::kKernel:
        if (start_s < mark_s_) break;
        ++result_->kernels;
        result_->end_to_commit.Add(
            (committed_s - static_cast<double>(record.kernel.end_ns) * 1e-9) * 1e3, 1);
        break;
      case abi::DataType::kApi:
        if (start_s >= mark_s_) ++result_->api_calls;
        break;
      default:
        break;
    }
    if (number >= 0) ++result_->records;
  }

  struct Publication {
    double at_s;
    uint64_t upto;  // records published by then
  };
  std::unique_ptr<RingView> ring_;
  StoreView store_;
  const double mark_s_;
  PathResult* const result_;
  std::deque<Publication> publications_;
  uint64_t published_ = 0;
  double last_look_s_ = 0;
  std::optional<uint64_t> received_;
  std::set<uint64_t> calls_;
};

PathRun::~PathRun() {
  for (pid_t* pid : {&launcher_, &daemon_}) KillAndWait(pid, SIGKILL);
}

absl::Status PathRun::Start(const std::vector<std::string>& launcher_options,
                            const std::map<std::string, std::string>& environment) {
  const fs::path bin = BinaryDirectory(), build = bin.parent_path();
  daemon_ = SpawnDaemon(folder_);
  std::vector<std::string> command = {
      "/usr/bin/env",
      "LD_LIBRARY_PATH=" + (build / "softgpu").string(),
      "LD_PRELOAD=" + (build / "lib/libseqpoint_inject.so").string(),
      "SEQPOINT_DIR=" + (folder_ / "run").string(),
      absl::StrCat("SEQPOINT_JOB=", kJobName),
      "SWGPU_SET=clock.mode=real"};
  for (const auto& [key, value] : environment) command.push_back(absl::StrCat(key, "=", value));
  command.push_back((bin / "seqpoint_launcher").string());
  command.insert(command.end(), launcher_options.begin(), launcher_options.end());
  launcher_ = Spawn(command, folder_ / "launcher.log");
  return absl::OkStatus();
}

absl::StatusOr<v1::Job> PathRun::GetJob() {
  Api api(folder_ / "run" / "api.sock");
  v1::GetJobRequest request;
  request.set_job(kJobName);
  const auto reply = api.Call(&v1::Profiler::Stub::GetJob, request);
  if (!reply) return absl::UnavailableError(api.error());
  return reply->job();
}

absl::Status PathRun::TraceAll() {
  bool asked = false;
  for (int i = 0; i < 600; ++i) {
    std::this_thread::sleep_for(milliseconds(100));
    const absl::StatusOr<v1::Job> job = GetJob();
    if (!job.ok()) continue;
    if (job->end_ns() != 0) return absl::InternalError("the launcher ended");
    if (asked && job->processes_size() > 0 && job->processes(0).level() == v1::LEVEL_TRACE) {
      kill(launcher_, SIGUSR1);
      return absl::OkStatus();
    }
    if (asked || job->state() != v1::JOB_STATE_MARKING) continue;
    Api api(folder_ / "run" / "api.sock");
    v1::ControlRequest request;
    request.set_job(kJobName);
    request.set_action(v1::ControlRequest::ACTION_SET_LEVEL);
    request.set_level(v1::LEVEL_TRACE);
    asked = api.Call(&v1::Profiler::Stub::Control, request).has_value();
  }
  return absl::DeadlineExceededError(asked
                                         ? "the process did not come to level trace within a minute"
                                         : "no rule was learned within a minute");
}

std::map<std::string, double> PathRun::LauncherWords() const {
  std::map<std::string, double> words;
  std::ifstream file(folder_ / "launcher.log");
  std::string word;
  double value;
  while (file >> word >> value) words[word] = value;
  return words;
}

absl::StatusOr<PathResult> PathRun::Finish() {
  PathResult result;
  // In a moment the launcher says when it was marked; one that has no mark counts from the first.
  std::this_thread::sleep_for(milliseconds(50));
  const auto words = LauncherWords();
  const double mark_s = words.contains("mark") ? words.at("mark") * 1e-9 : 0;
  // Daemon and launcher may be about to start only.
  std::unique_ptr<Watch> watch;
  for (int i = 0; i < 100 && (watch == nullptr || !watch->ok()); ++i) {
    if (i > 0) std::this_thread::sleep_for(milliseconds(20));
    watch = std::make_unique<Watch>(RingView::Of(launcher_), folder_ / "store.db", mark_s, &result);
  }
  if (!watch->ok()) return absl::InternalError("the ring or the store could not be looked at");

  const double begin_s = NowS(CLOCK_MONOTONIC);
  const double launcher_cpu_s = CpuSeconds(launcher_), daemon_cpu_s = CpuSeconds(daemon_);
  int status = 0;
  for (siginfo_t ended = {}; ended.si_pid == 0;) {
    watch->Look();
    std::this_thread::sleep_for(kLookEvery);
    waitid(P_PID, static_cast<id_t>(launcher_), &ended, WEXITED | WNOHANG | WNOWAIT);
  }
  result.seconds = NowS(CLOCK_MONOTONIC) - begin_s;
  result.launcher_cpu_s = CpuSeconds(launcher_) - launcher_cpu_s;
  result.daemon_cpu_s = CpuSeconds(daemon_) - daemon_cpu_s;
  waitpid(std::exchange(launcher_, 0), &status, 0);
  if (status != 0) return absl::InternalError("the launcher failed");

  absl::StatusOr<v1::Job> job = GetJob();
  for (int i = 0; i < 3000 && job.ok() && job->end_ns() == 0; ++i) {
    watch->Look();
    std::this_thread::sleep_for(milliseconds(10));
    if (i % 10 == 0) job = GetJob();
  }
  if (!job.ok()) return job.status();
  if (job->end_ns() == 0) return absl::DeadlineExceededError("the job did not end");
  KillAndWait(&daemon_, SIGTERM);
  watch->LookAtStore();
  result.complete = watch->complete();
  result.header = watch->Header();
  result.losses = job->losses();
  result.rule = job->rule();
  result.launcher = LauncherWords();
  std::error_code ignored;
  result.store_bytes = static_cast<int64_t>(fs::file_size(folder_ / "store.db", ignored));
  return result;
}

}  // namespace seqpoint
