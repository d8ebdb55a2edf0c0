#include "client/commands/part.h"

#include "client/commands/options.h"

namespace seqpoint::client {

void PartOptions::AddTo(CLI::App* command) {
  constexpr int64_t kMost = 1'000'000'000'000'000;
  const OptionGroup group(command, "A part of the run");
  auto* first =
      AddValue(command, "--from N", &from, "the first iteration, from 0", WholeNumber(0, kMost));
  auto* last = AddValue(command, "--to N", &to, "the last iteration", WholeNumber(0, kMost));
  AddValue(command, "--epoch E", &epoch,
           "an epoch, from 1; needs a run with --iterations N --epochs E, or with "
           "--lengths FILE --epochs E",
           WholeNumber(1, INT32_MAX))
      ->excludes(first)
      ->excludes(last);
}

}  // namespace seqpoint::client
