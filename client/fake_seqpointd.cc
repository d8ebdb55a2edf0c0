// A daemon for the client's tests: FakeBackend behind the real service, in $SEQPOINT_DIR. Jobs that
// are prepared end FAKE_JOB_MS later (default: never); the daemon itself ends after a minute.
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "daemon/rpc/fake_backend.h"
#include "daemon/rpc/server.h"

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
  absl::Time end = absl::Now() + absl::Minutes(1);
  absl::Time job_end = absl::InfiniteFuture();
  while (absl::Now() < end) {
    absl::SleepFor(absl::Milliseconds(10));
    seqpoint::v1::Job job = backend.JobNow("2");
    if (job_ms == nullptr || job.id().empty() || job.state() == seqpoint::v1::JOB_STATE_ENDED) {
      continue;
    }
    if (job_end == absl::InfiniteFuture()) job_end = absl::Now() + absl::Milliseconds(atoi(job_ms));
    if (absl::Now() >= job_end) {
      job.set_state(seqpoint::v1::JOB_STATE_ENDED);
      backend.PutJob(job);
    }
  }
  return 0;
}
