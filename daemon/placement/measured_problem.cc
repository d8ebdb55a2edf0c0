#include "daemon/placement/measured_problem.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/base/disjoint_sets.h"
#include "daemon/base/status_macros.h"
#include "daemon/placement/components.h"
#include "daemon/placement/operator_graph.h"
#include "daemon/placement/operator_times.h"

namespace seqpoint::placement {
namespace {

constexpr double kMsPerNs = 1e-6;

// The cost of an operator at one length.
struct Cost {
  double time = 0;  // ms
  double memory_bytes = 0;
};

struct Measured {
  OperatorGraph graph;
  std::vector<Cost> costs;  // of each operator, the optimizer's step with them
};

// The operators of all recordings as those of one problem.
struct Alignment {
  std::vector<Operator> operators;  // without costs
  std::vector<Edge> edges;
  std::vector<std::vector<int>> place;  // in `operators`, of each recording's operators
  bool folded = false;
};

std::string CountedName(const std::string& name, size_t others) {
  return others == 0 ? name : absl::StrCat(name, " + ", others);
}

bool SameOperators(const OperatorGraph& a, const OperatorGraph& b) {
  return std::equal(a.operators.begin(), a.operators.end(), b.operators.begin(), b.operators.end(),
                    [](const GraphOperator& x, const GraphOperator& y) {
                      return x.name == y.name && x.backward == y.backward;
                    });
}

Alignment AlignOneByOne(const std::vector<Measured>& measured) {
  Alignment alignment;
  const size_t count = measured[0].graph.operators.size();
  DisjointSets colors(count);
  for (const Measured& recording : measured) {
    alignment.place.emplace_back(count);
    for (size_t i = 0; i < count; ++i) {
      alignment.place.back()[i] = static_cast<int>(i);
      const int color = recording.graph.operators[i].color;
      if (color >= 0) colors.Join(static_cast<int>(i), color);
    }
    alignment.edges.insert(alignment.edges.end(), recording.graph.edges.begin(),
                           recording.graph.edges.end());
  }
  SortUnique(&alignment.edges);
  std::vector<int> members(count);
  for (size_t i = 0; i < count; ++i) ++members[colors.Find(static_cast<int>(i))];
  for (size_t i = 0; i < count; ++i) {
    const GraphOperator& op = measured[0].graph.operators[i];
    Operator& out = alignment.operators.emplace_back();
    out.name = op.name;
    out.backward = op.backward;
    const int color = colors.Find(static_cast<int>(i));
    if (members[color] > 1) out.color = color;
  }
  return alignment;
}

// Makes the graphs of recordings with different numbers of operators the same: operators that use
// the same parameters are one, and so are those that lie between the same ones (they depend on the
// same, and the same depend on them). A forward part and its backward part are a pair.
class Folder {
 public:
  explicit Folder(const std::vector<Measured>& measured)
      : measured_(measured), parameters_(measured[0].graph.parameters.size()) {}

  Alignment Fold() {
    // Parameters that one length holds together (the steps of a recurrence) are together at all.
    for (bool joined = true; joined;) {
      joined = false;
      for (const Measured& recording : measured_) joined |= JoinParameters(recording.graph);
    }
    for (const Measured& recording : measured_) Place(recording.graph);
    FuseCircles();
    return Emit();
  }

 private:
  // The operators that must sit together, by the parameters known to be together so far; edges
  // between these lead to lower numbers. The backward pass counts mirrored.
  struct Parts {
    std::vector<int> of;  // of each operator
    Adjacency successors;
    std::vector<std::vector<int>> parameters;  // of each part; sorted
  };

