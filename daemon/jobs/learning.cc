#include "daemon/jobs/learning.h"

#include <algorithm>
#include <map>
#include <utility>

#include "daemon/iterations/first_call.h"
#include "daemon/jobs/payload.h"

namespace seqpoint::jobs {
namespace {

using Events = google::protobuf::RepeatedPtrField<MatchedEvent>;

void Append(abi::EventType type, absl::Span<const uint8_t> payload, Events& to) {
  MatchedEvent& event = *to.Add();
  event.set_type(static_cast<uint32_t>(type));
  event.set_payload(payload.data(), payload.size());
}

template <typename T>
void AppendOwn(abi::EventType type, const T& event, Events& to) {
  Append(type, {reinterpret_cast<const uint8_t*>(&event), sizeof(event)}, to);
}

absl::Span<const uint8_t> PayloadOf(const MatchedEvent& event) {
  return {reinterpret_cast<const uint8_t*>(event.payload().data()), event.payload().size()};
}

// Nothing when the event has another type.
template <typename T>
std::optional<T> As(abi::EventType type, const MatchedEvent& event) {
  if (event.type() != static_cast<uint32_t>(type)) return std::nullopt;
  return Fixed<T>(PayloadOf(event));
}

void Feed(const MatchedEvent& event, int64_t offset, IterationBuilder& builder) {
  FeedBuilder(static_cast<abi::EventType>(event.type()), PayloadOf(event), offset, builder);
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
  } else if (learner_.AddCall(call) && learner_.rule() != nullptr) {
    learned_at_ = calls_.size();
  }
}

void Learning::OnGpuStart(uint32_t correlation_id, uint64_t start_ns) {
  if (!has_rule_) learner_.AddGpuStart(correlation_id, start_ns);
}

void Learning::OnLibraryEvent(abi::EventType type, absl::Span<const uint8_t> payload) {
  Events& events = *state_.mutable_library_events();
  // Only the latest can still agree with calls that come.
  if (events.size() >= kMaxLibraryEvents) events.DeleteSubrange(0, kMaxLibraryEvents / 2);
  Append(type, payload, events);
}

const LearnedRule* Learning::learned() const { return has_rule_ ? nullptr : learner_.rule(); }

bool Learning::Fits(const abi::Rule& rule) const {
  abi::Matcher matcher(rule);
  size_t steps = 0, fitting = 0;
  for (size_t i = 0; i < calls_.size(); ++i) {
    const uint32_t flags = matcher.OnEvent(iterations::ToMatchEvent(calls_[i], names_));
    if ((flags & abi::kMatchedStep) == 0 || i < calls_.size() / 2) continue;
    ++steps;
    fitting += matcher.result().step.micro_batches == std::max(1u, rule.micro_batches) ? 1 : 0;
  }
  return fitting * 2 > steps;
}

bool Learning::waited() const {
  constexpr size_t kFull = kMaxCalls / 10 * 9;  // then learning is about to be given up
  return learned_at_ > 0 && calls_.size() >= std::min(learned_at_ + learned_at_ / 2, kFull);
}

std::string Learning::Explanation() const { return has_rule_ ? "" : learner_.Explanation(); }

void Learning::SetRule(const abi::Rule& rule) {
  has_rule_ = true;
  first_call_known_ = false;
  state_.clear_library_events();  // events of an earlier rule
  SegmentAll(rule, std::nullopt);
}

void Learning::SegmentAll(const abi::Rule& rule, std::optional<size_t> first) {
  iterations_ = 0;
  ours_.Clear();
  hole_ = false;
  after_hole_.reset();
  if (!calls_.empty() && calls_[0].sequence != 0) after_hole_ = state_.first_number();
  last_call_.reset();
  matcher_.SetRule(rule, static_cast<uint64_t>(state_.first_number()), /*inside=*/false);
  if (first) matcher_.ExpectBegin();
  for (size_t i = first.value_or(0); i < calls_.size(); ++i) Segment(calls_[i]);
}

// Later iterations tell which calls belong to the program's set-up.
void Learning::FindFirstCall() {
  if (std::exchange(first_call_known_, true) || calls_.empty() || calls_[0].sequence != 0) return;
  const std::optional<size_t> first = iterations::FirstCall(calls_, names_, matcher_.rule());
  if (first) SegmentAll(matcher_.rule(), first);
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
    AppendOwn(abi::EventType::kMicroBatch, result.micro_batch, ours_);
  }
  if (flags & abi::kMatchedStep) {
    ++iterations_;
    abi::StepEvent step = result.step;
    step.api_ns = api_ns;
    AppendOwn(abi::EventType::kStep, step, ours_);
  }
  if (flags & abi::kMatchedBoundary) {
    boundary_thread_ = call.thread_id;
    if (hole_) after_hole_ = static_cast<int64_t>(result.iteration);
    AppendOwn(abi::EventType::kBoundary,
              abi::BoundaryEvent{.iteration = result.iteration,
                                 .api_ns = api_ns,
                                 .call_sequence = call.sequence,
                                 .correlation_id = call.correlation_id,
                                 .flags = FlagsOf(call, hole_)},
              ours_);
    hole_ = false;
  }
  if (flags & abi::kMatchedDecision) {
    AppendOwn(abi::EventType::kDecision,
              abi::DecisionEvent{.iteration = result.iteration,
                                 .api_ns = api_ns,
                                 .length = {result.length[0], result.length[1]},
                                 .valid = result.valid},
              ours_);
  }
  if (flags & abi::kMatchedClock) {
    AppendOwn(
        abi::EventType::kClock,
        abi::ClockEvent{
            .iteration = result.iteration, .api_ns = api_ns, .correlation_id = call.correlation_id},
        ours_);
  }
  if (iterations::WaitsForWork(call) && call.thread_id == boundary_thread_) {
    AppendOwn(abi::EventType::kSync,
              abi::SyncEvent{.iteration = matcher_.iteration(),
                             .begin_ns = api_ns - call.bytes,
                             .end_ns = api_ns,
                             .op = call.op},
              ours_);
  }
}

