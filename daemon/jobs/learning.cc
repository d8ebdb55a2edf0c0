#include "daemon/jobs/learning.h"

#include <map>
#include <utility>

#include "daemon/jobs/payload.h"

namespace seqpoint::jobs {
namespace {

template <typename T>
std::vector<uint8_t> Bytes(const T& event) {
  const auto* data = reinterpret_cast<const uint8_t*>(&event);
  return {data, data + sizeof(T)};
}

uint8_t FlagsOf(const abi::CallRecord& boundary, bool hole) {
  return static_cast<uint8_t>(((boundary.flags & abi::kCallHostTime) != 0 ? abi::kHostTime : 0) |
                              (hole ? abi::kDistorted : 0));
}

}  // namespace

bool FeedBuilder(abi::EventType type, absl::Span<const uint8_t> payload, int64_t offset,
                 IterationBuilder& builder) {
  const auto feed = [&]<typename Event>(void (IterationBuilder::*take)(const Event&)) {
    std::optional<Event> event = Fixed<Event>(payload);
    if (!event) return false;
    event->iteration += offset;
    (builder.*take)(*event);
    return true;
  };
  switch (type) {
    case abi::EventType::kBoundary:
      return feed(&IterationBuilder::OnBoundary);
    case abi::EventType::kDecision:
      return feed(&IterationBuilder::OnDecision);
    case abi::EventType::kStep:
      return feed(&IterationBuilder::OnStep);
    case abi::EventType::kClock:
      return feed(&IterationBuilder::OnClock);
    case abi::EventType::kSync:
      return feed(&IterationBuilder::OnSync);
    case abi::EventType::kMicroBatch:
      return feed(&IterationBuilder::OnMicroBatch);
    default:
      return false;
  }
}

void Learning::OnName(uint32_t name_id, std::string_view text) {
  names_.Add(name_id, text);
  learner_.AddName(name_id, text);
}

void Learning::OnCall(const abi::CallRecord& call) {
  if (gave_up_) return;
  if (calls_.size() >= kMaxCalls) {
    gave_up_ = true;
    calls_ = {};
    return;
  }
  calls_.push_back(call);
  if (has_rule_) {
    Segment(call);
  } else {
    learner_.AddCall(call);
  }
}

void Learning::OnGpuStart(uint32_t correlation_id, uint64_t start_ns) {
  if (!has_rule_) learner_.AddGpuStart(correlation_id, start_ns);
}

void Learning::OnLibraryEvent(abi::EventType type, absl::Span<const uint8_t> payload) {
  // Only the latest can still agree with calls that come.
  if (library_.size() >= kMaxLibraryEvents) library_.pop_front();
  library_.push_back({type, {payload.begin(), payload.end()}});
}

const LearnedRule* Learning::learned() const { return has_rule_ ? nullptr : learner_.rule(); }

std::string Learning::Explanation() const { return has_rule_ ? "" : learner_.Explanation(); }

void Learning::SetRule(const abi::Rule& rule) {
  has_rule_ = true;
  iterates_ = false;
  matcher_.SetRule(rule, static_cast<uint64_t>(first_number_), /*inside=*/false);
  ours_.clear();
  hole_ = false;
  last_call_.reset();
  library_.clear();  // events of an earlier rule
  for (const abi::CallRecord& call : calls_) Segment(call);
}

// The events the library would have sent for this call.
void Learning::Segment(const abi::CallRecord& call) {
  const uint32_t flags = matcher_.OnEvent(iterations::ToMatchEvent(call, names_));
  const abi::MatchResult& result = matcher_.result();
  const uint64_t api_ns = call.api_ns;
  // Where calls are missing there may have been iterations, and one seems to take their time.
  const bool missing = last_call_ && call.sequence != *last_call_ + 1;
  last_call_ = call.sequence;
  hole_ = hole_ || missing || (call.flags & abi::kCallAfterHole) != 0;
  if (flags & abi::kMatchedMicroLengths) {
    ours_.push_back({abi::EventType::kMicroBatch, Bytes(result.micro_batch)});
  }
  if (flags & abi::kMatchedStep) {
    iterates_ = true;
    abi::StepEvent step = result.step;
    step.api_ns = api_ns;
    ours_.push_back({abi::EventType::kStep, Bytes(step)});
  }
  if (flags & abi::kMatchedBoundary) {
    boundary_thread_ = call.thread_id;
    ours_.push_back(
        {abi::EventType::kBoundary, Bytes(abi::BoundaryEvent{.iteration = result.iteration,
                                                             .api_ns = api_ns,
                                                             .call_sequence = call.sequence,
                                                             .correlation_id = call.correlation_id,
                                                             .flags = FlagsOf(call, hole_)})});
    hole_ = false;
  }
  if (flags & abi::kMatchedDecision) {
    ours_.push_back({abi::EventType::kDecision,
                     Bytes(abi::DecisionEvent{.iteration = result.iteration,
                                              .api_ns = api_ns,
                                              .length = {result.length[0], result.length[1]},
                                              .valid = result.valid})});
  }
  if (flags & abi::kMatchedClock) {
    ours_.push_back(
        {abi::EventType::kClock, Bytes(abi::ClockEvent{.iteration = result.iteration,
                                                       .api_ns = api_ns,
                                                       .correlation_id = call.correlation_id})});
  }
  if (iterations::WaitsForWork(call) && call.thread_id == boundary_thread_) {
    ours_.push_back({abi::EventType::kSync, Bytes(abi::SyncEvent{.iteration = matcher_.iteration(),
                                                                 .begin_ns = api_ns - call.bytes,
                                                                 .end_ns = api_ns,
                                                                 .op = call.op})});
  }
}

std::optional<int64_t> Learning::Agree(IterationBuilder& builder) {
  if (!has_rule_ || library_.empty()) return std::nullopt;
  // The iterations our matcher saw whole: boundary call -> (number, position of the step).
  std::map<uint64_t, std::pair<uint64_t, size_t>> steps;
  uint64_t boundary_call = 0;
  for (size_t i = 0; i < ours_.size(); ++i) {
    if (ours_[i].type == abi::EventType::kBoundary) {
      boundary_call = Fixed<abi::BoundaryEvent>(ours_[i].payload)->call_sequence;
    } else if (ours_[i].type == abi::EventType::kStep) {
      steps[boundary_call] = {Fixed<abi::StepEvent>(ours_[i].payload)->iteration, i};
    }
  }
  bool has_boundary = false;
  for (size_t i = 0; i < library_.size(); ++i) {
    if (library_[i].type == abi::EventType::kBoundary) {
      const auto event = Fixed<abi::BoundaryEvent>(library_[i].payload);
      if (!event) continue;
      boundary_call = event->call_sequence;
      has_boundary = true;
    }
    if (library_[i].type != abi::EventType::kStep || !has_boundary) continue;
    const auto event = Fixed<abi::StepEvent>(library_[i].payload);
    if (!event) continue;
    const auto it = steps.find(boundary_call);
    if (it == steps.end()) continue;
    const int64_t offset = static_cast<int64_t>(it->second.first - event->iteration);
    for (size_t j = 0; j <= it->second.second; ++j) {
      FeedBuilder(ours_[j].type, ours_[j].payload, 0, builder);
    }
    for (size_t j = i + 1; j < library_.size(); ++j) {
      FeedBuilder(library_[j].type, library_[j].payload, offset, builder);
    }
    return offset;
  }
  return std::nullopt;
}

void Learning::Finish(IterationBuilder& builder) {
  for (const Event& event : ours_) FeedBuilder(event.type, event.payload, 0, builder);
}

std::optional<LearnedRule> Learning::Analyse() const {
  if (has_rule_) return std::nullopt;
  std::optional<LearnedRule> learned = learner_.Analyse();
  if (learned && learned->open) learned.reset();
  return learned;
}

void Learning::SaveQueue(google::protobuf::RepeatedPtrField<LibraryEvent>* to) const {
  for (const Event& event : library_) {
    LibraryEvent& saved = *to->Add();
    saved.set_type(static_cast<uint32_t>(event.type));
    saved.set_payload(std::string(event.payload.begin(), event.payload.end()));
  }
}

void Learning::LoadQueue(const google::protobuf::RepeatedPtrField<LibraryEvent>& from) {
  library_.clear();
  for (const LibraryEvent& saved : from) {
    library_.push_back({static_cast<abi::EventType>(saved.type()),
                        {saved.payload().begin(), saved.payload().end()}});
  }
}

}  // namespace seqpoint::jobs