  Parts PartsOf(const OperatorGraph& graph) {
    DisjointSets sets(graph.operators.size());
    std::vector<int> reader(parameters_count());
    for (size_t p = 0; p < reader.size(); ++p) reader[p] = graph.parameters[p].first_reader;
    for (size_t p = 0; p < reader.size(); ++p) {
      sets.Join(reader[p], reader[parameters_.Find(static_cast<int>(p))]);
    }
    for (size_t i = 0; i < graph.operators.size(); ++i) {
      if (graph.operators[i].color >= 0) {
        sets.Join(static_cast<int>(i), graph.operators[i].color);
      }
    }
    Adjacency precedence(graph.operators.size());
    const auto mirrored = [&](const Edge& edge) {
      int from = sets.Find(edge.from), to = sets.Find(edge.to);
      if (graph.operators[edge.from].backward) std::swap(from, to);
      return std::pair(from, to);
    };
    const auto one_pass = [&](const Edge& edge) {
      return graph.operators[edge.from].backward == graph.operators[edge.to].backward;
    };
    for (const Edge& edge : graph.edges) {
      if (!one_pass(edge)) continue;
      const auto [from, to] = mirrored(edge);
      if (from != to) precedence[from].push_back(to);
    }
    SortUniqueEach(&precedence);
    const std::vector<int> component = StrongComponents(precedence);
    Parts parts;
    parts.successors =
        Fuse(precedence, component, *std::max_element(component.begin(), component.end()) + 1);
    for (size_t i = 0; i < graph.operators.size(); ++i) {
      parts.of.push_back(component[sets.Find(static_cast<int>(i))]);
    }
    parts.parameters.resize(parts.successors.size());
    for (size_t p = 0; p < reader.size(); ++p) {
      parts.parameters[parts.of[reader[p]]].push_back(static_cast<int>(p));
    }
    return parts;
  }

  bool JoinParameters(const OperatorGraph& graph) {
    bool joined = false;
    for (const std::vector<int>& together : PartsOf(graph).parameters) {
      for (const int p : together) {
        joined |= parameters_.Find(p) != parameters_.Find(together[0]);
        parameters_.Join(p, together[0]);
      }
    }
    return joined;
  }

  // The name of a part at every length: its parameters, or, without parameters, those that it
  // depends on and those that depend on it. Parts of one name are one, which closes no circle:
  // along an edge the first set only grows, and the second one only shrinks.
  using Parameters = std::vector<bool>;  // of all; one stands for those that are together
  using Key = std::pair<Parameters, Parameters>;

  void Place(const OperatorGraph& graph) {
    const Parts parts = PartsOf(graph);
    const auto count = static_cast<int>(parts.successors.size());
    const Parameters none(parameters_count());
    std::vector<Parameters> before(count, none), after(count, none);
    const auto add = [&](int part, const Parameters& reached, Parameters* to) {
      for (size_t p = 0; p < reached.size(); ++p) {
        if (reached[p]) (*to)[p] = true;
      }
      for (const int p : parts.parameters[part]) (*to)[parameters_.Find(p)] = true;
    };
    for (int part = count - 1; part >= 0; --part) {
      for (const int next : parts.successors[part]) add(part, before[part], &before[next]);
    }
    for (int part = 0; part < count; ++part) {
      for (const int next : parts.successors[part]) add(next, after[next], &after[part]);
    }
    std::vector<int> pair_of(count);
    for (int part = 0; part < count; ++part) {
      Key key(before[part], after[part]);
      if (!parts.parameters[part].empty()) {
        key = {none, none};
        key.first[parameters_.Find(parts.parameters[part][0])] = true;
        key.second = key.first;
      }
      pair_of[part] =
          pairs_.try_emplace(std::move(key), static_cast<int>(pairs_.size())).first->second;
    }
    std::vector<int>& place = place_.emplace_back();
    for (const int part : parts.of) place.push_back(pair_of[part]);
    successors_.resize(pairs_.size());
    for (const Edge& edge : graph.edges) {
      const bool backward = graph.operators[edge.from].backward;
      if (backward != graph.operators[edge.to].backward) continue;
      int from = place[edge.from], to = place[edge.to];
      if (backward) std::swap(from, to);
      if (from != to) successors_[from].push_back(to);
    }
  }

  // Lengths may disagree about the order.
  void FuseCircles() {
    SortUniqueEach(&successors_);
    const std::vector<int> component = StrongComponents(successors_);
    for (std::vector<int>& place : place_) {
      for (int& pair : place) pair = component[pair];
    }
  }

