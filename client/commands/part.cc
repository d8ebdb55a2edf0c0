#include "client/commands/part.h"

#include "client/commands/options.h"

namespace seqpoint::client {

void PartOptions::AddTo(CLI::App* command) {
  constexpr int64_t kMost = 1'000'000'000'000'000;
  const char* group = "A part of the run";
  auto* first = command->add_option("--from", from, "the first iteration, from 0")
                    ->transform(WholeNumber(0, kMost))
                    ->type_name("N")
                    ->group(group);
  auto* last = command->add_option("--to", to, "the last iteration")
                   ->transform(WholeNumber(0, kMost))
                   ->type_name("N")
                   ->group(group);
  command
      ->add_option("--epoch", epoch,
                   "an epoch, from 1; needs a run with --iterations N --epochs E, or with "
                   "--lengths FILE --epochs E")
      ->transform(WholeNumber(1, INT32_MAX))
      ->type_name("E")
      ->excludes(first)
      ->excludes(last)
      ->group(group);
}

}  // namespace seqpoint::client
