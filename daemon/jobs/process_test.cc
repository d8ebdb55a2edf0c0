#include "daemon/jobs/process.h"

#include "gtest/gtest.h"

namespace seqpoint::jobs {
namespace {

// Gives every field of a message another value than it has by itself, in depth.
void Fill(google::protobuf::Message& message, int& next) {
  const auto* descriptor = message.GetDescriptor();
  const auto* reflection = message.GetReflection();
  using Field = google::protobuf::FieldDescriptor;
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const Field* const field = descriptor->field(i);
    if (field->is_map()) continue;
    const int value = ++next;
    const bool repeated = field->is_repeated();
    switch (field->cpp_type()) {
#define SEQPOINT_FILL(TYPE, NAME, VALUE)                      \
  case Field::CPPTYPE_##TYPE:                                 \
    repeated ? reflection->Add##NAME(&message, field, VALUE)  \
             : reflection->Set##NAME(&message, field, VALUE); \
    break;
      SEQPOINT_FILL(INT32, Int32, value)
      SEQPOINT_FILL(INT64, Int64, value)
      SEQPOINT_FILL(UINT32, UInt32, value)
      SEQPOINT_FILL(UINT64, UInt64, value)
      SEQPOINT_FILL(DOUBLE, Double, value)
      SEQPOINT_FILL(BOOL, Bool, true)
      SEQPOINT_FILL(STRING, String, std::to_string(value))
#undef SEQPOINT_FILL
      case Field::CPPTYPE_MESSAGE:
        Fill(repeated ? *reflection->AddMessage(&message, field)
                      : *reflection->MutableMessage(&message, field),
             next);
        break;
      default:
        break;
    }
  }
}

// One entry for each level; maps are filled by hand.
void Complete(ProcessState& state) {
  state.mutable_watched_calls()->Resize(4, 3);
  state.mutable_watching_ns()->Resize(4, 4);
  (*state.mutable_features())[3].set_name("counters");
  (*state.mutable_measurements()->mutable_without_iteration())[5].add_measurements()->set_set(9);
  (*state.mutable_measurements()->mutable_without_measurement())[6].set_sample(60);
  state.clear_learning();
}

ProcessState Saved(const Process& process) {
  ProcessState state;
  process.Save(&state);
  return state;
}

TEST(Process, NothingThatIsSavedIsForgottenOnTheWayBack) {
  ProcessState saved;
  int next = 0;
  Fill(saved, next);
  Complete(saved);
  Process process(ProcessRow{.process_id = 7});
  process.learning = std::make_unique<Learning>();
  process.Load(saved, nullptr);
  EXPECT_EQ(process.learning, nullptr) << "it is marking";
  EXPECT_EQ(Saved(process).DebugString(), saved.DebugString());
}

TEST(Process, WhileItIsLearnedTheLibrarysEventsLast) {
  Process process(ProcessRow{.process_id = 7});
  process.learning = std::make_unique<Learning>();
  process.learning->SetFirstNumber(12);
  const uint8_t payload[] = {1, 2, 3};
  process.learning->OnLibraryEvent(abi::EventType::kStep, payload);
  const ProcessState saved = Saved(process);
  ASSERT_TRUE(saved.has_learning());
  EXPECT_EQ(saved.learning().first_number(), 12);
  EXPECT_EQ(saved.learning().library_events_size(), 1);
}

TEST(Process, SampledIterationsAreSummed) {
  SampledState sum, one;
  one.set_iterations(1);
  one.set_duration_ns(100);
  one.set_covered_ns(90);
  one.set_least_covered_share(0.9);
  AddSampled(one, &sum);
  one.set_least_covered_share(0.7);
  AddSampled(one, &sum);
  AddSampled({}, &sum);
  EXPECT_EQ(sum.iterations(), 2);
  EXPECT_EQ(sum.duration_ns(), 200);
  EXPECT_EQ(sum.least_covered_share(), 0.7);
}

}  // namespace
}  // namespace seqpoint::jobs