  Alignment Emit() const {
    Alignment alignment;
    alignment.folded = true;
    // (pair, backward) in the order of the first recording that has it; -1: nowhere.
    std::map<std::pair<int, bool>, int> number;
    std::vector<std::map<std::string, int>> names;  // how many there are, in that recording
    for (size_t r = 0; r < measured_.size(); ++r) {
      const OperatorGraph& graph = measured_[r].graph;
      const size_t known = alignment.operators.size();
      std::vector<int>& place = alignment.place.emplace_back();
      for (size_t i = 0; i < graph.operators.size(); ++i) {
        const GraphOperator& op = graph.operators[i];
        const auto [it, added] =
            number.try_emplace({place_[r][i], op.backward}, alignment.operators.size());
        if (added) {
          Operator& out = alignment.operators.emplace_back();
          out.backward = op.backward;
          out.color = place_[r][i];
          names.emplace_back();
        }
        place.push_back(it->second);
        if (it->second >= static_cast<int>(known)) ++names[it->second][op.name];
      }
      for (const Edge& edge : graph.edges) {
        if (place[edge.from] != place[edge.to]) {
          alignment.edges.push_back({place[edge.from], place[edge.to]});
        }
      }
    }
    SortUnique(&alignment.edges);
    for (size_t i = 0; i < names.size(); ++i) {
      size_t count = 0;
      const std::pair<const std::string, int>* most = nullptr;
      for (const auto& name : names[i]) {
        count += name.second;
        if (most == nullptr || name.second > most->second) most = &name;
      }
      alignment.operators[i].name = CountedName(most->first, count - 1);
    }
    return alignment;
  }

  size_t parameters_count() const { return measured_[0].graph.parameters.size(); }

  const std::vector<Measured>& measured_;
  DisjointSets parameters_;
  std::map<Key, int> pairs_;
  Adjacency successors_;                 // of the pairs, forward
  std::vector<std::vector<int>> place_;  // the pair of each recording's operators
};

// Empty, or why the recordings cannot be of one model.
std::string Differences(const std::vector<Measured>& measured,
                        absl::Span<const Recording> recordings) {
  const OperatorGraph& first = measured[0].graph;
  for (size_t r = 1; r < measured.size(); ++r) {
    const OperatorGraph& other = measured[r].graph;
    const std::string names = absl::StrCat(recordings[0].name, " and ", recordings[r].name);
    if (first.training != other.training) {
      return absl::StrCat(names, ": only one of them has a backward pass");
    }
    if (first.parameters.size() != other.parameters.size()) {
      return absl::StrCat(names, " are of different models: one has ", first.parameters.size(),
                          " parameters, the other ", other.parameters.size());
    }
    for (size_t p = 0; p < first.parameters.size(); ++p) {
      if (first.parameters[p].elements != other.parameters[p].elements) {
        return absl::StrCat(names, " are of different models: parameter ", p + 1, " has ",
                            first.parameters[p].elements, " and ", other.parameters[p].elements,
                            " elements");
      }
    }
  }
  return "";
}

// Joins graph and times, and charges the optimizer's step to the operators.
absl::StatusOr<Measured> Measure(const Recording& recording, bool gpu_times, RecordingFacts* facts,
                                 OperatorTimes* times) {
  Measured measured;
  SEQPOINT_ASSIGN_OR_RETURN(measured.graph, MakeOperatorGraph(recording.graph));
  const std::vector<GraphOperator>& operators = measured.graph.operators;
  if (operators.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        recording.graph.source, " has no forward or backward operators, only the optimizer's"));
  }

  std::vector<int> nodes;
  for (const GraphOperator& op : operators) nodes.push_back(op.node);
  for (const UpdateOperator& op : measured.graph.updates) nodes.push_back(op.node);
  std::sort(nodes.begin(), nodes.end());
  SEQPOINT_ASSIGN_OR_RETURN(*times, JoinTimes(recording.graph, nodes, recording.times));
  const auto time_of = [&](int node) {
    const size_t place = std::lower_bound(nodes.begin(), nodes.end(), node) - nodes.begin();
    const OperatorTime& time = times->operators[place];
    return (gpu_times ? time.gpu_ns : time.cpu_ns) * kMsPerNs;
  };

  for (const GraphOperator& op : operators) {
    measured.costs.push_back({time_of(op.node), op.activation_bytes});
  }
  const std::vector<Parameter>& parameters = measured.graph.parameters;
  for (const Parameter& parameter : parameters) {
    measured.costs[parameter.first_reader].memory_bytes += parameter.resident_bytes;
  }
  const auto charge = [&](double time, const std::vector<int>& to) {
    double bytes = 0;
    for (const int p : to) bytes += parameters[p].bytes;
    for (const int p : to) {
      const double share = bytes > 0 ? parameters[p].bytes / bytes : 1.0 / to.size();
      measured.costs[parameters[p].updater].time += time * share;
    }
  };
  double for_all = 0;
  for (const UpdateOperator& update : measured.graph.updates) {
    const double time = time_of(update.node);
    facts->update += time;
    if (update.parameters.empty()) {
      for_all += time;
    } else {
      charge(time, update.parameters);
    }
  }
  std::vector<int> all(parameters.size());
  std::iota(all.begin(), all.end(), 0);
  charge(for_all, all);
  if (all.empty()) measured.costs.back().time += for_all;
  facts->name = recording.name;
  facts->iteration = times->iteration_ns * kMsPerNs;
  for (const Cost& cost : measured.costs) facts->loads += cost.time;
  facts->operators = static_cast<int>(nodes.size());
  facts->without_time = times->without_time;
  facts->joined_by_id = times->by_id;
  if (gpu_times) {
    facts->without_operator = times->gpu_ns * kMsPerNs - facts->loads;
  } else {
    facts->between = times->between_ns * kMsPerNs;
  }
  return measured;
}

}  // namespace

