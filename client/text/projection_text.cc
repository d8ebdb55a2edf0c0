#include "client/text/projection_text.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "client/text/format.h"
#include "client/text/notes.h"

namespace seqpoint::client {
namespace {}  // namespace

std::string ProjectionText(const v1::Projection& projection, const v1::Job& job,
                           const std::string& part) {
  const bool over = IsOver(job);
  const bool another =
      !part.empty() || (projection.has_total() && projection.iterations_so_far() == 0);
  const bool early = EndedBefore(job) > 0;
  Table table({projection.metric().empty() ? "time" : projection.metric(), ">VALUE",
               FormatConfidence(projection.confidence()) + " INTERVAL", ""});
  const bool unread = job.losses().uncounted_processes() > 0;
  auto add = [&](const std::string& name, int64_t iterations, const v1::Estimate& estimate,
                 bool known = true) {
    FormattedEstimate text = {.value = "not known"};
    if (known) text = FormatEstimate(estimate, projection.unit());
    table.AddRow({iterations > 0
                      ? absl::StrCat(name, " (", FormatCount(iterations, "iteration"), ")")
                      : name,
                  text.value, text.interval, text.precision});
  };
  if (projection.has_total()) {
    add(!part.empty() ? part
        : another     ? "another run"
        : early       ? "whole run, had it gone on"
                      : "whole run",
        projection.iterations_total(), projection.total());
  }
  // For a run that went to its end this row would repeat the one above.
  if (!another && (!over || early || unread || !projection.has_total())) {
    add(WhatRanText(job), projection.iterations_so_far(), projection.so_far(),
        projection.has_so_far());
  }
  if (!over && projection.remaining().value() > 0) add("remaining", 0, projection.remaining());
  add("per 1,000 iterations", 0, projection.per_1000_iterations(),
      projection.has_per_1000_iterations());
  std::string text = table.ToString();
  // Past its horizon its length was said, and the basis says that it was wrong.
  if (projection.iterations_total() == 0 && !over &&
      job.horizon().kind() == v1::Horizon::KIND_UNKNOWN) {
    text +=
        "whole run: unknown; say how long it is with --iterations N or --lengths FILE "
        "--epochs E\n";
  }
  if (!projection.basis().empty()) text += Wrap("basis: ", projection.basis());
  return text + (projection.unit() == "ns" ? ClockNote(projection.clock_kind()) : "");
}

std::string ProjectText(const v1::ProjectReply& reply, const v1::Job& job) {
  const bool ends = job.has_expected_end() && reply.projection().metric() == "time";
  return absl::StrCat(ProjectionText(reply.projection(), job, reply.part()),
                      ends ? absl::StrCat("will end: ", FormatEnd(job.expected_end()), "\n") : "",
                      Note(job.rule().message()), LossesLine(reply.losses()));
}

}  // namespace seqpoint::client
