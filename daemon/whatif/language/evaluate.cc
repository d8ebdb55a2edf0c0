#include "daemon/whatif/language/evaluate.h"

#include <algorithm>
#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "daemon/base/status_macros.h"
#include "daemon/whatif/language/printer.h"

namespace seqpoint::whatif {
namespace {

double RingNs(double bytes, double workers, double rate, double latency_ns) {
  return 2 * (workers - 1) / workers * bytes / rate + 2 * (workers - 1) * latency_ns;
}

absl::StatusOr<double> ValueOf(const Amount::Term& term,
                               const std::map<std::string, double>& parameters,
                               const TaskValues& task) {
  if (term.function == "bytes") return task.bytes;
  if (term.function == "duration") return task.duration_ns;
  for (const Function& function : Functions()) {
    if (term.function != function.name) continue;
    std::vector<double> arguments;
    for (const Amount::Term& argument : term.arguments) {
      SEQPOINT_ASSIGN_OR_RETURN(const double value, ValueOf(argument, parameters, task));
      arguments.push_back(value);
    }
    return function.time_ns(arguments);
  }
  if (term.parameter.empty()) return term.number;
  const auto it = parameters.find(term.parameter);
  if (it != parameters.end()) return it->second;
  return absl::InvalidArgumentError(absl::StrCat(
      "the parameter $", term.parameter, " has no value; give ", term.parameter, "=NUMBER"));
}

// "bytes" or "duration".
bool Has(const Amount::Term& term, const char* word) {
  return term.function == word ||
         std::any_of(term.arguments.begin(), term.arguments.end(),
                     [word](const Amount::Term& each) { return Has(each, word); });
}

}  // namespace

const std::vector<Function>& Functions() {
  static const std::vector<Unit> kOneLevel = {Unit::kBytes, Unit::kNumber, Unit::kRate,
                                              Unit::kTime};
  static const auto* functions = new std::vector<Function>{
      {"allreduce_ring", kOneLevel,
       [](const std::vector<double>& a) { return RingNs(a[0], a[1], a[2], a[3]); }},
      {"allreduce_tree", kOneLevel,
       [](const std::vector<double>& a) {
         return a[1] <= 1 ? 0 : 2 * a[0] / a[2] + 2 * std::ceil(std::log2(a[1])) * a[3];
       }},
      {"parameter_server", kOneLevel,
       [](const std::vector<double>& a) {
         return a[1] <= 1 ? 0 : RingNs(a[0], a[1], a[2], 0) + 2 * a[3];
       }},
      {"allreduce_two_level",
       {Unit::kBytes, Unit::kNumber, Unit::kNumber, Unit::kRate, Unit::kRate, Unit::kTime},
       [](const std::vector<double>& a) {
         const double per_host = std::min(a[1], a[2]);
         return RingNs(a[0], per_host, a[3], a[5]) +
                RingNs(a[0] / per_host, a[1] / per_host, a[4], a[5]);
       }}};
  return *functions;
}

bool NeedsBytes(const Amount& amount) {
  return Has(amount.first, "bytes") || Has(amount.second, "bytes");
}
bool NeedsTask(const Amount& amount) {
  return NeedsBytes(amount) || Has(amount.first, "duration") || Has(amount.second, "duration");
}

absl::StatusOr<double> Evaluate(const Amount& amount,
                                const std::map<std::string, double>& parameters,
                                const TaskValues& task) {
  absl::StatusOr<double> value = ValueOf(amount.first, parameters, task);
  if (!value.ok()) return value;
  if (amount.operation != 0) {
    SEQPOINT_ASSIGN_OR_RETURN(const double second, ValueOf(amount.second, parameters, task));
    *value = amount.operation == '*' ? *value * second : *value / second;
  }
  if (!std::isfinite(*value) || *value < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(FormatAmount(amount), " is ", *value, ", not a number from 0 on"));
  }
  return value;
}

}  // namespace seqpoint::whatif
