#include "tests/fakes/fake_backend.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "daemon/base/horizon.h"
#include "daemon/queries/job_filter.h"

namespace seqpoint::rpc {
namespace {

constexpr double kIterationNs = 40e6;

absl::Status NoSuchJob(const std::string& job) {
  return absl::NotFoundError(absl::StrCat("no job \"", job, "\"; `seqpoint jobs` lists them"));
}

v1::Estimate Around(double value, double share) {
  v1::Estimate estimate;
  estimate.set_value(value);
  estimate.set_low(value * (1 - share));
  estimate.set_high(value * (1 + share));
  return estimate;
}

int64_t TotalIterations(const v1::Horizon& horizon) {
  if (horizon.kind() == v1::Horizon::KIND_ITERATIONS) return horizon.iterations();
  int64_t total = 0;
  for (const v1::LengthCount& entry : horizon.histogram()) total += entry.count();
  return total * RepeatsOf(horizon);
}

v1::Projection Projected(const v1::Job& job, const v1::Horizon& horizon, double per_iteration,
                         double confidence) {
  v1::Projection projection;
  projection.set_metric("time");
  projection.set_unit("ns");
  projection.set_confidence(confidence);
  projection.set_horizon_kind(horizon.kind());
  projection.set_iterations_so_far(job.iterations());
  projection.set_clock_kind(v1::CLOCK_KIND_REAL);
  projection.set_basis(
      absl::StrCat("length explains 99 % of time; ", job.iterations(), " iterations seen"));
  *projection.mutable_so_far() = Around(per_iteration * job.iterations(), 0);
  *projection.mutable_per_1000_iterations() = Around(per_iteration * 1000, 0.002);
  if (int64_t total = TotalIterations(horizon); total > 0) {
    projection.set_iterations_total(total);
    *projection.mutable_total() = Around(per_iteration * total, 0.004);
    *projection.mutable_remaining() = Around(per_iteration * (total - job.iterations()), 0.005);
  }
  return projection;
}

std::string PartWords(const v1::Part& part) {
  return absl::StrCat("iterations ", part.from(), " to ", part.to());
}

// As a list of jobs has it.
v1::Job WithoutProcesses(v1::Job job) {
  job.clear_processes();
  job.mutable_horizon()->clear_histogram();
  return job;
}

}  // namespace

v1::Job FakeBackend::SampleJob() {
  v1::Job job;
  job.set_id("1");
  job.set_name("gnmt");
  job.set_run_id("r1");
  job.set_host("node7");
  job.set_state(v1::JOB_STATE_MARKING);
  job.set_start_ns(1'767'348'900'000'000'000);
  job.set_command("python3 train.py");
  job.set_working_ranks(1);
  job.set_iterations(1'000);
  job.set_unique_lengths(73);
  job.set_iterations_duration_ns(static_cast<int64_t>(kIterationNs) * 1'000);
  job.set_clock_kind(v1::CLOCK_KIND_REAL);
  job.set_process_count(1);
  job.set_live_processes(1);
  v1::Rule* rule = job.mutable_rule();
  rule->set_generation(1);
  rule->set_boundary("host-to-device copy after kernel adam");
  rule->set_length("bytes of the 2nd host-to-device copy / 512");
  rule->set_confidence(0.998);
  rule->set_explained_share(0.987);
  rule->set_verdict(v1::VERDICT_EXPLAINED);
  rule->set_length_dimensions(1);
  v1::SeqPointsSummary* seqpoints = job.mutable_seqpoints();
  seqpoints->set_seqpoints(8);
  seqpoints->set_measured(8);
  seqpoints->set_measurements(64);
  seqpoints->set_measurements_wanted(64);
  job.mutable_losses()->set_distorted_iterations(4);
  v1::PhaseSummary* phase = job.add_phases();
  phase->set_name("evaluation");
  phase->set_iterations(50);
  phase->set_duration_ns(800'000'000);
  v1::Process* process = job.add_processes();
  process->set_world_size(1);
  process->set_pid(4711);
  process->set_host("node7");
  process->set_command("python3 train.py");
  process->set_device("NVIDIA H200");
  process->set_library_version("0.1.0");
  process->set_cupti_version("13.0");
  process->set_driver_version("13.0");
  process->set_clock_kind(v1::CLOCK_KIND_REAL);
  process->set_level(v1::LEVEL_MARK);
  process->set_working_directory("/home/user/gnmt");
  process->set_start_ns(job.start_ns());
  process->set_chip("GH100");
  process->set_compute_capability("9.0");
  process->set_iterations(job.iterations());
  process->set_stopped_duration_ns(16'000'000);
  process->set_given_up_windows(1);
  process->mutable_losses();
  v1::Feature* feature = process->add_features();
  feature->set_name("counters");
  feature->set_state(v1::FEATURE_STATE_FAILED);
  feature->set_code(35);
  feature->set_message("no permission for GPU counters; see `seqpoint doctor`");
  job.mutable_overhead()->set_budget_share(0.01);
  job.mutable_overhead()->set_spent_share(0.0004);
  job.mutable_overhead()->set_stopped_duration_ns(16'000'000);
  v1::Spent* spent = job.mutable_overhead()->add_spent();
  spent->set_activity("counters");
  spent->set_count(64);
  spent->set_duration_ns(16'000'000);
  spent = job.mutable_overhead()->add_spent();
  spent->set_activity("watching at mark");
  spent->set_count(2'000);
  spent->set_duration_ns(1'000'000);
  spent->set_estimated(true);
  return job;
}

FakeBackend::FakeBackend() { PutJob(SampleJob()); }

void FakeBackend::PutJob(v1::Job job) {
  absl::MutexLock lock(&mutex_);
  v1::Job& slot = jobs_[job.id()];
  int64_t generation = slot.generation() + 1;
  slot = std::move(job);
  slot.set_generation(generation);
}

v1::Job FakeBackend::JobNow(const std::string& id) {
  absl::MutexLock lock(&mutex_);
  auto it = jobs_.find(id);
  return it == jobs_.end() ? v1::Job() : it->second;
}

void FakeBackend::SetIterations(int64_t iterations) {
  absl::MutexLock lock(&mutex_);
  iterations_ = iterations;
}

void FakeBackend::SetJobsPerPage(int jobs) {
  absl::MutexLock lock(&mutex_);
  jobs_per_page_ = jobs;
}

void FakeBackend::SetError(absl::Status status) {
  absl::MutexLock lock(&mutex_);
  error_ = std::move(status);
}

v1::AnalyzeRequest FakeBackend::last_analysis() {
  absl::MutexLock lock(&mutex_);
  return last_analysis_;
}

v1::ImportJobRequest FakeBackend::last_import() {
  absl::MutexLock lock(&mutex_);
  return last_import_;
}

FakeBackend::TraceImport FakeBackend::last_trace_import() {
  absl::MutexLock lock(&mutex_);
  return last_trace_import_;
}

void FakeBackend::AwaitReplays(int count) {
  while (replays_ != count) absl::SleepFor(absl::Milliseconds(1));
}
void FakeBackend::AwaitTraces(int count) {
  while (traces_ != count) absl::SleepFor(absl::Milliseconds(1));
}
v1::WhatIfRequest FakeBackend::last_what_if() {
  absl::MutexLock lock(&mutex_);
  return last_what_if_;
}

std::optional<v1::ControlRequest> FakeBackend::last_control() {
  absl::MutexLock lock(&mutex_);
  return last_control_;
}

v1::Job* FakeBackend::Find(const std::string& job) {
  v1::Job* found = nullptr;
  for (auto& [id, candidate] : jobs_) {
    if (id == job || candidate.name() == job ||
        absl::StrCat(candidate.name(), "@", candidate.run_id()) == job) {
      found = &candidate;
    }
  }
  return found;
}

absl::StatusOr<v1::Job*> FakeBackend::FindForFigures(const std::string& job) {
  if (!error_.ok()) return error_;
  v1::Job* found = Find(job);
  if (found == nullptr) return NoSuchJob(job);
  return found;
}

absl::StatusOr<v1::GetDaemonReply> FakeBackend::GetDaemon(const v1::GetDaemonRequest& request) {
  absl::MutexLock lock(&mutex_);
  v1::GetDaemonReply reply;
  reply.set_version("0.1.0");
  reply.set_start_ns(1'767'348'000'000'000'000);
  reply.set_pid(77);
  reply.set_host("node7");
  reply.set_inject_socket("/run/seqpoint/inject.sock");
  reply.set_store_path("/var/lib/seqpoint/seqpoint.db");
  reply.set_store_bytes(12'300'000);
  reply.set_jobs(static_cast<int>(jobs_.size()));
  reply.set_live_processes(1);
  reply.set_abi_version(1);
  reply.mutable_limits()->set_max_ring_bytes(64 << 20);
  reply.mutable_limits()->set_max_store_bytes(int64_t{1} << 30);
  reply.mutable_limits()->set_max_job_age_s(30 * 86'400);
  return reply;
}

absl::StatusOr<v1::GetFleetReply> FakeBackend::GetFleet(const v1::GetFleetRequest&) {
  absl::MutexLock lock(&mutex_);
  v1::GetFleetReply fleet;
  for (const auto& [id, job] : jobs_) {
    v1::FleetJob& row = *fleet.add_jobs();
    row.set_job_id(job.id());
    row.set_name(job.name());
    row.set_run_id(job.run_id());
    row.set_state(job.state());
    row.set_start_ns(job.start_ns());
    row.set_ranks(1);
    row.set_message("its times are not those of a real clock");
  }
  return fleet;
}

absl::StatusOr<v1::ListNodesReply> FakeBackend::ListNodes(const v1::ListNodesRequest&) {
  return absl::FailedPreconditionError("this daemon is no hub");
}

absl::StatusOr<v1::PrepareJobReply> FakeBackend::PrepareJob(const v1::PrepareJobRequest& request) {
  v1::Job job = SampleJob();
  {
    absl::MutexLock lock(&mutex_);
    job.set_id(absl::StrCat(jobs_.size() + 1));
  }
  job.set_name(request.name());
  job.set_run_id(request.run_id());
  job.set_command(request.command());
  job.set_operators_folder(request.operators_folder());
  if (request.has_horizon()) *job.mutable_horizon() = request.horizon();
  *job.mutable_time() = Projected(job, job.horizon(), kIterationNs, 0.95);
  PutJob(job);
  v1::PrepareJobReply reply;
  *reply.mutable_job() = job;
  return reply;
}

absl::StatusOr<v1::ListJobsReply> FakeBackend::ListJobs(const v1::ListJobsRequest& request) {
  absl::MutexLock lock(&mutex_);
  v1::ListJobsReply reply;
  const int most =
      request.page_size() > 0 ? std::min(request.page_size(), jobs_per_page_) : jobs_per_page_;
  bool seen = request.page_token().empty();  // the last one of the page before
  for (auto it = jobs_.rbegin(); it != jobs_.rend(); ++it) {
    if (request.live_only() && it->second.end_ns() != 0) continue;
    if (!request.name().empty() && it->second.name() != request.name()) continue;
    if (!queries::IsWanted(it->second, request)) continue;
    if (seen) {
      if (reply.jobs_size() == most) {
        reply.set_next_page_token(reply.jobs().rbegin()->id());
        break;
      }
      *reply.add_jobs() = WithoutProcesses(it->second);
    }
    seen = seen || it->second.id() == request.page_token();
  }
  return reply;
}

absl::StatusOr<v1::DeleteJobReply> FakeBackend::DeleteJob(const v1::DeleteJobRequest& request) {
  absl::MutexLock lock(&mutex_);
  const v1::Job* job = Find(request.job());
  if (job == nullptr) return NoSuchJob(request.job());
  if (job->end_ns() == 0) return absl::FailedPreconditionError("it runs");
  v1::DeleteJobReply reply;
  reply.set_job_id(job->id());
  reply.set_name(job->name());
  reply.set_run_id(job->run_id());
  std::erase_if(jobs_, [&](const auto& entry) { return entry.second.id() == reply.job_id(); });
  return reply;
}

absl::StatusOr<v1::UpdateJobReply> FakeBackend::UpdateJob(const v1::UpdateJobRequest& request) {
  absl::MutexLock lock(&mutex_);
  v1::Job* job = Find(request.job());
  if (job == nullptr) return NoSuchJob(request.job());
  if (!request.name().empty()) {
    if (job->end_ns() == 0) return absl::FailedPreconditionError("it runs");
    job->set_name(request.name());
  }
  std::set<std::string> tags(job->tags().begin(), job->tags().end());
  for (const std::string& tag : request.remove_tags()) tags.erase(tag);
  tags.insert(request.add_tags().begin(), request.add_tags().end());
  *job->mutable_tags() = {tags.begin(), tags.end()};
  v1::UpdateJobReply reply;
  *reply.mutable_job() = *job;
  return reply;
}

absl::StatusOr<v1::GetJobReply> FakeBackend::GetJob(const v1::GetJobRequest& request) {
  absl::MutexLock lock(&mutex_);
  v1::Job* job = Find(request.job());
  if (job == nullptr) return NoSuchJob(request.job());
  v1::GetJobReply reply;
  *reply.mutable_job() = *job;
  return reply;
}

absl::StatusOr<v1::Job> FakeBackend::WaitForJob(const std::string& job, int64_t after_generation,
                                                absl::Duration timeout) {
  absl::MutexLock lock(&mutex_);
  if (Find(job) == nullptr) return NoSuchJob(job);
  auto changed = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return Find(job)->generation() > after_generation;
  };
  if (!mutex_.AwaitWithTimeout(absl::Condition(&changed), timeout)) {
    return absl::DeadlineExceededError("no change");
  }
  return *Find(job);
}

absl::StatusOr<v1::GetSeqPointsReply> FakeBackend::GetSeqPoints(
    const v1::GetSeqPointsRequest& request) {
  absl::MutexLock lock(&mutex_);
  absl::StatusOr<v1::Job*> job = FindForFigures(request.job());
  if (!job.ok()) return job.status();
  v1::GetSeqPointsReply reply;
  for (int i = 0; i < 8; ++i) {
    v1::SeqPoint* seqpoint = reply.add_seqpoints();
    seqpoint->add_lengths(5 + 7 * i);
    seqpoint->add_read_lengths(5 + 7 * i);
    seqpoint->set_weight(125);
    seqpoint->set_share(0.125);
    seqpoint->set_mean_duration_ns(20e6 + 5e6 * i);
    seqpoint->set_measured(8);
    seqpoint->set_wanted(8);
    v1::ConfigCount* config = seqpoint->add_configs();
    config->set_config("dram");
    config->set_measured(8);
    config->set_wanted(8);
  }
  *reply.mutable_rule() = (*job)->rule();
  reply.set_unique_lengths((*job)->unique_lengths());
  reply.set_iterations((*job)->iterations());
  *reply.mutable_losses() = (*job)->losses();
  reply.set_job_id((*job)->id());
  return reply;
}

v1::Iteration FakeBackend::MakeIteration(int64_t number) const {
  v1::Iteration iteration;
  iteration.set_number(number);
  iteration.add_lengths(5 + number % 73);
  iteration.set_start_ns(1'767'348'900'000'000'000 + number * 40'000'000);
  iteration.set_duration_ns(40'000'000);
  iteration.set_boundary_ns(iteration.start_ns() - 1'000'000);
  iteration.set_level(v1::LEVEL_MARK);
  iteration.set_first_occurrence(number < 73);
  if (number % 100 == 7) {
    iteration.set_config("dram");
    iteration.set_level(v1::LEVEL_COUNTERS);
    iteration.set_distorted(true);
  }
  return iteration;
}

absl::StatusOr<v1::ListIterationsReply> FakeBackend::ListIterations(
    const v1::ListIterationsRequest& request) {
  absl::MutexLock lock(&mutex_);
  absl::StatusOr<v1::Job*> job = FindForFigures(request.job());
  if (!job.ok()) return job.status();
  v1::ListIterationsReply reply;
  reply.set_total(iterations_);
  int64_t number =
      request.page_token().empty() ? request.part().from() : std::stoll(request.page_token());
  for (; number < iterations_ && reply.iterations_size() < request.page_size(); ++number) {
    v1::Iteration iteration = MakeIteration(number);
    if (!request.measured_only() || !iteration.config().empty()) {
      *reply.add_iterations() = iteration;
    }
  }
  if (number < iterations_) reply.set_next_page_token(absl::StrCat(number));
  *reply.mutable_losses() = (*job)->losses();
  return reply;
}

absl::StatusOr<v1::ProjectReply> FakeBackend::Project(const v1::ProjectRequest& request) {
  absl::MutexLock lock(&mutex_);
  absl::StatusOr<v1::Job*> job = FindForFigures(request.job());
  if (!job.ok()) return job.status();
  const v1::Horizon& horizon = request.has_horizon() ? request.horizon() : (*job)->horizon();
  v1::ProjectReply reply;
  if (request.metric().empty() || request.metric() == "time") {
    *reply.mutable_projection() = Projected(**job, horizon, kIterationNs, request.confidence());
  } else if (request.metric() == "dram__bytes.sum") {
    *reply.mutable_projection() = Projected(**job, horizon, 3.2e9, request.confidence());
    reply.mutable_projection()->set_metric(request.metric());
    reply.mutable_projection()->set_unit("B");
  } else {
    return absl::InvalidArgumentError(absl::StrCat("metric \"", request.metric(),
                                                   "\" was not measured; `seqpoint counters ",
                                                   request.job(), "` lists those that were"));
  }
  if (request.has_part()) reply.set_part(PartWords(request.part()));
  *reply.mutable_losses() = (*job)->losses();
  *reply.mutable_job() = WithoutProcesses(**job);
  return reply;
}

absl::StatusOr<v1::GetCountersReply> FakeBackend::GetCounters(
    const v1::GetCountersRequest& request) {
  absl::MutexLock lock(&mutex_);
  absl::StatusOr<v1::Job*> job = FindForFigures(request.job());
  if (!job.ok()) return job.status();
  const v1::Horizon& horizon = request.has_horizon() ? request.horizon() : (*job)->horizon();
  v1::GetCountersReply reply;
  auto add = [&](const char* metric, const char* unit, double per_iteration) {
    v1::Counter* counter = reply.add_counters();
    counter->set_metric(metric);
    counter->set_unit(unit);
    *counter->mutable_projection() = Projected(**job, horizon, per_iteration, request.confidence());
    counter->mutable_projection()->set_metric(metric);
    counter->mutable_projection()->set_unit(unit);
    *counter->mutable_per_iteration() = Around(per_iteration, 0.002);
    counter->set_measured_iterations(32);
    counter->set_complete(true);
    return counter;
  };
  add("dram__bytes.sum", "B", 3.2e9);
  v1::Counter* tensor = add("sm__inst_executed_pipe_tensor.sum", "1", 1.7e8);
  tensor->set_complete(false);
  tensor->set_message("2 of 3 configurations were measured");
  add("flops.fp32", "1", 1.6e11)->set_derived(true);
  v1::Counter* ratio = add("dram__bytes.sum.per_second", "B/s", 8e10);
  ratio->set_ratio(true);
  ratio->clear_projection();
  v1::MeasuredIteration& measured = *reply.add_iterations();
  measured.set_number(107);
  measured.add_lengths(39);
  measured.set_config("dram");
  measured.set_duration_ns(44'000'000);
  measured.set_usual_duration_ns(kIterationNs);
  measured.set_complete(true);
  reply.set_slowdown(1.1);
  reply.set_metric_sets("dram");
  reply.set_message("the chip does not offer l2");
  reply.set_backend(v1::COUNTER_BACKEND_RANGE);
  reply.set_chip("GH100");
  if (request.has_part()) reply.set_part(PartWords(request.part()));
  reply.set_measured_iterations(64);
  *reply.mutable_losses() = (*job)->losses();
  *reply.mutable_job() = WithoutProcesses(**job);
  return reply;
}

absl::StatusOr<v1::GetRooflineReply> FakeBackend::GetRoofline(
    const v1::GetRooflineRequest& request) {
  absl::MutexLock lock(&mutex_);
  absl::StatusOr<v1::Job*> job = FindForFigures(request.job());
  if (!job.ok()) return job.status();
  v1::GetRooflineReply reply;
  v1::RooflineKernel& kernel = *reply.add_kernels();
  kernel.set_name("lstm_gemm_128x128_f32");
  kernel.set_launches(800);
  kernel.set_duration_ns(4e6);
  kernel.set_share(1);
  kernel.set_complete(true);
  kernel.set_operations(2e11);
  kernel.set_bytes(4e9);
  kernel.set_operations_per_byte(50);
  kernel.set_operations_per_s(5e13);
  kernel.set_bytes_per_s(1e12);
  kernel.set_compute_share(0.75);
  kernel.set_memory_share(0.3);
  kernel.set_roof_share(0.75);
  kernel.set_bound(v1::BOUND_COMPUTE);
  reply.set_kernel_names(1);
  v1::RooflineLength& length = *reply.add_lengths();
  length.add_lengths(32);
  length.set_measured_iterations(6);
  length.set_wanted_iterations(6);
  v1::Roof& roof = *reply.add_roofs();
  roof.set_name("memory");
  roof.set_unit("B/s");
  roof.set_per_s(3.3e12);
  reply.set_chip("GH100");
  *reply.mutable_losses() = (*job)->losses();
  reply.set_job_id((*job)->id());
  return reply;
}

absl::StatusOr<v1::GetRanksReply> FakeBackend::GetRanks(const v1::GetRanksRequest& request) {
  absl::MutexLock lock(&mutex_);
  absl::StatusOr<v1::Job*> job = FindForFigures(request.job());
  if (!job.ok()) return job.status();
  v1::GetRanksReply reply;
  v1::RankSummary& rank = *reply.add_ranks();
  rank.set_host((*job)->host());
  rank.set_pid(4711);
  reply.set_message("not known, because the job has one rank");
  *reply.mutable_losses() = (*job)->losses();
  reply.set_job_id((*job)->id());
  return reply;
}

absl::StatusOr<v1::GetKernelsReply> FakeBackend::GetKernels(const v1::GetKernelsRequest& request) {
  absl::MutexLock lock(&mutex_);
  absl::StatusOr<v1::Job*> job = FindForFigures(request.job());
  if (!job.ok()) return job.status();
  v1::GetKernelsReply reply;
  constexpr std::pair<const char*, double> kKernels[] = {
      {"lstm_gemm_128x128_f32", 0.61}, {"attention_softmax", 0.22}, {"adam", 0.17}};
  for (auto [name, share] : kKernels) {
    if (request.limit() > 0 && reply.kernels_size() == request.limit()) break;
    v1::Kernel* kernel = reply.add_kernels();
    kernel->set_name(name);
    kernel->set_launches(1e4);
    kernel->set_launches_low(1e4);
    kernel->set_launches_high(1e4);
    kernel->set_measured_iterations(12);
    kernel->set_share(share);
    *kernel->mutable_duration_ns() = Around(share * kIterationNs * (*job)->iterations(), 0.003);
  }
  if (request.has_part()) reply.set_part(PartWords(request.part()));
  reply.set_horizon_kind(request.has_horizon() ? request.horizon().kind()
                                               : (*job)->horizon().kind());
  *reply.mutable_losses() = (*job)->losses();
  reply.set_kernel_names(3);
  reply.set_measured_iterations(12);
  reply.set_confidence(request.confidence());
  *reply.mutable_job() = WithoutProcesses(**job);
  return reply;
}

absl::StatusOr<v1::CompareReply> FakeBackend::Compare(const v1::CompareRequest& request) {
  absl::MutexLock lock(&mutex_);
  v1::CompareReply reply;
  const double totals[2] = {40e9, 44e9};
  for (int r = 0; r < 2; ++r) {
    absl::StatusOr<v1::Job*> job = FindForFigures(r == 0 ? request.base() : request.other());
    if (!job.ok()) return job.status();
    v1::ComparedRun& run = r == 0 ? *reply.mutable_base() : *reply.mutable_other();
    run.set_job_id((*job)->id());
    run.set_name(absl::StrCat((*job)->name(), "@", (*job)->run_id()));
    run.set_iterations((*job)->iterations());
    run.set_timed_iterations((*job)->iterations());
    *run.mutable_duration_ns() = Around(totals[r], 0);
    run.set_traced_iterations(12);
    run.set_unmatched_share(0.002);
    run.set_clock_kind((*job)->clock_kind());
    *run.mutable_losses() = (*job)->losses();
    if (request.has_part()) run.set_part(PartWords(request.part()));
  }
  reply.set_confidence(request.confidence());
  *reply.mutable_difference_ns() = Around(4e9, 0.02);
  reply.set_iteration_ratio(1.1);
  const auto set = [](v1::DifferenceCause cause, const char* name, double value, double reach,
                      v1::DifferencePart* part) {
    part->set_cause(cause);
    part->set_name(name);
    const auto estimate = [&](double scale, v1::Estimate* to) {
      to->set_value(scale * value);
      to->set_low(scale * (value - reach));
      to->set_high(scale * (value + reach));
    };
    estimate(1, part->mutable_duration_ns());
    estimate(1 / 4e9, part->mutable_share());
    part->set_proven(std::abs(value) > reach);
  };
  set(v1::DIFFERENCE_CAUSE_ITERATIONS, "number of iterations", 0, 0, reply.add_parts());
  set(v1::DIFFERENCE_CAUSE_LENGTHS, "lengths", 0.1e9, 0.2e9, reply.add_parts());
  set(v1::DIFFERENCE_CAUSE_COST, "cost at equal lengths", 3.9e9, 0.2e9, reply.add_parts());
  set(v1::DIFFERENCE_CAUSE_DISTURBANCES, "stalls and first iterations of a length", 0, 0,
      reply.add_parts());
  v1::DifferencePart* kernel = reply.add_cost_parts();
  set(v1::DIFFERENCE_CAUSE_KERNEL, "lstm_gemm_128x128_f32", 3.8e9, 0.1e9, kernel);
  *kernel->mutable_base_duration_ns() = Around(24e9, 0.003);
  *kernel->mutable_other_duration_ns() = Around(27.8e9, 0.003);
  set(v1::DIFFERENCE_CAUSE_BETWEEN_KERNELS, "between kernels", 0.1e9, 0.2e9,
      reply.add_cost_parts());
  *reply.mutable_main_cause() = *kernel;
  if (request.has_part()) {
    reply.set_not_comparable("too few iterations of each length");
    reply.set_no_kernels("kernels are compared at equal lengths");
    reply.set_no_counters("there is none that was measured in both");
    return reply;
  }
  v1::ComparedCounter& counter = *reply.add_counters();
  counter.set_metric("dram__bytes.sum");
  counter.set_unit("B");
  *counter.mutable_base() = Around(3.2e12, 0.002);
  *counter.mutable_other() = Around(3.3e12, 0.002);
  *counter.mutable_base_at_equal_lengths() = Around(3.2e12, 0.002);
  *counter.mutable_other_at_equal_lengths() = Around(3.3e12, 0.002);
  *counter.mutable_difference_at_equal_lengths() = Around(1e11, 0.2);
  counter.set_proven(true);
  return reply;
}

absl::Status FakeBackend::Export(const v1::ExportRequest& request,
                                 absl::FunctionRef<bool(std::string_view)> write) {
  int64_t iterations;
  {
    absl::MutexLock lock(&mutex_);
    absl::StatusOr<v1::Job*> job = FindForFigures(request.job());
    if (!job.ok()) return job.status();
    iterations = iterations_;
  }
  std::string text = request.format() == v1::ExportRequest::FORMAT_CSV
                         ? "iteration,length,duration_ns\n"
                         : "{\"traceEvents\":[\n";
  for (int64_t number = 0; number < iterations; ++number) {
    v1::Iteration iteration = MakeIteration(number);
    if (request.format() == v1::ExportRequest::FORMAT_CSV) {
      absl::StrAppend(&text, number, ",", iteration.lengths(0), ",", iteration.duration_ns(), "\n");
    } else {
      absl::StrAppend(&text, number == 0 ? "" : ",\n", "{\"ph\":\"X\",\"name\":\"iteration ",
                      number, "\",\"pid\":0,\"tid\":0,\"ts\":", number * 40'000, ",\"dur\":40000}");
    }
  }
  if (request.format() != v1::ExportRequest::FORMAT_CSV) text += "]}\n";
  return write(text) ? absl::OkStatus() : absl::CancelledError("the client is gone");
}

absl::StatusOr<v1::SetHorizonReply> FakeBackend::SetHorizon(const v1::SetHorizonRequest& request) {
  absl::MutexLock lock(&mutex_);
  v1::Job* job = Find(request.job());
  if (job == nullptr) return NoSuchJob(request.job());
  *job->mutable_horizon() = request.horizon();
  *job->mutable_time() = Projected(*job, job->horizon(), kIterationNs, 0.95);
  if (job->end_ns() == 0 && job->time().has_remaining()) {
    const int64_t last_ns = job->start_ns() + job->iterations_duration_ns();
    job->mutable_expected_end()->set_last_iteration_ns(last_ns);
    const v1::Estimate& remaining = job->time().remaining();
    job->mutable_expected_end()->set_time_ns(last_ns + std::llround(remaining.value()));
    job->mutable_expected_end()->set_low_ns(last_ns + std::llround(remaining.low()));
    job->mutable_expected_end()->set_high_ns(last_ns + std::llround(remaining.high()));
  }
  job->set_generation(job->generation() + 1);
  v1::SetHorizonReply reply;
  *reply.mutable_job() = *job;
  return reply;
}

absl::StatusOr<v1::ControlReply> FakeBackend::Control(const v1::ControlRequest& request) {
  absl::MutexLock lock(&mutex_);
  v1::Job* job = Find(request.job());
  if (job == nullptr) return NoSuchJob(request.job());
  last_control_ = request;
  if (request.action() == v1::ControlRequest::ACTION_PAUSE) job->set_state(v1::JOB_STATE_PAUSED);
  if (request.action() == v1::ControlRequest::ACTION_RESUME) {
    job->set_state(v1::JOB_STATE_MARKING);
  }
  if (request.action() == v1::ControlRequest::ACTION_PROGRAM_ENDED) {
    if (request.signal() != 0) job->set_signal(request.signal());
    if (request.signal() == 0) job->set_exit_status(request.exit_status());
  }
  if (request.action() == v1::ControlRequest::ACTION_SET_OVERHEAD_BUDGET) {
    job->mutable_overhead()->set_budget_share(request.overhead_budget_share());
  }
  job->set_generation(job->generation() + 1);
  v1::ControlReply reply;
  *reply.mutable_job() = *job;
  return reply;
}

// Each length is measured once; the interval is 1 %, that of a random draw ten times as wide.
absl::StatusOr<v1::AnalyzeReply> FakeBackend::Analyze(const v1::AnalyzeRequest& request) {
  absl::MutexLock lock(&mutex_);
  last_analysis_ = request;
  if (!error_.ok()) return error_;
  struct Sum {
    double count = 0, duration = 0;
  };
  const auto sums_of = [](const v1::IterationLog& log) {
    std::map<std::pair<int64_t, int64_t>, Sum> sums;
    for (int i = 0; i < log.lengths_size(); ++i) {
      const int64_t second = log.second_lengths_size() > 0 ? log.second_lengths(i) : 0;
      Sum& sum = sums[{log.lengths(i), second}];
      sum.count += 1;
      sum.duration += log.durations(i);
    }
    return sums;
  };
  const v1::IterationLog& log = request.log();
  v1::AnalyzeReply reply;
  for (const double duration : log.durations()) reply.set_total(reply.total() + duration);
  for (const auto& [length, sum] : sums_of(log)) {
    v1::AnalyzedPoint& point = *reply.add_points();
    point.add_lengths(length.first);
    if (log.second_lengths_size() > 0) point.add_lengths(length.second);
    point.set_weight(sum.count);
    point.set_measurements(1);
    point.set_expected(sum.duration / sum.count);
    point.set_noise(0.02 * point.expected());
    *reply.add_paper_points() = point;
  }
  reply.set_iterations(log.lengths_size());
  reply.set_unique_lengths(reply.points_size());
  reply.set_verdict(v1::VERDICT_EXPLAINED);
  reply.set_explained_share(0.987);
  reply.set_drift_share(0.001);
  if (log.groups_size() > 0) {
    reply.set_start_up_iterations(1);
    reply.set_start_up_duration(log.durations(0));
  }
  for (const double duration : log.durations()) {
    if (duration * log.lengths_size() < 4 * reply.total()) continue;
    reply.set_slow_iterations(reply.slow_iterations() + 1);
  }
  if (reply.slow_iterations() > 0) reply.add_messages("some iterations took far longer");
  reply.set_confidence(request.confidence());
  *reply.mutable_projection() = Around(reply.total(), 0.01);
  if (request.playlist()) {
    v1::GetPlaylistReply& playlist = *reply.mutable_playlist();
    for (const v1::AnalyzedPoint& point : reply.points()) {
      v1::PlaylistPoint& to = *playlist.add_points();
      *to.mutable_lengths() = point.lengths();
      to.set_iteration(playlist.points_size() - 1);
      to.set_weight(point.weight());
      to.set_measurements(point.measurements());
      to.set_expected_duration_ns(point.expected());
      to.set_noise_duration_ns(point.noise());
    }
    playlist.set_iterations(reply.iterations());
    playlist.set_relative_error(0.01);
    playlist.set_confidence(request.confidence());
  }
  reply.set_paper_error(0.004);
  reply.set_random_measurements(reply.points_size());
  *reply.mutable_random() = Around(reply.total(), 0.1);
  if (const int64_t iterations = TotalIterations(request.horizon()); iterations > 0) {
    reply.set_horizon_iterations(iterations);
    *reply.mutable_horizon_projection() =
        Around(reply.total() / log.lengths_size() * static_cast<double>(iterations), 0.01);
  }
  if (request.has_against()) {
    const auto there = sums_of(request.against());
    double here_total = 0, there_total = 0;
    for (const auto& [length, sum] : sums_of(log)) {
      const auto it = there.find(length);
      if (it == there.end()) {
        reply.set_against_unknown_lengths(reply.against_unknown_lengths() + 1);
        continue;
      }
      here_total += sum.duration;
      there_total += sum.count * it->second.duration / it->second.count;
    }
    reply.set_against_iterations(request.against().lengths_size());
    for (const double d : request.against().durations()) {
      reply.set_against_total(reply.against_total() + d);
    }
    *reply.mutable_speedup() = Around(here_total / there_total, 0.01);
    *reply.mutable_speedup_all() = Around(here_total / there_total, 0.002);
    reply.set_speedup_means(reply.total() / log.lengths_size() /
                            (reply.against_total() / request.against().lengths_size()));
  }
  return reply;
}

absl::StatusOr<v1::ImportJobReply> FakeBackend::ImportJob(const v1::ImportJobRequest& request) {
  v1::Job job = SampleJob();
  const v1::IterationLog& log = request.log();
  double duration_ns = 0;
  for (const double duration : log.durations()) duration_ns += duration;
  job.set_name(request.name());
  job.set_run_id(request.run_id().empty() ? "imported" : request.run_id());
  job.set_command(request.source());
  job.set_imported(true);
  job.set_state(v1::JOB_STATE_ENDED);
  job.set_end_ns(job.start_ns() + static_cast<int64_t>(duration_ns));
  job.set_iterations(log.lengths_size());
  job.set_unique_lengths(
      static_cast<int64_t>(std::set<int64_t>(log.lengths().begin(), log.lengths().end()).size()));
  job.set_iterations_duration_ns(static_cast<int64_t>(duration_ns));
  job.set_live_processes(0);
  job.mutable_rule()->set_boundary("each row of the imported log");
  job.mutable_rule()->set_length(request.source());
  job.mutable_rule()->set_length_dimensions(log.second_lengths_size() > 0 ? 2 : 1);
  job.mutable_rule()->set_confidence(1);
  job.clear_seqpoints();
  job.clear_losses();
  job.clear_phases();
  job.clear_processes();
  job.clear_overhead();
  job.mutable_horizon()->set_kind(v1::Horizon::KIND_ITERATIONS);
  job.mutable_horizon()->set_iterations(log.lengths_size());
  job.mutable_horizon()->set_source("the imported log");
  v1::ImportJobReply reply;
  absl::MutexLock lock(&mutex_);
  last_import_ = request;
  if (Find(absl::StrCat(job.name(), "@", job.run_id())) != nullptr) {
    return absl::AlreadyExistsError(
        absl::StrCat("there is a job \"", job.name(), "@", job.run_id(), "\" already"));
  }
  job.set_id(absl::StrCat(jobs_.size() + 1));
  *job.mutable_time() =
      Projected(job, job.horizon(), duration_ns / static_cast<double>(log.lengths_size()), 0.95);
  *reply.mutable_job() = jobs_[job.id()] = job;
  return reply;
}

absl::StatusOr<v1::GetPlaylistReply> FakeBackend::GetPlaylist(
    const v1::GetPlaylistRequest& request) {
  absl::MutexLock lock(&mutex_);
  absl::StatusOr<v1::Job*> job = FindForFigures(request.job());
  if (!job.ok()) return job.status();
  v1::GetPlaylistReply reply;
  const int points = request.points() > 0         ? std::min(request.points(), 16)
                     : request.target_error() > 0 ? 8
                                                  : 4;
  for (int i = 0; i < points; ++i) {
    v1::PlaylistPoint& point = *reply.add_points();
    point.add_lengths(10 + 5 * i);
    point.set_iteration(100 + i);
    point.set_weight(static_cast<double>((*job)->iterations()) / points);
    point.set_measurements(1);
    point.set_expected_duration_ns(kIterationNs * (i + 1) / points);
    point.set_noise_duration_ns(0.01 * kIterationNs);
  }
  reply.set_iterations((*job)->iterations());
  reply.set_verdict((*job)->rule().verdict());
  reply.set_relative_error(request.target_error() > 0 ? request.target_error() : 0.02);
  reply.set_confidence(request.confidence());
  reply.set_message("what first iterations took on top is left out, 2.0 % of the run's time");
  reply.set_job_id((*job)->id());
  return reply;
}

absl::StatusOr<v1::ProjectPlaylistReply> FakeBackend::ProjectPlaylist(
    const v1::ProjectPlaylistRequest& request) {
  absl::MutexLock lock(&mutex_);
  if (!error_.ok()) return error_;
  double total = 0, expected = 0, iterations = 0;
  for (int i = 0; i < request.points_size(); ++i) {
    const v1::PlaylistPoint& point = request.points(i);
    if (request.measured(i) == 0) {
      return absl::InvalidArgumentError(absl::StrCat("nobody measured length ", point.lengths(0)));
    }
    iterations += point.weight();
    total += point.weight() * request.durations_ns(i);
    expected += point.weight() * point.expected_duration_ns();
  }
  v1::ProjectPlaylistReply reply;
  v1::Projection& projection = *reply.mutable_projection();
  projection.set_metric("time");
  projection.set_unit("ns");
  projection.set_confidence(request.confidence());
  projection.set_iterations_total(static_cast<int64_t>(iterations + 0.5));
  *projection.mutable_total() = Around(total, 0.004);
  *projection.mutable_per_1000_iterations() = Around(total / iterations * 1000, 0.004);
  projection.set_basis(absl::StrCat(request.points_size(), " points"));
  *reply.mutable_speedup() = Around(expected / total, 0.004);
  return reply;
}

absl::StatusOr<v1::ImportTraceReply> FakeBackend::ImportTrace(
    absl::FunctionRef<absl::StatusOr<bool>(v1::ImportTraceRequest*)> next) {
  ++traces_;
  const absl::Cleanup done = [this] { --traces_; };
  TraceImport import;
  v1::ImportTraceRequest piece;
  while (true) {
    const absl::StatusOr<bool> more = next(&piece);
    if (!more.ok()) return more.status();
    if (!*more) break;
    if (import.name.empty()) {
      import.name = piece.name();
      import.run_id = piece.run_id();
      import.marker = piece.marker();
    }
    if (!piece.file().empty()) import.files.emplace_back(piece.file(), "");
    if (import.files.empty()) continue;
    import.files.back().second += piece.data();
    import.largest_piece_bytes = std::max(import.largest_piece_bytes, piece.data().size());
    if (import.files.back().second.rfind("not a trace", 0) == 0) {
      return absl::InvalidArgumentError(absl::StrCat(import.files.back().first, " is not a trace"));
    }
  }
  v1::Job job = SampleJob();
  job.set_name(import.name);
  job.set_run_id(import.run_id.empty() ? "imported" : import.run_id);
  job.set_command(absl::StrCat("PyTorch (Kineto), ", import.files[0].first));
  job.set_imported(true);
  job.set_state(v1::JOB_STATE_ENDED);
  job.set_end_ns(job.start_ns() + job.iterations_duration_ns());
  job.set_live_processes(0);
  job.clear_seqpoints();
  job.clear_losses();
  job.clear_phases();
  job.clear_processes();
  job.clear_overhead();
  v1::ImportTraceReply reply;
  for (const auto& [name, data] : import.files) {
    v1::ImportedTrace& trace = *reply.add_traces();
    trace.set_file(name);
    trace.set_rank(reply.traces_size() - 1);
    trace.set_iterations(1'000);
    trace.set_boundary("annotation ProfilerStep#");
    trace.set_calls(52'000);
    trace.set_gpu_tasks(40'000);
    if (data.size() < 100) trace.set_message("the file is cut: only what is before is read");
  }
  absl::MutexLock lock(&mutex_);
  if (!error_.ok()) return error_;
  if (Find(absl::StrCat(job.name(), "@", job.run_id())) != nullptr) {
    return absl::AlreadyExistsError(
        absl::StrCat("there is a job \"", job.name(), "@", job.run_id(), "\" already"));
  }
  last_trace_import_ = std::move(import);
  job.set_id(absl::StrCat(jobs_.size() + 1));
  *reply.mutable_job() = jobs_[job.id()] = job;
  return reply;
}

absl::StatusOr<v1::ReplayReply> FakeBackend::Replay(const v1::ReplayRequest& request,
                                                    absl::FunctionRef<bool()> cancelled) {
  if (request.job() == "endless") {
    ++replays_;
    while (!cancelled()) absl::SleepFor(absl::Milliseconds(1));
    --replays_;
    return absl::CancelledError("nobody waits for the answer any more");
  }
  absl::MutexLock lock(&mutex_);
  absl::StatusOr<v1::Job*> job = FindForFigures(request.job());
  if (!job.ok()) return job.status();
  v1::ReplayReply reply;
  for (int i = 0; i < 60; ++i) {
    v1::ReplayedIteration& iteration = *reply.add_iterations();
    iteration.set_number(i / 2);
    iteration.set_rank(i % 2);
    iteration.add_lengths(5 + i / 2);
    iteration.set_measured_duration_ns(kIterationNs);
    iteration.set_replayed_duration_ns(kIterationNs * (i == 35 ? 0.97 : 1 + 1e-4 * i));
  }
  reply.set_mean_error(0.0024);
  reply.set_worst_error(-0.03);
  const auto add = [](v1::TimeShare* share, const char* what, double of_iteration) {
    share->set_category(what);
    share->set_duration_ns(of_iteration * kIterationNs);
    share->set_share(of_iteration);
  };
  add(reply.add_critical_path(), "kernels", 0.75);
  add(reply.add_critical_path(), "launches", 0.25);
  add(reply.add_idle(), "data loading", 0.125);
  reply.set_tasks(123'456);
  reply.add_messages("12 tasks begin later than the trace explains, 1.2 ms in all");
  *reply.mutable_losses() = (*job)->losses();
  reply.set_job_id((*job)->id());
  return reply;
}

absl::StatusOr<v1::WhatIfReply> FakeBackend::WhatIf(const v1::WhatIfRequest& request,
                                                    absl::FunctionRef<bool()> cancelled) {
  absl::MutexLock lock(&mutex_);
  last_what_if_ = request;
  absl::StatusOr<v1::Job*> job = FindForFigures(request.job());
  if (!job.ok()) return job.status();
  const v1::Horizon& horizon = request.has_horizon() ? request.horizon() : (*job)->horizon();
  v1::WhatIfReply reply;
  reply.set_ranks(1);
  reply.set_whole_run(TotalIterations(horizon) > 0);
  reply.set_iterations(reply.whole_run() ? TotalIterations(horizon) : (*job)->iterations());
  const double before_ns = kIterationNs * static_cast<double>(reply.iterations());
  const auto add = [&](const std::string& name, const std::string& title, double saved_share) {
    v1::WhatIfAnswer& answer = *reply.add_answers();
    answer.set_name(name);
    answer.set_title(title);
    answer.set_source("Daydream, section 5.1");
    answer.set_assumption("kernels bound by compute run on tensor cores");
    answer.set_applies(true);
    *answer.mutable_before() = Around(before_ns, 0.004);
    *answer.mutable_after() = Around(before_ns * (1 - saved_share), 0.004);
    *answer.mutable_saved() = Around(before_ns * saved_share, 0.04);
    return &answer;
  };
  if (request.list()) {
    add("amp", "mixed precision", 0.25);
    add("cuda-graphs", "CUDA graphs", 0.125)
        ->add_warnings("doubtful for 12.5 % of the time of launches: they are graphs already");
    v1::WhatIfAnswer* none = add("batch-norm", "batch normalisation, restructured", 0);
    none->set_applies(false);
    none->add_warnings("there is nothing in the trace that it could change");
  } else {
    std::string name;
    for (const v1::WhatIfChange& change : request.changes()) {
      absl::StrAppend(&name, name.empty() ? "" : " + ",
                      change.preset().empty() ? change.name() : change.preset());
    }
    v1::WhatIfAnswer& answer = *add(name, "mixed precision", 0.25);
    answer.add_warnings("doubtful for 7 % of the time of kernels: these run in half precision");
    for (int i = 0; i < 8; ++i) {
      v1::WhatIfSeqPoint& point = *answer.add_seqpoints();
      point.add_lengths(5 + 7 * i);
      point.set_weight(static_cast<double>(reply.iterations()) / 8);
      point.set_before_duration_ns(20e6 + 5e6 * i);
      point.set_after_duration_ns(21e6 + 3e6 * i);
      point.set_traces(i % 4);
    }
    v1::WhatIfKernel& kernel = *answer.add_kernels();
    kernel.set_name("lstm_gemm_128x128_f32");
    kernel.set_before_duration_ns(before_ns / 2);
    kernel.set_after_duration_ns(before_ns / 4);
    v1::WhatIfKernel& gone = *answer.add_kernels();
    gone.set_name("adam");
    gone.set_before_duration_ns(before_ns / 10);
    for (auto* path :
         {answer.mutable_critical_path_before(), answer.mutable_critical_path_after()}) {
      v1::TimeShare& share = *path->Add();
      share.set_category("kernels");
      share.set_share(path == answer.mutable_critical_path_before() ? 0.75 : 0.5);
      share.set_duration_ns(share.share() * kIterationNs);
    }
    v1::WhatIfStep& step = *answer.add_steps();
    step.set_text("scale kernels where bound = compute by 1/3");
    step.set_tasks(4'200);
    answer.set_measured_bounds(12);
    answer.set_guessed_bounds(30);
  }
  reply.set_confidence(request.confidence());
  reply.set_traces(12);
  reply.set_replay_error(0.003);
  reply.set_basis("12 traced iterations of 8 lengths");
  *reply.mutable_job() = WithoutProcesses(**job);
  *reply.mutable_losses() = (*job)->losses();
  reply.set_clock_kind(v1::CLOCK_KIND_REAL);
  return reply;
}

}  // namespace seqpoint::rpc