absl::StatusOr<MeasuredRun> MakeMeasuredRun(absl::Span<const Recording> recordings,
                                            const DevicesAsked& devices) {
  if (recordings.empty()) return absl::InvalidArgumentError("no recording is given");
  MeasuredRun run;
  run.gpu_times = !recordings[0].times.works.empty();
  std::vector<Measured> measured;
  double copied_bytes = 0, copying_ns = 0;
  for (const Recording& recording : recordings) {
    if (recording.times.works.empty() == run.gpu_times) {
      return absl::FailedPreconditionError(
          absl::StrCat(recordings[0].name, " and ", recording.name,
                       ": only one of them has GPU work; record all on the same device"));
    }
    OperatorTimes times;
    SEQPOINT_ASSIGN_OR_RETURN(
        auto one, Measure(recording, run.gpu_times, &run.recordings.emplace_back(), &times));
    measured.push_back(std::move(one));
    copied_bytes += times.copied_bytes;
    copying_ns += times.copying_ns;
  }
  if (run.gpu_times && devices.cpus > 0) {
    return absl::FailedPreconditionError(
        "the recordings were made on a GPU: what the operators take on a CPU is not known; ask for "
        "0 CPU cores");
  }
  if (const std::string why = Differences(measured, recordings); !why.empty()) {
    return absl::FailedPreconditionError(why);
  }
  run.bandwidth_measured = !devices.bytes_per_second && copied_bytes > 0 && copying_ns > 0;
  run.bytes_per_second = run.bandwidth_measured
                             ? copied_bytes / copying_ns * 1e9
                             : devices.bytes_per_second.value_or(kDefaultBytesPerSecond);

  const bool same = std::all_of(measured.begin(), measured.end(), [&](const Measured& other) {
    return SameOperators(measured[0].graph, other.graph);
  });
  const Alignment alignment = same ? AlignOneByOne(measured) : Folder(measured).Fold();
  run.folded = alignment.folded;
  run.trace_ids.resize(alignment.operators.size());
  for (size_t r = 0; r < recordings.size(); ++r) {
    WeightedProblem& weighted = run.problems.emplace_back();
    weighted.name = recordings[r].name;
    weighted.weight = recordings[r].weight;
    Problem& problem = weighted.problem;
    problem.operators = alignment.operators;
    problem.edges = alignment.edges;
    problem.accelerators = devices.accelerators;
    problem.cpus = devices.cpus;
    problem.memory_bytes = devices.memory_bytes;
    const OperatorGraph& graph = measured[r].graph;
    const std::vector<int>& place = alignment.place[r];
    for (size_t i = 0; i < graph.operators.size(); ++i) {
      const Cost& cost = measured[r].costs[i];
      Operator& op = problem.operators[place[i]];
      op.cpu_time += cost.time;
      op.accelerator_time += cost.time;
      op.memory_bytes += cost.memory_bytes;
      if (r == 0) {
        run.trace_ids[place[i]].push_back(
            recordings[0].graph.operators[graph.operators[i].node].id);
      }
    }
    for (const Output& output : graph.outputs) {
      // Data that only operators on the same device need is never moved.
      const int from = place[output.producer];
      const bool moves =
          std::any_of(output.consumers.begin(), output.consumers.end(), [&](int consumer) {
            const int to = place[consumer];
            const auto& color = problem.operators[from].color;
            return from != to && !(color && color == problem.operators[to].color);
          });
      if (moves) {
        problem.operators[from].transfer_time += output.bytes / run.bytes_per_second * 1e3;
      }
    }
    for (size_t i = 0; i < problem.operators.size(); ++i) {
      const std::vector<uint64_t>& ids = run.trace_ids[i];
      problem.operators[i].id = static_cast<int64_t>(run.folded || ids.empty() ? i : ids[0]);
    }
  }
  return run;
}

}  // namespace seqpoint::placement
