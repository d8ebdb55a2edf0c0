// Fuzz target of what a stranger sends over the API, and of the files of metrics. Nothing may
// crash; a log that passes the checks becomes a run whose iterations follow each other.
//
// Input: the first byte chooses the reader. A log is made of the rest, eight bytes a row, so that
// its columns agree; other requests are the rest in protobuf's encoding.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "daemon/counters/metric_file.h"
#include "daemon/queries/log_import.h"
#include "daemon/rpc/requests.h"
#include "daemon/whatif/language/parser.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint {
namespace {

constexpr int64_t kNowNs = int64_t{1} << 60;

void Require(bool holds) {
  if (!holds) abort();
}

v1::ImportJobRequest LogOf(std::string_view rows) {
  v1::ImportJobRequest request;
  request.set_name("job");
  request.set_source("log.csv");
  const bool two_lengths = rows.size() >= 8 && rows[6] % 2 == 0;
  const bool grouped = rows.size() >= 8 && rows[7] % 2 == 0;
  for (; rows.size() >= 8; rows.remove_prefix(8)) {
    int16_t length, exponent, group;
    std::memcpy(&length, rows.data(), sizeof length);
    std::memcpy(&exponent, rows.data() + 2, sizeof exponent);
    std::memcpy(&group, rows.data() + 4, sizeof group);
    v1::IterationLog& log = *request.mutable_log();
    log.add_lengths(length);
    if (two_lengths) log.add_second_lengths(length);
    log.add_durations(std::ldexp(1.0, exponent % 80));
    if (grouped) log.add_groups(group);
  }
  return request;
}

void Import(const v1::ImportJobRequest& request) {
  if (!rpc::CheckRest(request).ok()) return;
  const auto run = queries::ReadImport(request, kNowNs);
  if (!run.ok()) return;
  Require(run->iterations.size() == static_cast<size_t>(request.log().lengths_size()));
  int64_t last_ns = run->start_ns;
  for (const jobs::ImportedIteration& iteration : run->iterations) {
    Require(iteration.start_ns >= last_ns && iteration.duration_ns >= 0);
    last_ns = iteration.start_ns;
  }
  Require(run->end_ns >= last_ns);
}

template <typename Message>
Message Parsed(std::string_view bytes) {
  Message message;
  (void)message.ParsePartialFromArray(bytes.data(), static_cast<int>(bytes.size()));
  return message;
}

}  // namespace
}  // namespace seqpoint

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace seqpoint;
  if (size == 0) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(bytes) + 1, size - 1);
  switch (bytes[0] % 8) {
    case 0:
      (void)counters::ParseMetricFile(rest, "own.metrics");
      break;
    case 1:
      (void)whatif::ParseRequest(rest);
      break;
    case 2:
      Import(Parsed<v1::ImportJobRequest>(rest));
      break;
    case 3:
      (void)rpc::CheckRest(Parsed<v1::PrepareJobRequest>(rest));
      break;
    case 4:
      (void)rpc::CheckRest(Parsed<v1::WhatIfRequest>(rest));
      break;
    case 5:
      (void)rpc::CheckRest(Parsed<v1::UpdateJobRequest>(rest));
      break;
    default:
      Import(LogOf(rest));
  }
  return 0;
}
