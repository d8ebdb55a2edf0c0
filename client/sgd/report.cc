#include "client/sgd/report.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "daemon/base/json_string.h"

namespace seqpoint::sgd {
namespace {

constexpr double kMegabytesOfWord = 4e-6;

// Between the two nearest values, by their distances.
double Quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  const double place = share * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (place - static_cast<double>(below)) * (values[above] - values[below]);
}

std::string TrafficLine(const char* name, const std::vector<Traffic>& layers, int samples) {
  const Traffic sum = Sum(layers);
  return absl::StrFormat("%s %d words of each sample, %.1f MB a step, in %d messages\n", name,
                         sum.words, kMegabytesOfWord * static_cast<double>(sum.words) * samples,
                         sum.messages);
}

}  // namespace

Traffic Sum(const std::vector<Traffic>& layers) {
  Traffic sum;
  for (const Traffic& traffic : layers) {
    sum.words += traffic.words;
    sum.messages += traffic.messages;
  }
  return sum;
}

std::string ReportText(const Report& report) {
  const size_t steps = report.step_seconds.size();
  std::string text = absl::StrFormat("%s on %d rank%s, %d steps of %d samples\n",
                                     report.inference ? "inference" : "training", report.ranks,
                                     report.ranks == 1 ? "" : "s", steps, report.samples);
  if (report.stopped) {
    absl::StrAppendFormat(&text, "stopped: after %d of %d steps\n", steps, report.steps_wanted);
  }
  absl::StrAppendFormat(&text, "step:     %.3f ms in the median, of the slowest rank\n",
                        1e3 * Quantile(report.step_seconds, 0.5));
  text += TrafficLine("forward: ", report.forward, report.samples);
  if (!report.inference) text += TrafficLine("backward:", report.backward, report.samples);
  if (!report.losses.empty()) {
    absl::StrAppendFormat(&text, "loss:     %.6g, then %.6g\n", report.losses.front(),
                          report.losses.back());
  }
  absl::StrAppend(&text, report.as_predicted
                             ? "sent as the plan says, in every layer\n"
                             : "NOT what the plan says was sent: please report this\n");
  return text;
}

std::string ReportJson(const Report& report) {
  const auto quantile = [&](double share) {
    return JsonNumber(Quantile(report.step_seconds, share));
  };
  const Traffic forward = Sum(report.forward);
  const Traffic backward = Sum(report.backward);
  std::string text = absl::StrCat(
      "{\"ranks\": ", report.ranks, ", \"mode\": \"", report.inference ? "inference" : "training",
      "\", \"steps\": ", report.step_seconds.size(),
      ", \"stopped\": ", report.stopped ? "true" : "false", ", \"samples\": ", report.samples,
      ",\n \"step_seconds\": {\"median\": ", quantile(0.5),
      ", \"lower_quartile\": ", quantile(0.25), ", \"upper_quartile\": ", quantile(0.75),
      ", \"least\": ", quantile(0), ", \"most\": ", quantile(1), "},\n");
  absl::StrAppend(
      &text, " \"forward\": {\"words\": ", forward.words, ", \"messages\": ", forward.messages,
      "}, \"backward\": {\"words\": ", backward.words, ", \"messages\": ", backward.messages,
      "},\n \"largest_sender\": {\"words\": ", report.largest_sender.words,
      ", \"messages\": ", report.largest_sender.messages,
      "},\n \"as_predicted\": ", report.as_predicted ? "true" : "false", ",\n");
  if (report.losses.empty()) {
    absl::StrAppend(&text, " \"output_sum\": ", JsonNumber(report.output_sum), ",\n");
  } else {
    absl::StrAppend(&text, " \"loss\": {\"first\": ", JsonNumber(report.losses.front()),
                    ", \"last\": ", JsonNumber(report.losses.back()), "},\n");
  }
  absl::StrAppend(&text, " \"layers\": [");
  for (size_t l = 0; l < report.forward.size(); ++l) {
    absl::StrAppend(&text, l == 0 ? "" : ",", "\n  {\"forward_words\": ", report.forward[l].words,
                    ", \"forward_messages\": ", report.forward[l].messages,
                    ", \"backward_words\": ", report.backward[l].words,
                    ", \"backward_messages\": ", report.backward[l].messages, "}");
  }
  absl::StrAppend(&text, "]}\n");
  return text;
}

}  // namespace seqpoint::sgd
