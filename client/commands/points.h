// --points, --target-error, --confidence: how many iterations stand for all others.
// Threading: values. Ownership: the options outlive the app that reads them.
#ifndef CLIENT_COMMANDS_POINTS_H_
#define CLIENT_COMMANDS_POINTS_H_

#include <CLI/CLI.hpp>

#include "client/commands/options.h"

namespace seqpoint::client {

struct PointOptions {
  int points = 0;           // 0: the default
  double target_error = 0;  // 0: as `points` says
  double confidence = 0;

  void AddTo(CLI::App* command) {
    constexpr int64_t kMaxPoints = 1'000'000;
    auto* number =
        AddValue(command, "--points K", &points, "how many iterations to measure; default 16",
                 WholeNumber(1, kMaxPoints));
    AddValue(command, "--target-error E", &target_error,
             "as many measurements as give the total to +-E: 0.5% or 0.005", Share())
        ->excludes(number);
    AddValue(command, "--confidence C", &confidence, "confidence of the intervals; default 95%",
             Confidence());
  }
};

}  // namespace seqpoint::client

#endif  // CLIENT_COMMANDS_POINTS_H_
