// A daemon for the client's tests: FakeBackend behind the real service, in $SEQPOINT_DIR. Jobs that
// are prepared end FAKE_JOB_MS later (default: never); the daemon itself ends after a minute.
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "daemon/rpc/server.h"
#include "tests/fakes/fake_backend.h"

int main(int argc, char** argv) {
  using seqpoint::rpc::FakeBackend;
  const char* failure = getenv("FAKE_FAILURE");
  if (failure != nullptr) {
    fprintf(stderr, "%s\n", failure);
    return 1;
  }
  FakeBackend backend;
  std::filesystem::path directory(getenv("SEQPOINT_DIR"));
  auto server = seqpoint::rpc::Server::Start({.socket_path = directory / "api.sock"}, &backend);
  if (!server.ok()) {
    fprintf(stderr, "%s\n", std::string(server.status().message()).c_str());
    return 1;
  }
  const char* job_ms = getenv("FAKE_JOB_MS");
  std::map<std::string, absl::Time> first_seen;
  for (absl::Time end = absl::Now() + absl::Minutes(1); absl::Now() < end;) {
    absl::SleepFor(absl::Milliseconds(10));
    if (job_ms == nullptr) continue;
    seqpoint::v1::ListJobsReply reply = *backend.ListJobs({});
    for (seqpoint::v1::Job& job : *reply.mutable_jobs()) {
      absl::Time seen = first_seen.try_emplace(job.id(), absl::Now()).first->second;
      if (job.id() == "1" || job.state() == seqpoint::v1::JOB_STATE_ENDED ||
          absl::Now() < seen + absl::Milliseconds(atoi(job_ms))) {
        continue;
      }
      job.set_state(seqpoint::v1::JOB_STATE_ENDED);
      backend.PutJob(job);
    }
  }
  return 0;
}
