#include "daemon/placement/annealing.h"

#include "daemon/placement/components.h"

namespace seqpoint::placement {

std::vector<int> TopologicalLine(const ClassGraph& graph) {
  std::vector<int> line;
  std::vector<bool> seen(graph.size(), false);
  std::vector<std::pair<int, size_t>> path;  // class, its next predecessor
  for (int last = graph.size() - 1; last >= 0; --last) {
    if (seen[last]) continue;
    seen[last] = true;
    path.emplace_back(last, 0);
    while (!path.empty()) {
      const int c = path.back().first;
      if (path.back().second == graph.predecessors[c].size()) {
        line.push_back(c);
        path.pop_back();
        continue;
      }
      const int before = graph.predecessors[c][path.back().second++];
      if (seen[before]) continue;
      seen[before] = true;
      path.emplace_back(before, 0);
    }
  }
  return line;
}

Neighbourhood::Neighbourhood(const ClassGraph& graph, int accelerators, int devices)
    : graph_(graph),
      accelerators_(accelerators),
      devices_(devices),
      nets_of_(NetsOfClasses(graph)),
      line_(TopologicalLine(graph)),
      place_(PlacesIn(line_)) {}

bool Neighbourhood::Propose(const std::vector<int>& device, Random& random, Moves& moves) const {
  moves.clear();
  const int c = Below(classes(), random);
  const int from = device[c];
  switch (Below(5, random)) {
    case 0: {  // exchange
      const int other = Below(classes(), random);
      return Add(c, device[other], device, moves) && Add(other, from, device, moves);
    }
    case 1:  // to a neighbour
      return Add(c, device[Neighbour(c, random)], device, moves);
    case 2: {  // with a neighbour
      const int other = Neighbour(c, random);
      const int to = Below(devices_, random);
      if (other == c || device[other] != from) return false;
      return Add(c, to, device, moves) && Add(other, to, device, moves);
    }
    case 3:
      return Add(c, Below(devices_, random), device, moves);
    default:
      return Stretch(c, device, random, moves);
  }
}

bool Neighbourhood::Add(int c, int to, const std::vector<int>& device, Moves& moves) const {
  if (to == device[c]) return false;
  if (to < accelerators_ && !graph_.classes[c].accelerator_supported) return false;
  moves.emplace_back(c, to);
  return true;
}

// From `c` on, forwards or backwards, the classes of its device, to the device that lies on the
// other side of `c`, or to any. Lengths from one to half of the graph, short ones more often.
bool Neighbourhood::Stretch(int c, const std::vector<int>& device, Random& random,
                            Moves& moves) const {
  const int direction = Below(2, random) == 0 ? 1 : -1;
  const double longest = std::max(2.0, classes() / 2.0);
  const size_t wanted = static_cast<size_t>(exp(Uniform(random) * log(longest)));
  const int behind = place_[c] - direction;
  const bool to_neighbour = Below(2, random) == 0 && behind >= 0 && behind < classes();
  const int to = to_neighbour ? device[line_[behind]] : Below(devices_, random);
  for (int i = place_[c]; i >= 0 && i < classes() && moves.size() < wanted; i += direction) {
    if (device[line_[i]] == device[c]) {
      if (!Add(line_[i], to, device, moves)) return false;
    } else if (Below(2, random) == 0) {
      break;
    }
  }
  return true;
}

int Neighbourhood::Neighbour(int c, Random& random) const {
  const std::vector<int>& nets = nets_of_[c];
  if (nets.empty()) return c;
  const int net = nets[Below(static_cast<int>(nets.size()), random)];
  const std::vector<int>& classes = graph_.nets[net].classes;
  return classes[Below(static_cast<int>(classes.size()), random)];
}

}  // namespace seqpoint::placement
