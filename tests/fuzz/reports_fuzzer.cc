// Fuzz target of what a node tells a hub. Nothing may crash, and what is read is what was written.
//
// Input: an even first byte, then the bytes of a batch. An odd one, then reports of 16 bytes each,
// which a job takes as a hub's job does: a kind, a process, and numbers.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "daemon/base/zstd_frame.h"
#include "daemon/jobs/job.h"
#include "daemon/jobs/report_codec.h"
#include "daemon/jobs/rule_codec.h"
#include "injection/abi/ring.h"

namespace seqpoint::jobs {
namespace {

constexpr int64_t kProcesses[] = {7, 8};

void Require(bool holds) {
  if (!holds) abort();
}

struct Words {
  uint8_t kind, process, small, flags;
  uint32_t word;
  int64_t number;
};
static_assert(sizeof(Words) == 16);

v1::ReportedRule RuleOf(const Words& words) {
  iterations::LearnedRule rule;
  rule.rule.boundary.op = words.small;
  rule.rule.length_count = words.flags % 3;
  rule.rule.micro_batches = words.word % 5;
  v1::ReportedRule report;
  *report.mutable_rule() = EncodeRule(rule);
  if (words.flags % 2 == 0) report.set_number_offset(words.number);
  return report;
}

Report::What WhatOf(const Words& words, std::string_view rest) {
  switch (words.kind % 8) {
    case 0:
      return RuleOf(words);
    case 1:
    case 2: {
      FinishedIteration iteration;
      iteration.set_number(words.kind % 8 == 1 ? words.small : static_cast<uint64_t>(words.number));
      iteration.set_boundary_ns(words.number);
      iteration.set_start_ns(words.number ^ words.word);
      iteration.set_duration_ns(words.word);
      iteration.set_first_length(words.small);
      iteration.set_valid(words.flags % 4);
      iteration.set_config_id(words.flags / 64);
      iteration.set_ended(true);
      iteration.set_stretch(words.flags / 32);
      return iteration;
    }
    case 3: {
      v1::ReportedEvent event;
      event.set_type(words.small % 32);
      event.set_payload(std::string(rest.substr(0, words.word % 256)));
      return event;
    }
    case 4: {
      abi::DataRecord record = {};
      std::memcpy(&record, rest.data(), std::min(rest.size(), sizeof record));
      record.type = static_cast<uint16_t>(words.flags % 2 == 0 ? abi::DataType::kArrivals
                                                               : abi::DataType::kCollective);
      return record;
    }
    case 5: {
      v1::ReportedWork work;
      work.set_number(words.small);
      work.add_kernels(std::string(1, static_cast<char>('a' + words.flags % 26)));
      work.add_time_ns(words.word);
      work.add_launches(words.flags);
      return work;
    }
    case 6: {
      v1::ReportedLosses losses;
      losses.set_dropped(words.number);
      losses.set_missing_calls(words.word);
      return losses;
    }
    default: {
      v1::ReportedEnd end;
      end.set_end_ns(words.number);
      end.set_orderly(words.flags % 2 == 0);
      return end;
    }
  }
}

void TakeReports(std::string_view bytes) {
  Job job({.job_id = 1, .name = "fuzz", .run_id = "1"}, {});
  int32_t rank = 0;
  for (const int64_t id : kProcesses) {
    job.AddReportedProcess({.process_id = id,
                            .job_id = 1,
                            .rank = rank++,
                            .ring_id = std::string(16, 'r'),
                            .text = "world_size=2\n"});
  }
  ReportWriter writer;
  size_t written = 0;
  for (; bytes.size() >= sizeof(Words); bytes.remove_prefix(sizeof(Words))) {
    Words words;
    std::memcpy(&words, bytes.data(), sizeof words);
    writer.Add({kProcesses[words.process % 2], WhatOf(words, bytes.substr(sizeof words))});
    ++written;
  }
  const auto batch = FromZstdFrame(ToZstdFrame(writer.Serialize()), 64 << 20);
  Require(batch.ok());
  const auto reports = ReadReports(*batch);
  Require(reports.ok() && reports->size() == written);
  size_t taken = 0;
  for (const Report& report : *reports) {
    (void)job.OnReport(report.process_id, report.what);
    if (++taken % 16 != 0) continue;
    for (const int64_t id : kProcesses) job.OnRead(id, true);
    job.Advance();
  }
  job.Advance();
  (void)job.Describe(true, true);
  (void)job.DescribeRanks();
  WriteBatch rows;
  job.TakeRows(rows);
}

}  // namespace
}  // namespace seqpoint::jobs

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(bytes), size);
  if (input.empty()) return 0;
  const std::string_view rest = input.substr(1);
  if (input[0] % 2 != 0) {
    seqpoint::jobs::TakeReports(rest);
  } else {
    (void)seqpoint::FromZstdFrame(rest, 1 << 20);
    (void)seqpoint::jobs::ReadReports(rest);
  }
  return 0;
}
