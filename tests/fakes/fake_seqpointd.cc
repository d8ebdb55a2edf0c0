// A daemon for the client's tests: FakeBackend behind the real service, in $SEQPOINT_DIR. Jobs that
// are prepared end FAKE_JOB_MS later (default: never); the daemon itself ends after a minute. It
// writes its environment into the file FAKE_ENVIRONMENT, and takes --allow-users ID.
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string_view>

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
  if (const char* path = getenv("FAKE_ENVIRONMENT")) {
    std::ofstream file(path);
    for (char** entry = environ; *entry != nullptr; ++entry) file << *entry << "\n";
  }
  seqpoint::rpc::ServerOptions options = {.socket_path = directory / "api.sock"};
  if (argc > 2 && std::string_view(argv[1]) == "--allow-users") {
    options.allowed_users = {static_cast<uid_t>(atoi(argv[2]))};
  }
  auto server = seqpoint::rpc::Server::Start(options, &backend);
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
