#include "daemon/operate/probes.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace seqpoint::operate {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

// A commit holds the lock of the jobs for some milliseconds, and a probe waits for seconds.
constexpr absl::Duration kPatience = absl::Seconds(2);

// The families of metrics that a scrape is made of.
class Families {
 public:
  void Gauge(const char* name, const char* help, double value, Labels labels = {}) {
    Of(name, help, MetricType::Gauge)
        .push_back({.label = std::move(labels), .gauge = {.value = value}});
  }
  void Counter(const char* name, const char* help, double value, Labels labels = {}) {
    Of(name, help, MetricType::Counter)
        .push_back({.label = std::move(labels), .counter = {.value = value}});
  }
  std::string Text() const { return prometheus::TextSerializer().Serialize(families_); }

 private:
  std::vector<ClientMetric>& Of(const char* name, const char* help, MetricType type) {
    for (MetricFamily& family : families_) {
      if (family.name == name) return family.metric;
    }
    families_.push_back({.name = name, .help = help, .type = type});
    return families_.back().metric;
  }

  std::vector<MetricFamily> families_;
};

// The basics that every exporter has, by the names that they have everywhere.
void AddProcess(int64_t start_ns, Families& out) {
  rusage used = {};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  out.Counter("process_cpu_seconds_total", "CPU time of the daemon, user and system",
              seconds(used.ru_utime) + seconds(used.ru_stime));
  out.Gauge("process_start_time_seconds", "When the daemon started, since 1970",
            1e-9 * static_cast<double>(start_ns));
  int64_t total_pages = 0, resident_pages = 0;
  std::ifstream("/proc/self/statm") >> total_pages >> resident_pages;
  const auto page_bytes = static_cast<double>(sysconf(_SC_PAGESIZE));
  out.Gauge("process_resident_memory_bytes", "Memory of the daemon",
            static_cast<double>(resident_pages) * page_bytes);
  out.Gauge("process_virtual_memory_bytes", "Address space of the daemon",
            static_cast<double>(total_pages) * page_bytes);
  std::error_code error;
  const std::filesystem::directory_iterator descriptors("/proc/self/fd", error);
  if (!error) {
    out.Gauge("process_open_fds", "Open descriptors",
              static_cast<double>(std::distance(begin(descriptors), end(descriptors))));
  }
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  out.Gauge("process_max_fds", "Limit of descriptors", static_cast<double>(limit.rlim_cur));
}

// Empty: not one that a live job has.
const char* NameOf(v1::JobState state) {
  switch (state) {
    case v1::JOB_STATE_WAITING:
      return "waiting";
    case v1::JOB_STATE_LEARNING:
      return "learning";
    case v1::JOB_STATE_MARKING:
      return "marking";
    case v1::JOB_STATE_PAUSED:
      return "paused";
    case v1::JOB_STATE_RELEASED:
      return "released";
    default:
      return "";
  }
}

void AddJob(const v1::Job& job, Families& out) {
  // `job` alone would collide with the label that Prometheus gives to what it scrapes.
  const Labels labels = {{"job_name", job.name()}, {"run_id", job.run_id()}};
  out.Counter("seqpointd_job_iterations_total", "Training iterations of a live job",
              static_cast<double>(job.iterations()), labels);
  if (job.has_iterations_duration_ns()) {
    out.Counter("seqpointd_job_iterations_seconds_total", "Sum of the times of the iterations",
                1e-9 * static_cast<double>(job.iterations_duration_ns()), labels);
  }
  out.Gauge("seqpointd_job_processes", "Live processes of a live job", job.live_processes(),
            labels);
  const v1::Losses& losses = job.losses();
  out.Counter("seqpointd_job_lost_records_total", "Records of a live job that were lost",
              static_cast<double>(losses.ring_dropped() + losses.ring_lost() + losses.rejected() +
                                  losses.cupti_dropped() + losses.unstored_records()),
              labels);
  out.Gauge("seqpointd_job_rank_trouble",
            "1: ranks wait for a slow rank or for longer lengths, or the job stands still",
            job.ranks().empty() ? 0 : 1, labels);
}

}  // namespace

std::string Probes::WhyNotHealthy() const {
  const absl::Duration since = daemon_.since_last_turn();
  if (since < kStuck) return "";
  return absl::StrCat("the ingest loop is stuck: it made no turn for ", absl::ToInt64Seconds(since),
                      " s; the disk of the store may hang. Rings fill, drop and count meanwhile");
}

std::string Probes::WhyNotReady() const {
  if (ending_) return "the daemon is ending";
  if (std::string why = WhyNotHealthy(); !why.empty()) return why;
  if (!daemon_.AwaitJobs(kPatience)) {
    return "the jobs are locked for more than 2 s; the disk of the store, or its server, may hang";
  }
  return daemon_.store_state().error;
}

