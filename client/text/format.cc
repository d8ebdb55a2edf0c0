#include "client/text/format.h"

#include <string.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace seqpoint::client {
namespace {

std::string EnumWord(const std::string& name, std::string_view prefix) {
  return absl::AsciiStrToLower(name.substr(std::min(prefix.size(), name.size())));
}

}  // namespace

std::string FormatEnd(const v1::ExpectedEnd& end) {
  const std::string day = FormatTime(end.time_ns()).substr(0, 10);
  const auto clock = [&](int64_t epoch_ns) {
    const std::string text = FormatTime(epoch_ns);
    return text.substr(0, 10) == day ? text.substr(11) : text;
  };
  return absl::StrCat(FormatTime(end.time_ns()), " (", clock(end.low_ns()), " to ",
                      clock(end.high_ns()), ")");
}

FormattedEstimate FormatEstimate(const v1::Estimate& estimate, std::string_view unit) {
  return FormatInterval(estimate.value(), estimate.low(), estimate.high(), unit);
}

std::string JobStateName(v1::JobState state) {
  if (state == v1::JOB_STATE_LOST) return "interrupted";
  return EnumWord(v1::JobState_Name(state), "JOB_STATE_");
}
std::string JobEndText(const v1::Job& job) {
  std::string text = JobStateName(job.state());
  if (job.has_signal()) {
    absl::StrAppend(&text, ": signal ", job.signal(), " (", strsignal(job.signal()), ")");
  } else if (job.has_exit_status() && job.exit_status() != 0) {
    absl::StrAppend(&text, ": exit status ", job.exit_status());
  }
  return text;
}
std::string FeatureText(const v1::Process& process, const v1::Feature& feature) {
  const std::string& message = feature.message();
  return absl::StrCat(
      "rank ", process.rank(), ", ", feature.name(), ": ",
      message.empty() ? EnumWord(v1::FeatureState_Name(feature.state()), "FEATURE_STATE_")
                      : message,
      // Others than those of a failure tell a program what the sentence tells people.
      feature.state() == v1::FEATURE_STATE_FAILED && feature.code() != 0
          ? absl::StrCat(" (error ", feature.code(), ")")
          : "");
}
std::string LevelName(v1::Level level) { return EnumWord(v1::Level_Name(level), "LEVEL_"); }

std::string JobTitle(const v1::Job& job) {
  return absl::StrCat(job.name(), "@", job.run_id(), " (job ", job.id(), ")");
}

std::string FormatLosses(const v1::Losses& losses) {
  std::string text;
  auto add = [&](int64_t count, const char* one, const char* many) {
    if (count == 0) return;
    absl::StrAppend(&text, text.empty() ? "" : ", ", FormatCount(count), " ",
                    count == 1 ? one : many);
  };
  add(losses.distorted_iterations(), "distorted iteration", "distorted iterations");
  add(losses.clock_steps(), "step of the system's clock (iterations around it have no time)",
      "steps of the system's clock (iterations around them have no time)");
  add(losses.redone_iterations(), "redone iteration", "redone iterations");
  add(losses.untimed_iterations(), "iteration without a time", "iterations without a time");
  add(losses.refused_measurements(), "refused measurement", "refused measurements");
  add(losses.ring_dropped(), "record dropped by a full ring", "records dropped by a full ring");
  add(losses.ring_lost(), "record missing", "records missing");
  add(losses.cupti_dropped(), "record dropped by CUPTI", "records dropped by CUPTI");
  add(losses.rejected(), "malformed record", "malformed records");
  add(losses.invalid_timestamps(), "invalid timestamp", "invalid timestamps");
  add(losses.unstored_records(), "trace record dropped by a full disk",
      "trace records dropped by a full disk");
  add(losses.uncounted_processes(), "process not read completely (figures are lower bounds)",
      "processes not read completely (figures are lower bounds)");
  return text;
}

