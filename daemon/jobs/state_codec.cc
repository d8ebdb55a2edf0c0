#include "daemon/jobs/state_codec.h"

namespace seqpoint::jobs {
namespace {

using Candidate = IterationBuilder::Candidate;
using Pending = IterationBuilder::Pending;

void Encode(const Candidate& from, CandidateState* to) {
  to->set_api_ns(from.api_ns);
  to->set_call_sequence(from.call_sequence);
  to->set_correlation_id(from.correlation_id);
  to->set_gpu_ns(from.gpu_ns);
  to->set_waited(from.waited);
}

Candidate Decode(const CandidateState& from) {
  return {.api_ns = from.api_ns(),
          .call_sequence = from.call_sequence(),
          .correlation_id = from.correlation_id(),
          .gpu_ns = from.gpu_ns(),
          .waited = from.waited()};
}

using MicroLengths = std::vector<std::array<int64_t, 2>>;

void Encode(const MicroLengths& from, google::protobuf::RepeatedField<int64_t>* to) {
  for (const auto& lengths : from) to->Add(lengths.begin(), lengths.end());
}

MicroLengths DecodeMicroLengths(const google::protobuf::RepeatedField<int64_t>& from) {
  MicroLengths to;
  for (int i = 0; i + 1 < from.size(); i += 2) to.push_back({from[i], from[i + 1]});
  return to;
}

void Encode(const Pending& from, IterationState* to) {
  const FinishedIteration& iteration = from.iteration;
  to->set_number(iteration.number);
  for (const int64_t length : iteration.length) to->add_length(length);
  to->set_valid(iteration.valid);
  to->set_call_sequence(iteration.call_sequence);
  to->set_config_id(iteration.config_id);
  to->set_micro_batches(iteration.micro_batches);
  to->set_distorted(iteration.distorted);
  to->set_other_batches(iteration.other_batches);
  Encode(from.begin, to->mutable_begin());
  Encode(from.end, to->mutable_end());
  Encode(from.other, to->mutable_other());
  to->set_ended(from.has_end);
  Encode(iteration.micro_lengths, to->mutable_micro_length());
  to->set_micro_valid(from.micro_valid);
  to->set_step_ns(from.step_ns);
  to->set_host_time(from.host_time);
  to->set_clock_set(from.clock_set);
}

Pending Decode(const IterationState& from) {
  Pending to;
  FinishedIteration& iteration = to.iteration;
  iteration.number = from.number();
  for (int i = 0; i < 2 && i < from.length_size(); ++i) iteration.length[i] = from.length(i);
  iteration.valid = from.valid();
  iteration.call_sequence = from.call_sequence();
  iteration.config_id = static_cast<uint16_t>(from.config_id());
  iteration.micro_batches = from.micro_batches();
  iteration.distorted = from.distorted();
  iteration.other_batches = from.other_batches();
  to.begin = Decode(from.begin());
  to.end = Decode(from.end());
  to.other = Decode(from.other());
  to.has_end = from.ended();
  iteration.micro_lengths = DecodeMicroLengths(from.micro_length());
  to.micro_valid = from.micro_valid();
  to.step_ns = from.step_ns();
  to.host_time = from.host_time();
  to.clock_set = from.clock_set();
  return to;
}

}  // namespace

void EncodeBuilder(const IterationBuilder::State& from, BuilderState* to) {
  to->set_has_number(from.has_number);
  to->set_number(from.number);
  to->set_begun(from.has_begin);
  Encode(from.begin, to->mutable_begin());
  Encode(from.other, to->mutable_other());
  to->set_candidates(from.candidates);
  Encode(from.open, to->mutable_open());
  to->set_waited(from.waited);
  for (const Pending& pending : from.pending) Encode(pending, to->add_pending());
  to->set_lost_iterations(from.lost_iterations);
  to->set_early_clock(from.early_clock);
  to->set_host_time(from.host_time);
  to->set_longest_rest_ns(from.longest_rest_ns);
  to->set_first_ns(from.first_ns);
  to->set_others(from.others);
  to->set_others_ns(from.others_ns);
  to->set_stretch_begin_ns(from.stretch_begin_ns);
  to->set_stretch_next(from.stretch_next);
  to->set_stretch(from.stretch);
  for (const IterationBuilder::ClockStep& step : from.clock_steps) {
    to->add_clock_step_calls(step.first_call);
    to->add_clock_step_calls(step.last_call);
  }
}

IterationBuilder::State DecodeBuilder(const BuilderState& from) {
  IterationBuilder::State to;
  to.has_number = from.has_number();
  to.number = from.number();
  to.has_begin = from.begun();
  to.begin = Decode(from.begin());
  to.other = Decode(from.other());
  to.candidates = from.candidates();
  to.open = Decode(from.open());
  to.waited = from.waited();
  for (const IterationState& pending : from.pending()) to.pending.push_back(Decode(pending));
  to.lost_iterations = from.lost_iterations();
  to.early_clock = from.early_clock();
  to.host_time = from.host_time();
  to.longest_rest_ns = from.longest_rest_ns();
  to.first_ns = from.first_ns();
  to.others = from.others();
  to.others_ns = from.others_ns();
  to.stretch_begin_ns = from.stretch_begin_ns();
  to.stretch_next = from.stretch_next();
  to.stretch = from.stretch();
  for (int i = 0; i + 1 < from.clock_step_calls_size(); i += 2) {
    to.clock_steps.push_back({from.clock_step_calls(i), from.clock_step_calls(i + 1)});
  }
  return to;
}

void Encode(const FinishedIteration& from, FinishedState* to) {
  to->set_number(from.number);
  for (const int64_t length : from.length) to->add_length(length);
  to->set_valid(from.valid);
  to->set_boundary_ns(from.boundary_ns);
  to->set_start_ns(from.start_ns);
  to->set_duration_ns(from.duration_ns);
  to->set_rest_ns(from.rest_ns);
  to->set_stretch(from.stretch);
  to->set_stretch_ns(from.stretch_ns);
  to->set_config_id(from.config_id);
  to->set_micro_batches(from.micro_batches);
  to->set_distorted(from.distorted);
  to->set_gpu_time(from.gpu_time);
  to->set_other_batches(from.other_batches);
  to->set_other_duration_ns(from.other_duration_ns);
  Encode(from.micro_lengths, to->mutable_micro_length());
}

FinishedIteration Decode(const FinishedState& from) {
  FinishedIteration to;
  to.number = from.number();
  for (int i = 0; i < 2 && i < from.length_size(); ++i) to.length[i] = from.length(i);
  to.valid = from.valid();
  to.boundary_ns = from.boundary_ns();
  to.start_ns = from.start_ns();
  to.duration_ns = from.duration_ns();
  to.rest_ns = from.rest_ns();
  to.stretch = from.stretch();
  to.stretch_ns = from.stretch_ns();
  to.config_id = static_cast<uint16_t>(from.config_id());
  to.micro_batches = from.micro_batches();
  to.distorted = from.distorted();
  to.gpu_time = from.gpu_time();
  to.other_batches = from.other_batches();
  to.other_duration_ns = from.other_duration_ns();
  to.micro_lengths = DecodeMicroLengths(from.micro_length());
  return to;
}

}  // namespace seqpoint::jobs
