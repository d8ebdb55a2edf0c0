#include "tests/support/truth.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>

#include "simdjson.h"

namespace seqpoint {
namespace {

int64_t Number(simdjson::simdjson_result<simdjson::dom::element> element) {
  int64_t value;
  return element.get(value) ? 0 : value;
}

double Real(simdjson::simdjson_result<simdjson::dom::element> element) {
  double value;
  return element.get(value) ? 0 : value;
}

}  // namespace

std::optional<Truth> ReadTruth(const std::filesystem::path& path) {
  Truth truth;
  simdjson::dom::parser parser;
  simdjson::dom::document_stream lines;
  if (parser.load_many(path.string(), 64 << 20).get(lines)) {
    return std::nullopt;
  }
  const std::map<std::string, std::string> metrics = {
      {"dram_read_bytes", "dram__bytes_read.sum"},
      {"dram_write_bytes", "dram__bytes_write.sum"},
      {"instructions", "sm__inst_executed.sum"},
      {"tensor_cycles", "sm__pipe_tensor_cycles_active.sum"},
      {"sm_active_cycles", "sm__cycles_active.sum"}};
  for (simdjson::dom::element line : lines) {
    std::string_view kind;
    if (line["kind"].get(kind)) continue;
    if (kind == "iteration") {
      TrueIteration& iteration = truth.iterations.emplace_back();
      simdjson::dom::array lengths;
      if (!line["lengths"].get(lengths)) {
        for (const simdjson::dom::element length : lengths) {
          iteration.lengths.push_back(Number(simdjson::dom::element(length)));
        }
      }
      iteration.begin_ns = Number(line.at_pointer("/begin/host_ns"));
      iteration.forward_ns = Number(line.at_pointer("/first_forward/host_ns"));
      iteration.launches_before_forward = Number(line.at_pointer("/first_forward/launches")) -
                                          Number(line.at_pointer("/begin/launches"));
      iteration.gpu_time_ns = Real(line["gpu_time_ns"]);
      iteration.kernels = Number(line["kernels"]);
      for (const auto& [key, metric] : metrics) {
        iteration.counters[metric] = Real(line.at_pointer("/counters/" + key));
        truth.counters[metric] += iteration.counters[metric];
      }
    } else if (kind == "totals") {
      truth.epoch_time_ns = Real(line["train_gpu_time_ns"]);
      std::string_view digest;
      if (!line["digest"].get(digest)) truth.digest = std::string(digest);
      simdjson::dom::object kernels;
      if (!line["training_kernels"].get(kernels)) {
        for (const auto& [name, kernel] : kernels) {
          truth.kernel_time[std::string(name)] = Real(kernel["kernel_time_ns"]);
        }
      }
    }
  }
  if (truth.iterations.empty()) return std::nullopt;
  return truth;
}

Boundaries MatchBoundaries(const Truth& truth, const std::vector<v1::Iteration>& iterations) {
  Boundaries result;
  result.detected = static_cast<int64_t>(iterations.size());
  std::vector<int> inside(truth.iterations.size(), 0), wrong(truth.iterations.size(), 0);
  for (const v1::Iteration& iteration : iterations) {
    const int64_t at = iteration.boundary_ns();
    const auto next =
        std::upper_bound(truth.iterations.begin(), truth.iterations.end(), at,
                         [](int64_t ns, const TrueIteration& t) { return ns < t.begin_ns; });
    if (next == truth.iterations.begin()) continue;
    const size_t index = static_cast<size_t>(next - truth.iterations.begin()) - 1;
    ++(at <= truth.iterations[index].forward_ns ? inside : wrong)[index];
  }
  int64_t exact = 0, first = 0, total = 0, first_total = 0;
  for (size_t i = 0; i < truth.iterations.size(); ++i) {
    const bool good = inside[i] == 1 && wrong[i] == 0;
    result.launch_offset =
        std::max(result.launch_offset, truth.iterations[i].launches_before_forward);
    (i < 30 ? first : exact) += good;
    (i < 30 ? first_total : total) += 1;
  }
  result.exact_share = total > 0 ? static_cast<double>(exact) / static_cast<double>(total) : 0;
  result.recovered_share =
      first_total > 0 ? static_cast<double>(first) / static_cast<double>(first_total) : 0;
  return result;
}

double UndisturbedTimeNs(const Truth& truth, const Truth& alone,
                         const std::vector<v1::Iteration>& iterations) {
  std::vector<bool> disturbed(truth.iterations.size());
  for (const v1::Iteration& iteration : iterations) {
    if (iteration.config().empty()) continue;
    for (int64_t i = iteration.number() - 1; i <= iteration.number() + 1; ++i) {
      if (i >= 0 && i < static_cast<int64_t>(disturbed.size())) disturbed[i] = true;
    }
  }
  double ours = 0, theirs = 0, replaced = 0;
  for (size_t i = 0; i < std::min(truth.iterations.size(), alone.iterations.size()); ++i) {
    if (disturbed[i]) {
      replaced += alone.iterations[i].gpu_time_ns;
    } else {
      ours += truth.iterations[i].gpu_time_ns;
      theirs += alone.iterations[i].gpu_time_ns;
    }
  }
  return theirs > 0 ? ours + replaced * ours / theirs : truth.epoch_time_ns;
}

std::string FunctionName(const std::string& symbol) {
  int status = 0;
  char* demangled = ::abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status);
  std::string name = status == 0 ? demangled : symbol;
  std::free(demangled);
  for (size_t at; (at = name.find("(anonymous namespace)::")) != std::string::npos;) {
    name.erase(at, 23);
  }
  name = name.substr(0, name.find_first_of("(<"));
  const size_t last = name.find_last_of(": ");
  return last == std::string::npos ? name : name.substr(last + 1);
}

}  // namespace seqpoint
