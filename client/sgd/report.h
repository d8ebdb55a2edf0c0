// The traffic and the step times of a run of seqpoint-sgd: as text for people, and as JSON
// (docs/using/partition.md, "Execution"). Threading: pure functions.
#ifndef CLIENT_SGD_REPORT_H_
#define CLIENT_SGD_REPORT_H_

#include <string>
#include <vector>

#include "client/sgd/training.h"

namespace seqpoint::sgd {

struct Report {
  int ranks = 1;
  bool inference = false;
  int steps_wanted = 0;
  bool stopped = false;                    // by a signal, after the steps of `step_seconds`
  int samples = 0;                         // of a minibatch
  std::vector<double> step_seconds;        // of the slowest rank
  std::vector<double> losses;              // of training
  double output_sum = 0;                   // of the last step's outputs; inference
  std::vector<Traffic> forward, backward;  // of all ranks, of one step, by layer
  Traffic largest_sender;                  // most words, and most messages, of one rank and step
  bool as_predicted = false;               // in every layer, by the judge
};

// The traffic of all layers together.
Traffic Sum(const std::vector<Traffic>& layers);

std::string ReportText(const Report& report);
std::string ReportJson(const Report& report);

}  // namespace seqpoint::sgd

#endif  // CLIENT_SGD_REPORT_H_
