#include "client/place/place_text.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/text/plain_text.h"
#include "daemon/base/json_string.h"
#include "daemon/placement/class_graph.h"
#include "daemon/placement/linear.h"

namespace seqpoint::client {
namespace {

using placement::DeviceLoad;
using placement::Objective;
using placement::Placement;
using placement::Plan;
using placement::PlannerOptions;
using placement::Problem;

std::string DeviceName(const Problem& problem, int device) {
  return problem.IsAccelerator(device) ? absl::StrCat("accelerator ", device)
                                       : absl::StrCat("core ", device - problem.accelerators);
}

// A time in the file's unit.
std::string Time(double time) { return absl::StrFormat("%.6g", time); }

// "+28.2 %", against the answer's value.
std::string Change(double value, double answer) {
  if (answer <= 0) return "";
  const double percent = 100 * (value / answer - 1);
  const int digits = std::abs(percent) < 100 ? 1 : 0;
  const bool same = std::abs(percent) < 0.05;  // no sign on a zero
  return same ? "0.0 %" : absl::StrFormat("%+.*f %%", digits, percent);
}

std::string Gap(const Plan& plan) {
  return FormatShare(plan.value > 0 ? (plan.value - plan.lower_bound) / plan.value : 0);
}

std::string Headline(const PlaceAnswer& answer) {
  const Plan& plan = answer.plan;
  const bool throughput = answer.options.objective == Objective::kThroughput;
  std::string text =
      absl::StrCat(Time(plan.value),
                   throughput ? ", the time per sample" : ", the time until one sample is through",
                   "; method: ", plan.method, ". ");
  const char* placements = answer.options.contiguous ? "contiguous placement" : "placement";
  if (plan.optimal) {
    absl::StrAppend(&text, "No ", placements, " is better.");
  } else {
    absl::StrAppend(&text, "No ", placements, " is below ", Time(plan.lower_bound),
                    "; a better one may be there, by ", Gap(plan), " at most.");
  }
  return text;
}

std::string DevicesTable(const PlaceAnswer& answer) {
  const placement::Judgement& judgement = answer.plan.judgement;
  const bool throughput = answer.options.objective == Objective::kThroughput;
  Table table(
      {"DEVICE", ">OPERATORS", ">LOAD", ">COMPUTE", ">COMMUNICATION", ">MEMORY", ">OF SLOWEST"});
  int unused = 0;
  for (int device = 0; device < answer.problem.devices(); ++device) {
    const DeviceLoad& load = judgement.devices[device];
    if (load.operators == 0) {
      ++unused;
      continue;
    }
    const bool accelerator = answer.problem.IsAccelerator(device);
    const bool share = throughput && judgement.max_load > 0;
    table.AddRow({DeviceName(answer.problem, device), FormatCount(load.operators),
                  Time(load.load()), Time(load.compute),
                  accelerator ? Time(load.communication) : "-",
                  accelerator ? FormatQuantity(load.memory_bytes, "B") : "-",
                  share ? FormatShare(load.load() / judgement.max_load) : ""});
  }
  std::string text = table.ToString();
  if (unused > 0)
    absl::StrAppend(&text, "without an operator: ", FormatCount(unused, "device"), "\n");
  return text;
}

std::string AlternativesTable(const PlaceAnswer& answer) {
  Table table({"COMPARED WITH", ">TIME", ">CHANGE", "NOTE"});
  for (const Alternative& other : answer.alternatives) {
    table.AddRow({other.name, other.value.has_value() ? Time(*other.value) : "-",
                  other.value.has_value() ? Change(*other.value, answer.plan.value) : "",
                  other.why_not.empty() ? "" : absl::StrCat("not allowed: ", other.why_not)});
  }
  return table.empty() ? "" : absl::StrCat("\n", table.ToString());
}

const char* Word(bool value) { return value ? "true" : "false"; }

// A quoted string of the DOT language.
std::string DotString(const std::string& text) {
  std::string out = "\"";
  for (const char c : Printable(text)) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

}  // namespace

Alternative Judged(const std::string& name, const Problem& problem, const Placement& placement,
                   const PlannerOptions& options) {
  Alternative alternative = {.name = name};
  const placement::Judgement judgement = placement::Judge(problem, placement);
  if (!judgement.violations.empty()) alternative.why_not = judgement.violations[0];
  const bool complete = std::all_of(placement.begin(), placement.end(), [&](int device) {
    return device >= 0 && device < problem.devices();
  });
  if (!complete) return alternative;
  const double value = placement::Value(problem, placement, options);
  if (std::isfinite(value)) alternative.value = value;
  if (alternative.why_not.empty() && options.contiguous &&
      options.objective == Objective::kThroughput && !judgement.contiguous) {
    alternative.why_not = "it is not contiguous";
  }
  return alternative;
}

std::vector<Alternative> ObviousAlternatives(const Problem& problem,
                                             const PlannerOptions& options) {
  std::vector<Alternative> alternatives;
  const Placement one(problem.operators.size(), 0);
  alternatives.push_back(
      Judged(problem.accelerators > 0 ? "one accelerator" : "one core", problem, one, options));
  if (problem.accelerators > 1) {
    const placement::ClassGraph graph = placement::ContiguousClasses(problem);
    alternatives.push_back(Judged("equal layers", problem,
                                  placement::ToPlacement(graph, placement::EqualLayers(graph)),
                                  options));
  }
  return alternatives;
}

std::string PlaceText(const PlaceAnswer& answer) {
  const Problem& problem = answer.problem;
  std::string text =
      Wrap("", absl::StrCat(Printable(answer.source), ": ",
                            FormatCount(problem.operators.size(), "operator"), ", ",
                            FormatCount(problem.accelerators, "accelerator"),
                            problem.accelerators > 0
                                ? absl::StrCat(" with ", FormatQuantity(problem.memory_bytes, "B"))
                                : "",
                            ", ", FormatCount(problem.cpus, "core"), ". ", answer.unit));
  absl::StrAppend(&text, Wrap("", Headline(answer)));
  if (answer.plan.stopped) {
    absl::StrAppend(&text, "stopped before the search was through: this is the best so far\n");
  }
  for (const std::string& note : answer.plan.notes) {
    absl::StrAppend(&text, Wrap("note: ", note));
  }
  return absl::StrCat(text, "\n", DevicesTable(answer), AlternativesTable(answer),
                      answer.more_text);
}

std::string PlaceJson(const PlaceAnswer& answer) {
  const Problem& problem = answer.problem;
  const Plan& plan = answer.plan;
  std::vector<std::vector<int64_t>> operators(problem.devices());
  for (size_t i = 0; i < plan.placement.size(); ++i) {
    operators[plan.placement[i]].push_back(problem.operators[i].id);
  }
  std::vector<std::string> devices, alternatives, notes;
  for (int device = 0; device < problem.devices(); ++device) {
    const DeviceLoad& load = plan.judgement.devices[device];
    devices.push_back(absl::StrCat(
        "{\"kind\": \"", problem.IsAccelerator(device) ? "accelerator" : "core",
        "\", \"load\": ", JsonNumber(load.load()), ", \"compute\": ", JsonNumber(load.compute),
        ", \"communication\": ", JsonNumber(load.communication),
        ", \"memory_bytes\": ", JsonNumber(load.memory_bytes), ", \"operators\": [",
        absl::StrJoin(operators[device], ", "), "]}"));
  }
  for (const Alternative& other : answer.alternatives) {
    alternatives.push_back(
        absl::StrCat("{\"name\": ", JsonString(Printable(other.name)),
                     ", \"value\": ", other.value.has_value() ? JsonNumber(*other.value) : "null",
                     ", \"why_not\": ", JsonString(Printable(other.why_not)), "}"));
  }
  for (const std::string& note : plan.notes) notes.push_back(JsonString(Printable(note)));
  return absl::StrCat(
      "{\"objective\": \"",
      answer.options.objective == Objective::kThroughput ? "throughput" : "latency",
      "\", \"contiguous\": ", Word(answer.options.contiguous),
      ", \"method\": ", JsonString(plan.method), ", \"value\": ", JsonNumber(plan.value),
      ", \"lower_bound\": ", JsonNumber(plan.lower_bound), ", \"optimal\": ", Word(plan.optimal),
      ", \"stopped\": ", Word(plan.stopped), ",\n \"devices\": [\n  ",
      absl::StrJoin(devices, ",\n  "), "],\n \"alternatives\": [\n  ",
      absl::StrJoin(alternatives, ",\n  "), "],\n \"notes\": [", absl::StrJoin(notes, ", "),
      "], \"seconds\": ", JsonNumber(answer.seconds), answer.more_json.empty() ? "" : ",\n ",
      answer.more_json, "}\n");
}

std::string PlaceDot(const Problem& problem, const Placement& placement) {
  std::string out = "digraph placement {\n  node [shape=box, style=filled];\n";
  for (size_t i = 0; i < problem.operators.size(); ++i) {
    const placement::Operator& op = problem.operators[i];
    // Hue, saturation, value.
    const double hue = static_cast<double>(placement[i]) / std::max(problem.devices(), 1);
    absl::StrAppendFormat(&out, "  %d [label=%s, fillcolor=\"%.3f 0.35 1.0\"%s];\n", op.id,
                          DotString(absl::StrCat(op.name.empty() ? absl::StrCat(op.id) : op.name,
                                                 ", ", DeviceName(problem, placement[i]))),
                          hue, op.backward ? ", style=\"filled,rounded\"" : "");
  }
  for (const placement::Edge& edge : problem.edges) {
    absl::StrAppend(&out, "  ", problem.operators[edge.from].id, " -> ",
                    problem.operators[edge.to].id, ";\n");
  }
  return out + "}\n";
}

}  // namespace seqpoint::client