std::string ProgressLine(const v1::Job& job, int width) {
  std::string text = absl::StrCat(job.name(), ": ");
  if (job.state() == v1::JOB_STATE_WAITING) {
    text += "waiting for the program to train";
  } else if (job.state() == v1::JOB_STATE_LEARNING && job.iterations() == 0) {
    text += "learning where an iteration begins";
  } else {
    absl::StrAppend(&text, FormatCount(job.iterations()));
    if (job.time().iterations_total() > 0) {
      absl::StrAppend(&text, " of ", FormatCount(job.time().iterations_total()));
    }
    absl::StrAppend(&text, " iterations, ", FormatCount(job.unique_lengths()), " lengths");
    if (!job.time_only().empty()) {
      text += ", time only";
    } else if (!job.imported()) {
      absl::StrAppend(&text, ", ", job.seqpoints().measured(), "/", job.seqpoints().seqpoints(),
                      " SeqPoints");
    }
    if (job.time().has_total()) {
      FormattedEstimate total = FormatEstimate(job.time().total(), "ns");
      absl::StrAppend(&text, ", whole run ", total.value, " (", total.interval, ")");
      if (job.has_expected_end()) {
        absl::StrAppend(&text, ", ends ", FormatEnd(job.expected_end()).substr(11));
      }
    } else if (job.time().has_per_1000_iterations()) {
      FormattedEstimate per_1000 = FormatEstimate(job.time().per_1000_iterations(), "ns");
      absl::StrAppend(&text, ", per 1,000 iterations ", per_1000.value, " ", per_1000.precision);
    }
  }
  if (job.state() == v1::JOB_STATE_PAUSED || job.state() == v1::JOB_STATE_RELEASED || IsOver(job)) {
    absl::StrAppend(&text, ", ", JobEndText(job));
  }
  const std::string& amiss = job.error().empty() ? job.ranks() : job.error();
  if (!amiss.empty()) absl::StrAppend(&text, " - ", amiss);
  return Cut(text, static_cast<size_t>(std::max(width, 1)));
}

bool IsOver(const v1::Job& job) {
  return job.state() == v1::JOB_STATE_ENDED || job.state() == v1::JOB_STATE_LOST ||
         job.state() == v1::JOB_STATE_FAILED;
}

std::string WhatRanText(const v1::Job& job) {
  if (job.losses().uncounted_processes() > 0) return "what was read";
  return IsOver(job) ? "until its end" : "so far";
}

int64_t EndedBefore(const v1::Job& job) {
  if (!IsOver(job)) return 0;
  if (job.losses().uncounted_processes() > 0) return 0;  // nobody knows
  int64_t wanted = job.time().iterations_total();
  if (wanted == 0 && job.horizon().kind() == v1::Horizon::KIND_ITERATIONS) {
    wanted = job.horizon().iterations();
  }
  return wanted > job.iterations() ? wanted : 0;
}

std::string EndedBeforeText(const v1::Job& job) {
  int64_t wanted = EndedBefore(job);
  if (wanted == 0) return "";
  return absl::StrCat("the run ended after ", FormatCount(job.iterations()), " of ",
                      FormatCount(wanted), " iterations");
}

void MakePrintable(google::protobuf::Message* message) {
  using google::protobuf::FieldDescriptor;
  const google::protobuf::Reflection* reflection = message->GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection->ListFields(*message, &fields);
  for (const FieldDescriptor* field : fields) {
    bool text = field->type() == FieldDescriptor::TYPE_STRING;
    if (!text && field->type() != FieldDescriptor::TYPE_MESSAGE) continue;
    if (!field->is_repeated()) {
      if (text) {
        reflection->SetString(message, field, Printable(reflection->GetString(*message, field)));
      } else {
        MakePrintable(reflection->MutableMessage(message, field));
      }
      continue;
    }
    for (int i = 0; i < reflection->FieldSize(*message, field); ++i) {
      if (text) {
        reflection->SetRepeatedString(message, field, i,
                                      Printable(reflection->GetRepeatedString(*message, field, i)));
      } else {
        MakePrintable(reflection->MutableRepeatedMessage(message, field, i));
      }
    }
  }
}

}  // namespace seqpoint::client