std::string Probes::Status() const {
  std::string why = WhyNotReady();
  if (!why.empty()) return why;
  const auto reply = daemon_.backend().GetDaemon({});
  if (!reply.ok()) return std::string(reply.status().message());
  std::string status = absl::StrCat("ready; ", reply->live_processes(), " processes");
  if (reply->has_hub()) {
    absl::StrAppend(&status, "; hub ", reply->hub().address(),
                    reply->hub().connected() ? " is connected" : " is not connected");
  }
  return status;
}

std::string Probes::Metrics() const {
  Families out;
  AddProcess(daemon_.start_ns(), out);
  const bool is_hub = daemon_.nodes() != nullptr;
  out.Gauge("seqpointd_build_info", "1; version and role of the daemon", 1,
            {{"version", SEQPOINT_VERSION}, {"role", is_hub ? "hub" : "node"}});
  if (is_hub) out.Gauge("seqpointd_leads", "0: this hub passes calls to the one that leads", 1);
  const bool free = daemon_.AwaitJobs(kPatience);
  out.Gauge("seqpointd_ready", "1: what /readyz says", free && WhyNotReady().empty() ? 1 : 0);
  out.Gauge("seqpointd_ingest_turn_age_seconds", "Since the last turn of the ingest loop",
            absl::ToDoubleSeconds(daemon_.since_last_turn()));
  if (!free) return out.Text();
  const auto reply = daemon_.backend().GetDaemon({});
  if (!reply.ok()) return out.Text();
  const service::Daemon::StoreState store = daemon_.store_state();
  out.Gauge("seqpointd_commit_age_seconds", "Since the store took what was read last",
            absl::ToDoubleSeconds(store.since_last_commit));
  out.Gauge("seqpointd_store_writable", "0: the store cannot be written, and no ring is read",
            store.error.empty() ? 1 : 0);
  out.Gauge("seqpointd_store_bytes", "Size of the store",
            static_cast<double>(reply->store_bytes()));
  out.Gauge("seqpointd_store_limit_bytes", "--max-store-bytes; 0: no limit",
            static_cast<double>(reply->limits().max_store_bytes()));
  out.Gauge("seqpointd_jobs", "Jobs in the store", reply->jobs());
  out.Gauge("seqpointd_processes", "Processes whose rings are read", reply->live_processes());
  if (reply->has_hub()) {
    out.Gauge("seqpointd_hub_connected", "0: this node goes on by itself",
              reply->hub().connected() ? 1 : 0);
    out.Gauge("seqpointd_outbox_batches", "Batches that the hub does not have yet",
              static_cast<double>(reply->hub().waiting_batches()));
  }
  if (const auto nodes = daemon_.backend().ListNodes({}); nodes.ok()) {
    int connected = 0, processes = 0;
    for (const v1::Node& node : nodes->nodes()) {
      connected += node.connected() ? 1 : 0;
      processes += node.live_processes();
    }
    out.Gauge("seqpointd_nodes", "Nodes that this hub knows", connected, {{"state", "connected"}});
    out.Gauge("seqpointd_nodes", "", nodes->nodes_size() - connected, {{"state", "gone"}});
    out.Gauge("seqpointd_node_processes", "Live processes of all nodes", processes);
  }
  v1::ListJobsRequest live;
  live.set_live_only(true);
  live.set_page_size(kMostJobs);
  if (const auto jobs = daemon_.backend().ListJobs(live); jobs.ok()) {
    int by_state[v1::JobState_ARRAYSIZE] = {};
    for (const v1::Job& job : jobs->jobs()) {
      if (NameOf(job.state())[0] == '\0') continue;
      ++by_state[job.state()];
      AddJob(job, out);
    }
    for (int state = 0; state < v1::JobState_ARRAYSIZE; ++state) {
      const char* const name = NameOf(static_cast<v1::JobState>(state));
      if (name[0] == '\0') continue;
      out.Gauge("seqpointd_live_jobs", "Live jobs that have figures here", by_state[state],
                {{"state", name}});
    }
    out.Gauge("seqpointd_live_jobs_left_out", "1: more live jobs run than have figures here",
              jobs->next_page_token().empty() ? 0 : 1);
  }
  return out.Text();
}

HttpReply Probes::Answer(std::string_view path) const {
  const auto verdict = [](const std::string& why, const char* fine) {
    return HttpReply{.status = why.empty() ? 200 : 503,
                     .body = absl::StrCat(why.empty() ? fine : why, "\n")};
  };
  if (path == "/healthz") return verdict(WhyNotHealthy(), "healthy");
  if (path == "/readyz") return verdict(WhyNotReady(), "ready");
  if (path == "/metrics") {
    return {.type = "text/plain; version=0.0.4; charset=utf-8", .body = Metrics()};
  }
  return {.status = 404, .body = "there is /metrics, /healthz and /readyz\n"};
}

}  // namespace seqpoint::operate
