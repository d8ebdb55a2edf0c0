#include "daemon/placement/exact.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cmath>
#include <numeric>
#include <thread>
#include <utility>

namespace seqpoint::placement {
namespace {

// Sums in another order differ in the last digits; no bound may exclude for that. A share.
constexpr double kSlack = 1e-9;
constexpr int kLooksBetweenStops = 1 << 16;
constexpr int kIdealsBetweenStops = 1 << 10;
// With fewer ideals of a size, on average, threads wait for each other longer than they work: on
// the published graphs an ideal takes 10 to 500 us, no more than waking a thread on a busy machine.
constexpr int kIdealsPerThread = 16;
// The first limit lies so far above the lower bound, as a share, and the gap grows so much from one
// limit to the next. A pass costs the more the higher its limit is. On the published graphs a first
// gap of 2 % finds the optimum of Inception in a tenth of the time that one high limit takes, and a
// growth of 16 instead of 4 saves GNMT a quarter.
constexpr double kFirstGap = 0.02;
constexpr double kGapGrowth = 16;

// No stage may cut a net whose transfer is above the limit. More than this many limits are not
// counted: next to a transfer of 1e16 a time of 1 would be lost.
constexpr double kTooMuch = 2;

// A number of devices of each kind, and the largest load with which they can do an ideal.
struct State {
  int accelerators = 0;
  int cpus = 0;
  double load = 0;
};

// A net at one of its classes.
struct Pin {
  int net = 0;
  int classes = 0;  // of the net
  double transfer_time = 0;
};

// The data that does not depend on the ideal: the graph as flat lists, and how much work cores can
// take away from accelerators.
struct Task {
  Task(const ClassGraph& classes, const Ideals& listed, double limit)
      : graph(classes), ideals(listed), below(limit) {
    accelerators = std::min(graph.accelerators, graph.size());
    cpus = std::min(graph.cpus, graph.size());
    std::vector<std::vector<Pin>> pins_of(graph.size());
    for (size_t net = 0; net < graph.nets.size(); ++net) {
      const std::vector<int>& on = graph.nets[net].classes;
      for (const int c : on) {
        pins_of[c].push_back({static_cast<int>(net), static_cast<int>(on.size()),
                              std::min(graph.nets[net].transfer_time, kTooMuch * limit)});
      }
    }
    first_pin.push_back(0);
    for (const std::vector<Pin>& of : pins_of) {
      pins.insert(pins.end(), of.begin(), of.end());
      first_pin.push_back(pins.size());
    }
    for (const Class& of : graph.classes) {
      work += of.accelerator_time;
      on_accelerator.push_back(of.accelerator_supported && accelerators > 0 ? of.accelerator_time
                                                                            : kInfinity);
      on_cpu.push_back(cpus > 0 ? of.cpu_time : kInfinity);
    }
    // Classes that cores are good at, first (fractional knapsack).
    const auto gain = [&](int c) {
      const Class& of = graph.classes[c];
      return of.cpu_time == 0 ? kInfinity : of.accelerator_time / of.cpu_time;
    };
    std::vector<int> order(graph.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](int a, int b) { return gain(a) > gain(b); });
    for (int c = 0; c <= cpus; ++c) {
      double time = c == 0 ? 0 : c * below, taken = 0;
      for (const int next : order) {
        const Class& of = graph.classes[next];
        const double share = of.cpu_time <= time ? 1 : time / of.cpu_time;
        taken += share * of.accelerator_time;
        time -= share * of.cpu_time;
        if (share < 1) break;
      }
      taken_by_cpus.push_back(c == 0 ? 0 : taken);
    }
  }

  // The least number of accelerators that, with so many cores, can do this work with loads below
  // the limit, if it could be divided at will and cost no transfers.
  double LeastAccelerators(double accelerator_time, int more_cpus) const {
    return std::ceil(std::max(0.0, accelerator_time - taken_by_cpus[more_cpus] - work * kSlack) /
                     below);
  }

