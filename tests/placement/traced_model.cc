#include "tests/placement/traced_model.h"

#include <algorithm>
#include <numeric>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "simdjson.h"

namespace seqpoint::placement {
namespace {

using simdjson::dom::element;

constexpr double kMsPerNs = 1e-6;
// Before the updates: norm of the gradients, clipping factor (tests/workloads/optimizer.cc).
constexpr int64_t kWorksBeforeUpdates = 2;
// Value, gradient and two moments.
constexpr double kCopiesOfParameters = 4;

template <typename T>
std::vector<T> Numbers(element list) {
  std::vector<T> numbers;
  for (const element number : simdjson::dom::array(list)) {
    numbers.push_back(static_cast<T>(double(number)));
  }
  return numbers;
}

Pass PassOf(element pass) { return {int64_t(pass["works"]), double(pass["bytes"])}; }

bool IsCopy(const trace::Work& work) {
  return work.kind != trace::WorkKind::kKernel && work.kind != trace::WorkKind::kMemset;
}

}  // namespace

absl::StatusOr<std::vector<ModelOperations>> ReadOperations(const std::string& path) {
  std::vector<ModelOperations> models;
  simdjson::dom::parser parser;
  try {
    for (const element line : parser.load_many(path)) {
      ModelOperations& model = models.emplace_back();
      model.lengths = Numbers<int>(line["lengths"]);
      model.parameter_bytes = Numbers<double>(line["parameter_bytes"]);
      for (const element operation : simdjson::dom::array(line["operations"])) {
        model.operations.push_back(
            {std::string(std::string_view(operation["name"])), Numbers<int>(operation["inputs"]),
             Numbers<int>(operation["parameters"]), double(operation["out_bytes"]),
             PassOf(operation["forward"]), PassOf(operation["backward"])});
      }
    }
  } catch (const simdjson::simdjson_error& error) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", error.what()));
  }
  return models;
}

std::vector<TracedStep> StepsOf(const trace::Trace& trace) {
  std::vector<TracedStep> steps;
  for (const trace::Span& span : trace.spans) {
    // "ProfilerStep#7 lengths=[20,21]"
    absl::string_view name = trace.names[span.name];
    name = name.substr(0, name.find(' '));
    TracedStep step{.begin_ns = span.begin_ns, .end_ns = span.end_ns};
    if (absl::ConsumePrefix(&name, "ProfilerStep#") && absl::SimpleAtoi(name, &step.number)) {
      steps.push_back(std::move(step));
    }
  }
  std::sort(steps.begin(), steps.end(),
            [](const TracedStep& a, const TracedStep& b) { return a.begin_ns < b.begin_ns; });
  std::vector<trace::Work> works = trace.works;
  std::sort(works.begin(), works.end(),
            [](const trace::Work& a, const trace::Work& b) { return a.start_ns < b.start_ns; });
  size_t next = 0;
  for (TracedStep& step : steps) {
    while (next < works.size() && works[next].start_ns < step.begin_ns) ++next;
    while (next < works.size() && works[next].start_ns < step.end_ns) {
      step.works.push_back(works[next++]);
    }
  }
  std::erase_if(steps, [](const TracedStep& step) { return step.works.empty(); });
  return steps;
}

absl::StatusOr<TracedProblem> MakeProblem(const ModelOperations& model, const TracedStep& step,
                                          const std::vector<std::string>& names,
                                          double bytes_per_second) {
  const auto count = static_cast<int>(model.operations.size());
  const auto parameters = static_cast<int64_t>(model.parameter_bytes.size());
  // The operator of each work between the batch's copies and the updates.
  std::vector<int> owner;
  for (int i = 0; i < count; ++i) {
    owner.insert(owner.end(), model.operations[i].forward.works, i);
  }
  for (int i = count - 1; i >= 0; --i) {
    owner.insert(owner.end(), model.operations[i].backward.works, count + i);
  }
  const auto launched = static_cast<int64_t>(
      step.works.size() - std::count_if(step.works.begin(), step.works.end(), IsCopy));
  const auto in_passes = static_cast<int64_t>(owner.size());
  if (launched != in_passes + kWorksBeforeUpdates + parameters) {
    return absl::FailedPreconditionError(absl::StrCat(
        "iteration ", step.number, " has ", launched, " kernels and memsets; length ",
        absl::StrJoin(model.lengths, " x "), " has ", in_passes, " in its operations and ",
        kWorksBeforeUpdates + parameters, " in its optimizer"));
  }

  TracedProblem traced;
  std::vector<Operator>& operators = traced.problem.operators;
  operators.resize(2 * count);
  std::vector<int> updater(parameters, -1);
  for (int i = 0; i < count; ++i) {
    const Operation& operation = model.operations[i];
    Operator& forward = operators[i];
    Operator& backward = operators[count + i];
    forward.id = i;
    forward.name = operation.name;
    backward.id = count + i;
    backward.name = absl::StrCat(operation.name, " backward");
    backward.backward = true;
    forward.color = backward.color = i;
    forward.memory_bytes = operation.forward.bytes;
    backward.memory_bytes = operation.backward.bytes;
    forward.transfer_time = operation.out_bytes / bytes_per_second * 1e3;
    for (const int input : operation.inputs) {
      traced.problem.edges.push_back({input, i});
      traced.problem.edges.push_back({count + i, count + input});
      backward.transfer_time += model.operations[input].out_bytes / bytes_per_second * 1e3;
    }
    for (const int p : operation.parameters) {
      if (updater[p] >= 0) {
        return absl::FailedPreconditionError(
            absl::StrCat("parameter ", p, " is read by two operations"));
      }
      updater[p] = count + i;
      forward.memory_bytes += kCopiesOfParameters * model.parameter_bytes[p];
    }
  }
  traced.problem.edges.push_back({count - 1, 2 * count - 1});

  std::vector<double> ms(operators.size());
  double for_all = 0;
  int64_t end_ns = step.begin_ns, at = 0;
  for (const trace::Work& work : step.works) {
    const double elapsed = static_cast<double>(work.end_ns - end_ns) * kMsPerNs;
    end_ns = work.end_ns;
    traced.loads_ms += elapsed;
    if (IsCopy(work)) {
      ms[at == 0 ? 0 : count - 1] += elapsed;
      continue;
    }
    traced.kernels_ms += static_cast<double>(work.end_ns - work.start_ns) * kMsPerNs;
    if (at < in_passes) {
      ms[owner[at]] += elapsed;
    } else if (at < in_passes + kWorksBeforeUpdates) {
      for_all += elapsed;
    } else {
      const int64_t p = at - in_passes - kWorksBeforeUpdates;
      if (!absl::StrContains(names[work.name], "adam") || updater[p] < 0) {
        return absl::FailedPreconditionError(absl::StrCat("iteration ", step.number, ": ",
                                                          names[work.name],
                                                          " is not the update of parameter ", p));
      }
      ms[updater[p]] += elapsed;
    }
    ++at;
  }
  const double bytes =
      std::accumulate(model.parameter_bytes.begin(), model.parameter_bytes.end(), 0.0);
  for (int64_t p = 0; p < parameters; ++p) {
    ms[updater[p]] += for_all * model.parameter_bytes[p] / bytes;
  }
  for (size_t i = 0; i < operators.size(); ++i) {
    operators[i].accelerator_time = operators[i].cpu_time = ms[i];
  }
  traced.iteration_ms = static_cast<double>(step.end_ns - step.begin_ns) * kMsPerNs;
  return traced;
}

}  // namespace seqpoint::placement
