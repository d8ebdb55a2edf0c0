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
        command->add_option("--points", points, "how many iterations to measure; default 16")
            ->transform(WholeNumber(1, kMaxPoints))
            ->type_name("K");
    command
        ->add_option("--target-error", target_error,
                     "as many measurements as give the total to +-E: 0.5% or 0.005")
        ->transform(Share())
        ->excludes(number)
        ->type_name("E");
    command->add_option("--confidence", confidence, "confidence of the intervals; default 95%")
        ->transform(Confidence())
        ->type_name("C");
  }
};

}  // namespace seqpoint::client

#endif  // CLIENT_COMMANDS_POINTS_H_