  const ClassGraph& graph;
  const Ideals& ideals;
  const double below;
  int accelerators = 0;
  int cpus = 0;
  std::vector<Pin> pins;
  std::vector<size_t> first_pin;               // of each class, and one behind the last
  std::vector<double> on_accelerator, on_cpu;  // time of each class; infinite where it cannot run
  double work = 0;                             // accelerator time of all classes
  std::vector<double> taken_by_cpus;  // accelerator time, at most, by so many cores in `below`
};

// The classes of an ideal that are not in a smaller one, as one stage.
struct Stage {
  double accelerator_time = 0;
  double cpu_time = 0;
  double memory_bytes = 0;
  double communication = 0;
  double cut_for_good = 0;  // of it: nets that have a class outside the ideal
};

// Walks from one ideal down through all smaller ones. One thread's.
class Walk {
 public:
  explicit Walk(const Task& task)
      : task_(task), in_stage_(task.graph.nets.size(), 0), outside_(task.graph.nets.size(), 0) {}

  // visit(smaller ideal, load on an accelerator, load on a core) for each pair with one of the
  // loads below the limit; it says whether to go on.
  template <typename Visit>
  bool Down(int ideal, Visit visit) {
    const Ideals& ideals = task_.ideals;
    for (size_t net = 0; net < outside_.size(); ++net) {
      const std::vector<int>& classes = task_.graph.nets[net].classes;
      outside_[net] = !std::all_of(classes.begin(), classes.end(),
                                   [&](int c) { return ideals.Contains(ideal, c); });
    }
    bool goes_on = true;
    frames_.clear();
    frames_.push_back({ideals.begin(ideal), ideals.end(ideal), -1, Stage{}});
    while (!frames_.empty()) {
      Frame& frame = frames_.back();
      if (frame.next == frame.end || !goes_on) {
        if (frame.taken >= 0) Leave(frame.taken);
        frames_.pop_back();
        continue;
      }
      const Ideals::Step step = *frame.next++;
      Stage stage = frame.stage;
      if (!Enter(step.taken, &stage)) continue;
      // Classes are taken away from the highest number down, so that each ideal comes once.
      const Ideals::Step* first = ideals.begin(step.left);
      const Ideals::Step* last = ideals.end(step.left);
      while (first != last && first->taken > step.taken) ++first;
      const double load = stage.memory_bytes <= task_.graph.memory_bytes
                              ? stage.accelerator_time + stage.communication
                              : kInfinity;
      if (load < task_.below || stage.cpu_time < task_.below) {
        goes_on = visit(step.left, load, stage.cpu_time);
      }
      if (first == last) {
        Leave(step.taken);
      } else {
        frames_.push_back({first, last, step.taken, stage});
      }
    }
    return goes_on;
  }

 private:
  struct Frame {
    const Ideals::Step* next;
    const Ideals::Step* end;
    int taken;    // last; -1 at the top
    Stage stage;  // with it
  };

  // False, and nothing has changed: neither this stage nor a larger one has a load below the limit.
  // Times, memory and nets that are cut for good only grow; what other nets add may shrink again.
  bool Enter(int c, Stage* stage) {
    stage->accelerator_time += task_.on_accelerator[c];
    stage->cpu_time += task_.on_cpu[c];
    stage->memory_bytes += task_.graph.classes[c].memory_bytes;
    const bool cpu_may = stage->cpu_time < task_.below;
    if (!cpu_may && (stage->accelerator_time >= task_.below ||
                     stage->memory_bytes > task_.graph.memory_bytes)) {
      return false;
    }
    const Pin* end = task_.pins.data() + task_.first_pin[c + 1];
    for (const Pin* pin = task_.pins.data() + task_.first_pin[c]; pin != end; ++pin) {
      const int inside = ++in_stage_[pin->net];
      if (inside == 1) {
        stage->communication += pin->transfer_time;
        if (outside_[pin->net] != 0) stage->cut_for_good += pin->transfer_time;
      } else if (inside == pin->classes) {
        stage->communication -= pin->transfer_time;
      }
    }
    if (cpu_may || stage->accelerator_time + stage->cut_for_good < task_.below) return true;
    Leave(c);
    return false;
  }

  void Leave(int c) {
    const Pin* end = task_.pins.data() + task_.first_pin[c + 1];
    for (const Pin* pin = task_.pins.data() + task_.first_pin[c]; pin != end; ++pin) {
      --in_stage_[pin->net];
    }
  }

