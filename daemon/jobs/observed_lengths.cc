#include "daemon/jobs/observed_lengths.h"

namespace seqpoint::jobs {
namespace {

void AddTo(ObservedState& state, int dimension, int64_t length, int64_t count) {
  LengthCountState& entry = *(dimension == 0 ? state.add_first() : state.add_second());
  entry.set_value(length);
  entry.set_count(count);
}

}  // namespace

void ObservedLengths::Add(int dimension, int64_t length, int64_t count) {
  of_[dimension].histogram[length] += count;
  of_[dimension].count += count;
  AddTo(added_, dimension, length, count);
}

void ObservedLengths::Clear() {
  for (Dimension& of : of_) of = {};
  added_.Clear();
  log_.Restart();
}

void ObservedLengths::RefreshUnits() {
  for (Dimension& of : of_) {
    if (of.count <= of.unit_count + of.unit_count / 64) continue;
    of.unit = of.histogram.size() > 1 ? NaturalUnit(of.histogram) : 1;
    of.unit_count = of.count;
  }
}

void ObservedLengths::Store(int64_t job_id, int32_t version, std::vector<StateRow>& rows) {
  const auto whole = [&] {
    ObservedState all;
    for (int i = 0; i < 2; ++i) {
      for (const auto& [length, count] : of_[i].histogram) AddTo(all, i, length, count);
    }
    return all.SerializeAsString();
  };
  log_.Write(job_id, version, added_.SerializeAsString(), whole, rows);
  added_.Clear();
}

bool ObservedLengths::Load(const std::vector<StateRow>& rows) {
  const PartLog::Content content = log_.Load(rows);
  ObservedState state;
  if (!state.ParseFromString(content.base + content.added)) return false;
  for (const LengthCountState& entry : state.first()) Add(0, entry.value(), entry.count());
  for (const LengthCountState& entry : state.second()) Add(1, entry.value(), entry.count());
  added_.Clear();
  RefreshUnits();
  return true;
}

}  // namespace seqpoint::jobs