std::optional<int64_t> Learning::Agree(IterationBuilder& builder) {
  const Events& library = state_.library_events();
  if (!has_rule_ || library.empty() || iterations_ < 2) return std::nullopt;
  FindFirstCall();
  // The iterations our matcher saw whole: boundary call -> (number, position of the step).
  std::map<uint64_t, std::pair<uint64_t, int>> steps;
  uint64_t boundary_call = 0;
  for (int i = 0; i < ours_.size(); ++i) {
    if (const auto boundary = As<abi::BoundaryEvent>(abi::EventType::kBoundary, ours_[i])) {
      boundary_call = boundary->call_sequence;
    } else if (const auto step = As<abi::StepEvent>(abi::EventType::kStep, ours_[i])) {
      steps[boundary_call] = {step->iteration, i};
    }
  }
  bool has_boundary = false;
  for (int i = 0; i < library.size(); ++i) {
    if (const auto boundary = As<abi::BoundaryEvent>(abi::EventType::kBoundary, library[i])) {
      boundary_call = boundary->call_sequence;
      has_boundary = true;
    }
    const auto step = As<abi::StepEvent>(abi::EventType::kStep, library[i]);
    const auto it = steps.find(boundary_call);
    if (!step || !has_boundary || it == steps.end()) continue;
    const int64_t offset = static_cast<int64_t>(it->second.first - step->iteration);
    for (int j = 0; j <= it->second.second; ++j) Feed(ours_[j], 0, builder);
    for (int j = i + 1; j < library.size(); ++j) Feed(library[j], offset, builder);
    return offset;
  }
  return std::nullopt;
}

void Learning::Finish(IterationBuilder& builder) {
  if (has_rule_) FindFirstCall();
  for (const MatchedEvent& event : ours_) Feed(event, 0, builder);
}

std::optional<LearnedRule> Learning::Analyse() const {
  if (has_rule_) return std::nullopt;
  std::optional<LearnedRule> learned = learner_.Analyse();
  if (learned && learned->open) learned.reset();
  return learned;
}

}  // namespace seqpoint::jobs