  const Task& task_;
  std::vector<int> in_stage_;  // classes of each net
  std::vector<char> outside_;  // each net has classes outside the ideal
  std::vector<Frame> frames_;
};

// The states of all ideals: those of one size after another, which need the smaller ones only.
class Program {
 public:
  Program(Task task, const StagesOptions& options)
      : task_(std::move(task)),
        options_(options),
        states_(task_.ideals.size()),
        live_(task_.ideals.size(), 0),
        done_work_(task_.ideals.size(), 0) {}

  Stages Run() {
    states_[0] = {State{}};
    live_[0] = 1;
    // All ideals of a size are done before the next size begins.
    const int of_a_size = task_.ideals.size() / (task_.ideals.classes() + 1);
    const int threads = std::max(1, std::min(options_.threads, of_a_size / kIdealsPerThread));
    next_ = 1;
    std::barrier ready(threads, [this]() noexcept { NextSize(); });
    const auto work = [&] {
      Worker worker(task_);
      while (!done_.load()) {
        DoSize(&worker);
        ready.arrive_and_wait();
      }
    };
    std::vector<std::thread> others;
    for (int i = 1; i < threads; ++i) others.emplace_back(work);
    work();
    for (std::thread& other : others) other.join();
    Stages stages;
    stages.stopped = stop_.load();
    if (!stages.stopped && !states_.back().empty()) Trace(&stages);
    return stages;
  }

 private:
  struct Worker {
    explicit Worker(const Task& task)
        : walk(task), best((task.accelerators + 1) * (task.cpus + 1), kInfinity) {}
    Walk walk;
    std::vector<double> best;  // load, by Index()
    std::vector<State> found;
    int64_t looks = 0;
  };

  int Index(int accelerators, int cpus) const { return accelerators * (task_.cpus + 1) + cpus; }

  void NextSize() noexcept {
    ++size_;
    if (size_ > task_.ideals.classes() || stop_.load()) done_ = true;
    if (!done_) next_ = task_.ideals.FirstOfSize(size_);
    if (options_.progress) {
      options_.progress(static_cast<double>(next_) / task_.ideals.size());
    }
  }

  void DoSize(Worker* worker) {
    const int end = task_.ideals.FirstOfSize(size_ + 1);
    for (int ideal = next_++; ideal < end && !stop_.load(); ideal = next_++) {
      states_[ideal] = StatesOf(ideal, worker);
      live_[ideal] = states_[ideal].empty() ? 0 : 1;
      if (ideal % kIdealsBetweenStops == 0) Stop();
    }
  }

  // The number of accelerators, at least and at most, that may do an ideal with this work together
  // with so many cores; the rest is for the other devices.
  struct Range {
    double least = 0;
    double most = 0;
  };
  Range AcceleratorsFor(double done, int cpus) const {
    return {task_.LeastAccelerators(done, cpus),
            task_.accelerators - task_.LeastAccelerators(task_.work - done, task_.cpus - cpus)};
  }

  std::vector<State> StatesOf(int ideal, Worker* worker) {
    const Ideals::Step& step = *task_.ideals.begin(ideal);
    const double done = done_work_[step.left] + task_.graph.classes[step.taken].accelerator_time;
    done_work_[ideal] = done;
    bool may_be = false;
    for (int cpus = 0; cpus <= task_.cpus && !may_be; ++cpus) {
      const Range range = AcceleratorsFor(done, cpus);
      may_be = range.least <= range.most;
    }
    if (!may_be) return {};
    std::vector<State>& found = worker->found;
    found.clear();
    const auto consider = [&](int accelerators, int cpus, double load) {
      double& best = worker->best[Index(accelerators, cpus)];
      if (load >= best || load >= task_.below) return;
      if (best == kInfinity) found.push_back({accelerators, cpus, 0});
      best = load;
    };
    const bool through = worker->walk.Down(ideal, [&](int smaller, double accelerator_load,
                                                      double cpu_load) {
      if (live_[smaller] != 0) {
        for (const State& state : states_[smaller]) {
          if (state.accelerators < task_.accelerators) {
            consider(state.accelerators + 1, state.cpus, std::max(state.load, accelerator_load));
          }
          if (state.cpus < task_.cpus) {
            consider(state.accelerators, state.cpus + 1, std::max(state.load, cpu_load));
          }
        }
      }
      return ++worker->looks % kLooksBetweenStops != 0 || !Stop();
    });
    for (State& state : found) {
      state.load = std::exchange(worker->best[Index(state.accelerators, state.cpus)], kInfinity);
    }
    if (!through) return {};
    return Useful(done, &found);
  }

