#include "client/commands/horizon.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/commands/options.h"
#include "client/text/format.h"
#include "proto/invalid_argument.h"

namespace seqpoint::client {
namespace {

constexpr int64_t kMaxCount = 1'000'000'000'000'000;
constexpr int64_t kMaxRanks = 1 << 16;

}  // namespace

void HorizonOptions::AddTo(CLI::App* app) {
  const OptionGroup group(app, "How long the run is");
  auto* file = AddValue(app, "--lengths FILE", &lengths.path,
                        "CSV (or .gz) with a header; a row is an iteration of one epoch, or an "
                        "example when --batch is given");
  AddValue(app, "--length-column NAME[,NAME]", &lengths.columns,
           "one or two columns with lengths; default: len_total, else the first two with "
           "\"len\" in their names, else all columns of a file that has one or two")
      ->delimiter(',')
      ->expected(1, 2)
      ->needs(file);
  AddValue(app, "--epochs E", &epochs, "how many times the run goes through the data",
           WholeNumber(1, kMaxCount));
  AddValue(app, "--batch N", &lengths.batch,
           "examples in a forward pass (of one rank); with gradient accumulation several "
           "of them are one iteration",
           WholeNumber(1, kMaxCount))
      ->needs(file);
  AddValue(app, "--data-parallel N", &data_parallel,
           "ranks that have batches of their own and divide the forward passes among them; "
           "default: all ranks of the run",
           WholeNumber(1, kMaxRanks))
      ->needs(file);
  AddChoice(app, "--order", &order, {"shuffle", "bucket", "sorted", "file"},
            "order of the examples: shuffle (default), bucket (sorted within 100 random batches), "
            "sorted, file (that of the file)")
      ->needs(file);
  AddValue(app, "--pad-to N", &lengths.pad_to, "lengths are padded to a multiple of N",
           WholeNumber(1, kMaxCount))
      ->needs(file);
  app->add_flag("--drop-last", lengths.drop_last, "leave an incomplete last batch out")
      ->needs(file);
  AddValue(app, "--iterations N", &iterations,
           "number of iterations (of one epoch, with --epochs), when lengths are unknown",
           WholeNumber(1, kMaxCount))
      ->excludes(file);
}

absl::StatusOr<v1::Horizon> HorizonOptions::Read() const {
  const int64_t times = std::max<int64_t>(epochs, 1);
  v1::Horizon horizon;
  if (!lengths.path.empty()) {
    LengthsOptions file = lengths;
    file.order = order == "bucket"   ? ExampleOrder::kBucket
                 : order == "sorted" ? ExampleOrder::kSorted
                 : order == "file"   ? ExampleOrder::kFile
                                     : ExampleOrder::kShuffle;
    file.epochs = times;
    absl::StatusOr<v1::Horizon> read = ReadLengths(file);
    if (read.ok()) read->set_data_parallel(data_parallel);
    return read;
  }
  if (iterations == 0) {
    if (epochs <= 1) return horizon;
    return absl::InvalidArgumentError("--epochs needs --lengths FILE or --iterations N");
  }
  if (iterations > kMaxCount / times) {
    return InvalidArgument(FormatCount(iterations), " iterations x ", FormatCount(times),
                           " epochs are more than ", FormatCount(kMaxCount), " iterations");
  }
  horizon.set_kind(v1::Horizon::KIND_ITERATIONS);
  horizon.set_iterations(iterations * times);
  horizon.set_epochs(epochs);
  if (times > 1) {
    horizon.set_source(absl::StrCat(FormatCount(times), " epochs of ", FormatCount(iterations)));
  }
  return horizon;
}

}  // namespace seqpoint::client
