#include "daemon/placement/problem_json.h"

#include <simdjson.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "daemon/base/status_macros.h"
#include "daemon/placement/components.h"
#include "daemon/placement/json_object.h"

namespace seqpoint::placement {
namespace {

using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::object;

// As in the published reader.
constexpr double kSameCost = 1e-6;
constexpr size_t kShownOfCycle = 8;
// Sums of times, each counted once for each device, stay below the largest double, 1.8e308.
constexpr double kMostTime = 1e300;

struct NamedEdge {
  int64_t from = 0;
  int64_t to = 0;
  double cost = 0;
};

class ProblemReader {
 public:
  explicit ProblemReader(const std::string& file) : file_(file) {}

  absl::StatusOr<Problem> Read(std::string_view text) {
    SEQPOINT_ASSIGN_OR_RETURN(const object fields, ParseObject(text, file_, &parser_));
    SEQPOINT_RETURN_IF_ERROR(EachKeyOnce(fields, ""));
    element nodes, edges, memory, accelerators, cpus;
    for (const auto& [field, name] :
         {std::pair{&nodes, "nodes"}, std::pair{&edges, "edges"},
          std::pair{&memory, "maxSizePerFPGA"}, std::pair{&accelerators, "maxFPGAs"},
          std::pair{&cpus, "maxCPUs"}}) {
      if (fields[name].get(*field)) return Missing(name, "");
    }
    absl::Status status = Read(memory, "maxSizePerFPGA", "", &problem_.memory_bytes);
    status.Update(Devices(accelerators, "maxFPGAs", &problem_.accelerators));
    status.Update(Devices(cpus, "maxCPUs", &problem_.cpus));
    status.Update(ForEach(nodes, "nodes", [this](object entry) { return ReadOperator(entry); }));
    SEQPOINT_RETURN_IF_ERROR(status);
    SEQPOINT_RETURN_IF_ERROR(
        ForEach(edges, "edges", [this](object entry) { return ReadEdge(entry); }));
    SEQPOINT_RETURN_IF_ERROR(Connect());
    SEQPOINT_RETURN_IF_ERROR(CheckProblem(file_, &problem_));
    return std::move(problem_);
  }

 private:
  absl::Status Fail(const std::string& what) const {
    return absl::InvalidArgumentError(absl::StrCat(file_, ": ", what));
  }

  absl::Status EachKeyOnce(object fields, const std::string& whose) const {
    const std::string key = RepeatedKey(fields);
    return key.empty() ? absl::OkStatus() : Wrong(key, whose, "is there twice");
  }

  template <typename Read>
  absl::Status ForEach(element content, const std::string& name, Read read) {
    array entries;
    if (content.get_array().get(entries)) return Wrong(name, "", "is no list");
    entry_ = 0;
    for (const element item : entries) {
      object entry;
      ++entry_;
      if (item.get_object().get(entry)) {
        return Fail(absl::StrCat("entry ", entry_, " of \"", name, "\" is no object"));
      }
      const std::string whose = absl::StrCat("entry ", entry_, " of \"", name, "\"");
      SEQPOINT_RETURN_IF_ERROR(EachKeyOnce(entry, whose));
      SEQPOINT_RETURN_IF_ERROR(read(entry));
    }
    return absl::OkStatus();
  }

  absl::Status Read(element content, const std::string& key, const std::string& whose,
                    double* amount) {
    if (content.get_double().get(*amount) || !std::isfinite(*amount)) {
      return Wrong(key, whose, "is no number");
    }
    if (*amount < 0) return Wrong(key, whose, absl::StrCat("is negative: ", *amount));
    return absl::OkStatus();
  }

  absl::Status Read(element content, const std::string& key, const std::string& whose,
                    int64_t* out) {
    if (content.get_int64().get(*out)) return Wrong(key, whose, "is no integer");
    return absl::OkStatus();
  }

  absl::Status Read(element content, const std::string& key, const std::string& whose, bool* flag) {
    int64_t number = 0;
    if (!content.get_bool().get(*flag)) return absl::OkStatus();
    if (content.get_int64().get(number) || (number != 0 && number != 1)) {
      return Wrong(key, whose, "is neither true, false, 1 nor 0");
    }
    *flag = number == 1;
    return absl::OkStatus();
  }