  // Keeps those that may become a whole placement, without those that others beat with no more
  // devices of either kind and no more load.
  std::vector<State> Useful(double done, std::vector<State>* found) const {
    std::sort(found->begin(), found->end(), [](const State& a, const State& b) {
      if (a.load != b.load) return a.load < b.load;
      return a.accelerators + a.cpus < b.accelerators + b.cpus;
    });
    std::vector<State> useful;
    for (const State& state : *found) {
      const bool beaten = std::any_of(useful.begin(), useful.end(), [&](const State& other) {
        return other.accelerators <= state.accelerators && other.cpus <= state.cpus;
      });
      const Range range = AcceleratorsFor(done, state.cpus);
      const bool may_be = range.least <= state.accelerators && state.accelerators <= range.most;
      if (!beaten && may_be) useful.push_back(state);
    }
    return useful;
  }

  bool Stop() {
    if (options_.stop && options_.stop()) stop_ = true;
    return stop_.load();
  }

  // From the whole back: a stage and a state before it that give the load. No pair was kept; the
  // walk is done again for one ideal of each stage.
  void Trace(Stages* stages) {
    std::vector<int>& device = stages->device;
    device.assign(task_.graph.size(), -1);
    int ideal = task_.ideals.size() - 1;
    State at = *std::min_element(states_[ideal].begin(), states_[ideal].end(),
                                 [](const State& a, const State& b) { return a.load < b.load; });
    stages->load = at.load;
    Walk walk(task_);
    while (ideal > 0) {
      int before = -1;
      State from;
      walk.Down(ideal, [&](int smaller, double accelerator_load, double cpu_load) {
        for (const State& state : states_[smaller]) {
          const int accelerators = at.accelerators - state.accelerators;
          const int cpus = at.cpus - state.cpus;
          const bool on_accelerator = accelerators == 1 && cpus == 0;
          const bool on_cpu = accelerators == 0 && cpus == 1;
          const double load = on_accelerator ? accelerator_load : on_cpu ? cpu_load : kInfinity;
          if (std::max(state.load, load) <= at.load) {
            before = smaller;
            from = state;
            return false;
          }
        }
        return true;
      });
      const int number = from.accelerators < at.accelerators ? from.accelerators
                                                             : task_.graph.accelerators + from.cpus;
      for (int c = 0; c < task_.graph.size(); ++c) {
        if (task_.ideals.Contains(ideal, c) && !task_.ideals.Contains(before, c)) {
          device[c] = number;
        }
      }
      ideal = before;
      at = from;
    }
  }

  const Task task_;
  const StagesOptions& options_;
  std::vector<std::vector<State>> states_;
  std::vector<char> live_;         // the ideal has states
  std::vector<double> done_work_;  // accelerator time of the ideal's classes
  int size_ = 1;                   // of the ideals that are being done
  std::atomic<int> next_ = 0;
  std::atomic<bool> stop_ = false, done_ = false;
};

// No placement has a higher load on any device.
double HighestLoad(const ClassGraph& graph) {
  double load = 0;
  for (const Class& of : graph.classes) load += of.accelerator_time + of.cpu_time;
  for (const Net& net : graph.nets) load += net.transfer_time;
  return load;
}

}  // namespace

Stages BestStages(const ClassGraph& graph, const Ideals& ideals, double from, double below,
                  const StagesOptions& options) {
  below = std::min(below, std::nextafter(HighestLoad(graph) * (1 + kSlack), kInfinity));
  Stages all;
  all.none_below = from;
  for (double gap = kFirstGap; all.none_below < below; gap *= kGapGrowth) {
    const double wanted = from * (1 + gap);
    const double limit = wanted > from ? std::min(wanted, below) : below;
    Stages stages = Program(Task(graph, ideals, limit), options).Run();
    all.stopped = stages.stopped;
    all.load = stages.load;
    all.device = std::move(stages.device);
    if (all.stopped || !all.device.empty()) break;
    all.none_below = limit;
  }
  return all;
}

}  // namespace seqpoint::placement
