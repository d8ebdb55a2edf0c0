#include "daemon/placement/proof.h"

#include <algorithm>
#include <coin/CbcEventHandler.hpp>
#include <coin/CbcModel.hpp>
#include <coin/CoinModel.hpp>
#include <coin/OsiClpSolverInterface.hpp>
#include <numeric>
#include <string>

#include "daemon/placement/bound.h"

namespace seqpoint::placement {
namespace {

class StopHandler : public CbcEventHandler {
 public:
  explicit StopHandler(const std::function<bool()>* stop) : stop_(stop) {}
  CbcAction event(CbcEvent) override {
    return *stop_ && (*stop_)() ? CbcEventHandler::stop : noAction;
  }
  CbcEventHandler* clone() const override { return new StopHandler(*this); }

 private:
  const std::function<bool()>* stop_;
};

// Columns: whether a class is on a device; for each net and accelerator, whether some of its
// classes are there (touched) and whether all of them are (inside); the largest load.
class ProofProgram {
 public:
  // Times are in `unit`s: Cbc's tolerances are absolute.
  ProofProgram(const Problem& devices, const ClassGraph& graph, double unit)
      : devices_(devices), graph_(graph), unit_(unit) {
    const int on = graph.size() * devices.devices();
    const int of_nets = static_cast<int>(graph.nets.size()) * devices.accelerators;
    touched_ = on;
    inside_ = touched_ + of_nets;
    largest_ = inside_ + of_nets;
    for (int i = 0; i < largest_; ++i) model_.setColumnBounds(i, 0, 1);
    for (int i = 0; i < on; ++i) model_.setInteger(i);
    model_.setColumnBounds(largest_, 0, COIN_DBL_MAX);
    model_.setObjective(largest_, 1);
    PlaceEachOnce();
    TellAlikeApart();
    Nets();
    Loads();
  }

  const CoinModel& model() const { return model_; }
  int on(int c, int d) const { return c * devices_.devices() + d; }

 private:
  void Row(double low, double high) {
    model_.addRow(static_cast<int>(columns_.size()), columns_.data(), values_.data(), low, high);
    columns_.clear();
    values_.clear();
  }
  void Add(int column, double value) {
    columns_.push_back(column);
    values_.push_back(value);
  }

  void PlaceEachOnce() {
    for (int c = 0; c < graph_.size(); ++c) {
      for (int d = 0; d < devices_.devices(); ++d) {
        Add(on(c, d), 1);
        const bool allowed =
            !devices_.IsAccelerator(d) || RunsOnAccelerator(graph_, graph_.classes[c]);
        if (!allowed) model_.setColumnUpper(on(c, d), 0.0);
      }
      Row(1, 1);
    }
  }

  // Devices of a kind are named by the largest class on them: the first class sits on the first or
  // on the other kind, the next on one of the first two, and on.
  void TellAlikeApart() {
    std::vector<int> by_time(graph_.size());
    std::iota(by_time.begin(), by_time.end(), 0);
    std::sort(by_time.begin(), by_time.end(), [this](int a, int b) {
      return graph_.classes[a].accelerator_time > graph_.classes[b].accelerator_time;
    });
    for (int i = 0; i < graph_.size(); ++i) {
      for (int d = i + 1; d < devices_.accelerators; ++d) {
        model_.setColumnUpper(on(by_time[i], d), 0.0);
      }
      for (int d = devices_.accelerators + i + 1; d < devices_.devices(); ++d) {
        model_.setColumnUpper(on(by_time[i], d), 0.0);
      }
    }
  }

  void Nets() {
    for (size_t net = 0; net < graph_.nets.size(); ++net) {
      for (int d = 0; d < devices_.accelerators; ++d) {
        const int i = static_cast<int>(net) * devices_.accelerators + d;
        for (int c : graph_.nets[net].classes) {
          Add(touched_ + i, 1);
          Add(on(c, d), -1);
          Row(0, COIN_DBL_MAX);
          Add(inside_ + i, 1);
          Add(on(c, d), -1);
          Row(-COIN_DBL_MAX, 0);
        }
      }
    }
  }

  // No better placement has a load of one unit. Coefficients far above that make Cbc err.
  double Share(double time) const { return std::min(time / unit_, 2.0); }

  void Loads() {
    for (int d = 0; d < devices_.devices(); ++d) {
      const bool accelerator = devices_.IsAccelerator(d);
      for (int c = 0; c < graph_.size(); ++c) {
        const Class& placed = graph_.classes[c];
        Add(on(c, d), Share(accelerator ? placed.accelerator_time : placed.cpu_time));
      }
      for (size_t net = 0; accelerator && net < graph_.nets.size(); ++net) {
        const int i = static_cast<int>(net) * devices_.accelerators + d;
        const double transfer_time = Share(graph_.nets[net].transfer_time);
        Add(touched_ + i, transfer_time);
        Add(inside_ + i, -transfer_time);
      }
      Add(largest_, -1);
      Row(-COIN_DBL_MAX, 0);
      if (!accelerator || devices_.memory_limit() <= 0) continue;
      for (int c = 0; c < graph_.size(); ++c) {
        // As shares of the memory: bytes next to times of a millisecond are badly scaled.
        Add(on(c, d), graph_.classes[c].memory_bytes / devices_.memory_limit());
      }
      Row(-COIN_DBL_MAX, 1);
    }
  }

  const Problem& devices_;
  const ClassGraph& graph_;
  const double unit_;
  int touched_ = 0, inside_ = 0, largest_ = 0;
  CoinModel model_;
  std::vector<int> columns_;
  std::vector<double> values_;
};

}  // namespace

bool ProofIsThere() { return true; }

Proof ProveMaxLoad(const Problem& devices, const ClassGraph& graph, double known, double seconds,
                   const std::function<bool()>& stop) {
  // One device leaves nothing to choose, and no time nothing to improve.
  if (devices.devices() < 2 || known <= 0) return {.lower_bound = known, .finished = true};
  const ProofProgram program(devices, graph, known);
  CoinModel rows = program.model();
  OsiClpSolverInterface solver;
  solver.setHintParam(OsiDoReducePrint, true);
  solver.messageHandler()->setLogLevel(0);
  solver.loadFromCoinModel(rows);
  CbcModel model(solver);
  CbcMain0(model);
  model.setLogLevel(0);
  const StopHandler handler(&stop);
  model.passInEventHandler(&handler);
  // Only a better placement is of use; one that is better by a millionth is not.
  model.setCutoff(1 - 1e-7);
  const std::string limit = std::to_string(seconds);
  const char* arguments[] = {"seqpoint-place", "-log", "0",      "-seconds", limit.c_str(),
                             "-ratioGap",      "1e-7", "-solve", "-quit"};
  CbcMain1(static_cast<int>(std::size(arguments)), arguments, model);

  Proof proof;
  proof.finished = model.status() == 0 && !(stop && stop());
  const double bound = model.getBestPossibleObjValue();
  if (proof.finished) {
    proof.lower_bound = known * (model.bestSolution() ? std::min(1.0, bound) : 1.0);
  } else if (bound > 0 && bound < 1 - 1e-7) {
    proof.lower_bound = known * bound;  // else it stopped before it knew anything
  }
  const double* solution = model.bestSolution();
  if (solution != nullptr) {
    for (int c = 0; c < graph.size(); ++c) {
      const double* first = solution + program.on(c, 0);
      proof.device.push_back(
          static_cast<int>(std::max_element(first, first + devices.devices()) - first));
    }
  }
  return proof;
}

}  // namespace seqpoint::placement