  absl::Status Read(element content, const std::string& key, const std::string& whose,
                    std::string* text) {
    std::string_view view;
    if (content.get_string().get(view)) return Wrong(key, whose, "is no string");
    *text = view;
    return absl::OkStatus();
  }

  absl::Status Devices(element content, const std::string& key, int* devices) {
    int64_t number = 0;
    SEQPOINT_RETURN_IF_ERROR(Read(content, key, "", &number));
    if (number < 0 || number > kMostDevices) {
      return Wrong(key, "", absl::StrCat("is ", number, ", not 0 to ", kMostDevices));
    }
    *devices = static_cast<int>(number);
    return absl::OkStatus();
  }

  absl::Status Wrong(const std::string& key, const std::string& whose,
                     const std::string& what) const {
    return Fail(absl::StrCat(whose, whose.empty() ? "" : ": ", "\"", key, "\" ", what));
  }

  absl::Status Missing(const std::string& key, const std::string& whose) const {
    return Fail(absl::StrCat(whose, whose.empty() ? "" : ": ", "there is no field \"", key, "\""));
  }

  // A field that must be there.
  template <typename Value>
  absl::Status Take(object fields, const std::string& key, const std::string& whose, Value* value) {
    element content;
    return fields[key].get(content) ? Missing(key, whose) : Read(content, key, whose, value);
  }
  // A field that may be missing.
  template <typename Value>
  absl::Status TakeIfThere(object fields, const std::string& key, const std::string& whose,
                           Value* value) {
    element content;
    return fields[key].get(content) ? absl::OkStatus() : Read(content, key, whose, value);
  }

  absl::Status ReadOperator(object fields) {
    Operator op;
    SEQPOINT_RETURN_IF_ERROR(
        Take(fields, "id", absl::StrCat("entry ", entry_, " of \"nodes\""), &op.id));
    const std::string whose = absl::StrCat("operator ", op.id);
    absl::Status status = Take(fields, "supportedOnFpga", whose, &op.accelerator_supported);
    status.Update(Take(fields, "isBackwardNode", whose, &op.backward));
    status.Update(Take(fields, "cpuLatency", whose, &op.cpu_time));
    status.Update(Take(fields, "fpgaLatency", whose, &op.accelerator_time));
    status.Update(TakeIfThere(fields, "name", whose, &op.name));
    status.Update(TakeIfThere(fields, "size", whose, &op.memory_bytes));
    if (element color; !fields["colorClass"].get(color)) {
      status.Update(Read(color, "colorClass", whose, &op.color.emplace()));
    }
    problem_.operators.push_back(std::move(op));
    return status;
  }

  absl::Status ReadEdge(object fields) {
    NamedEdge edge;
    const std::string whose = absl::StrCat("entry ", entry_, " of \"edges\"");
    absl::Status status = Take(fields, "sourceId", whose, &edge.from);
    status.Update(Take(fields, "destId", whose, &edge.to));
    status.Update(Take(fields, "cost", whose, &edge.cost));
    edges_.push_back(edge);
    return status;
  }

  // From ids to indexes, and from the cost of edges to that of their producers.
  absl::Status Connect() {
    absl::flat_hash_map<int64_t, int> index;
    for (size_t i = 0; i < problem_.operators.size(); ++i) {
      index.try_emplace(problem_.operators[i].id, static_cast<int>(i));
    }
    std::vector<bool> has_cost(problem_.operators.size(), false);
    for (const NamedEdge& edge : edges_) {
      for (const int64_t id : {edge.from, edge.to}) {
        if (!index.contains(id)) {
          return Fail(absl::StrCat("the edge from ", edge.from, " to ", edge.to, " names operator ",
                                   id, ", which is not there"));
        }
      }
      const int from = index[edge.from];
      double& cost = problem_.operators[from].transfer_time;
      if (!has_cost[from]) {
        cost = edge.cost;
        has_cost[from] = true;
      } else if (std::abs(cost - edge.cost) > kSameCost) {
        return Fail(absl::StrCat("edges from operator ", edge.from, " have different costs, ", cost,
                                 " and ", edge.cost));
      }
      problem_.edges.push_back({from, index[edge.to]});
    }
    return absl::OkStatus();
  }

  std::string file_;
  simdjson::dom::parser parser_;
  Problem problem_;
  std::vector<NamedEdge> edges_;
  int64_t entry_ = 0;  // from 1 on, of the list that is being read
};

// The operators of one cycle, in its order; none where there is none.
std::vector<int> FindCycle(const Problem& problem) {
  const int operators = static_cast<int>(problem.operators.size());
  Adjacency producers(operators);
  for (const Edge& edge : problem.edges) producers[edge.to].push_back(edge.from);
  const std::vector<int> component = StrongComponents(producers);
  // An operator on a cycle has a producer in its component: back along these until one comes again.
  const auto before = [&](int v) {
    const auto found = std::find_if(producers[v].begin(), producers[v].end(),
                                    [&](int u) { return component[u] == component[v]; });
    return found == producers[v].end() ? -1 : *found;
  };
  int at = 0;
  while (at < operators && before(at) < 0) ++at;
  if (at == operators) return {};
  std::vector<int> path;
  std::vector<int> position(operators, -1);
  for (; position[at] < 0; at = before(at)) {
    position[at] = static_cast<int>(path.size());
    path.push_back(at);
  }
  path.erase(path.begin(), path.begin() + position[at]);
  std::reverse(path.begin(), path.end());
  std::rotate(path.begin(), std::min_element(path.begin(), path.end()), path.end());
  return path;
}

std::string CycleInWords(const Problem& problem, const std::vector<int>& cycle) {
  std::string text = "operators wait for each other in a circle: ";
  for (size_t i = 0; i < std::min(cycle.size(), kShownOfCycle); ++i) {
    absl::StrAppend(&text, problem.operators[cycle[i]].id, " -> ");
  }
  if (cycle.size() > kShownOfCycle) absl::StrAppend(&text, "... -> ");
  return absl::StrCat(text, problem.operators[cycle[0]].id, " (", cycle.size(), " operators)");
}

}  // namespace

absl::Status CheckProblem(const std::string& file, Problem* problem) {
  const auto fail = [&](const std::string& what) {
    return absl::InvalidArgumentError(absl::StrCat(file, ": ", what));
  };
  if (problem->operators.empty()) return fail("there are no operators");
  absl::flat_hash_map<int64_t, int> index;
  double time = 0;
  for (const Operator& op : problem->operators) {
    if (!index.try_emplace(op.id, 0).second) {
      return fail(absl::StrCat("two operators have the id ", op.id));
    }
    if (op.memory_bytes > kMostBytes) {
      return fail(absl::StrCat("operator ", op.id, " has a size of ", op.memory_bytes,
                               " bytes; it can be 0 to ", kMostBytes));
    }
    time += op.cpu_time + op.accelerator_time + op.transfer_time;
  }
  if (problem->memory_bytes > kMostBytes) {
    return fail(absl::StrCat("accelerators have ", problem->memory_bytes,
                             " bytes of memory; it can be 0 to ", kMostBytes));
  }
  if (time > kMostTime) {
    return fail(absl::StrCat("the times of all operators add up to ", time,
                             ", which is too much to calculate with; at most ", kMostTime, " can"));
  }
  for (const Edge& edge : problem->edges) {
    const Operator& from = problem->operators[edge.from];
    const Operator& to = problem->operators[edge.to];
    if (edge.from == edge.to) {
      return fail(absl::StrCat("an edge leads from operator ", from.id, " to itself"));
    }
    if (from.backward && !to.backward) {
      return fail(absl::StrCat("an edge leads from operator ", from.id,
                               " of the backward pass to operator ", to.id,
                               " of the forward pass"));
    }
  }
  SortUnique(&problem->edges);
  const std::vector<int> cycle = FindCycle(*problem);
  return cycle.empty() ? absl::OkStatus() : fail(CycleInWords(*problem, cycle));
}

absl::StatusOr<Problem> ReadProblem(std::string_view text, const std::string& file) {
  return ProblemReader(file).Read(text);
}

}  // namespace seqpoint::placement
