#include "client/text/whatif_text.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/text/format.h"
#include "client/text/notes.h"

namespace seqpoint::client {
namespace {

using TimeShares = google::protobuf::RepeatedPtrField<v1::TimeShare>;

constexpr int kShownIterations = 20;  // of more only the worst
constexpr int kShownWorst = 10;
constexpr double kBarColumns = 40;
constexpr double kSameShare = 0.001;  // a smaller change is none
constexpr int kShownLengths = 6;      // in a sentence
constexpr size_t kShownSeqPoints = 12;
constexpr int kShownKernels = 10;

// "-26.2 %"; "0.0 %", without a sign.
std::string FormatChange(double change, int decimals = 1) {
  const std::string text = absl::StrFormat("%+.*f", decimals, 100 * change);
  return absl::StrCat(text.find_first_of("123456789") == std::string::npos ? text.substr(1) : text,
                      " %");
}

std::string ChangeFrom(double before, double after) {
  if (!(before > 0)) return "new";
  return after > 0 ? FormatChange(after / before - 1) : "gone";
}

std::string NanosecondsOrNone(double duration_ns) {
  return duration_ns > 0 ? FormatQuantity(duration_ns, "ns") : "-";
}

std::string SharesText(const std::string& title, const TimeShares& shares) {
  Table table({title, ">PER ITERATION", ">SHARE", ""});
  for (const v1::TimeShare& share : shares) {
    if (!(share.duration_ns() > 0)) continue;
    const double columns = std::clamp(share.share(), 0.0, 1.0) * kBarColumns;
    table.AddRow({share.category(), FormatQuantity(share.duration_ns(), "ns"),
                  FormatShare(share.share()),
                  std::string(static_cast<size_t>(std::lround(columns)), '#')});
  }
  return table.empty() ? "" : "\n" + table.ToString();
}

double ErrorOf(const v1::ReplayedIteration& iteration) {
  const double measured_ns = iteration.measured_duration_ns();
  return measured_ns > 0 ? iteration.replayed_duration_ns() / measured_ns - 1 : 0;
}

// The subject of a sentence about the time: "the run (5,000 iterations)".
std::string Subject(const v1::WhatIfReply& reply) {
  return reply.whole_run()
             ? absl::StrCat("the run (", FormatCount(reply.iterations(), "iteration"), ")")
             : absl::StrCat("the ", FormatCount(reply.iterations(), "iteration"),
                            IsOver(reply.job()) ? " that ran" : " so far");
}

// By how much the time changes, as a share of what it is now.
struct Change {
  std::string value;     // -26.2 %
  std::string interval;  // -28.0 to -24.1 %
};
Change ChangeOf(const v1::WhatIfAnswer& answer) {
  const double before_ns = answer.before().value();
  if (!(before_ns > 0)) return {"-", "-"};
  const v1::Estimate& saved = answer.saved();
  const double width = (saved.high() - saved.low()) / before_ns;
  const int decimals = width > 0 && width < 0.002 ? 2 : 1;
  const auto format = [&](double saved_ns) {
    return FormatChange(-saved_ns / before_ns, decimals);
  };
  const std::string low = format(saved.high());
  return {
      format(saved.value()),
      width > 0 ? absl::StrCat(low.substr(0, low.size() - 2), " to ", format(saved.low())) : "-"};
}

std::string Headline(const v1::WhatIfReply& reply, const v1::WhatIfAnswer& answer) {
  const std::string what = answer.title().empty() || answer.title() == answer.name()
                               ? answer.name()
                               : absl::StrCat(answer.title(), " (", answer.name(), ")");
  if (!answer.applies()) {
    return Wrap("", answer.warnings_size() > 0
                        ? absl::StrCat(answer.name(), " does not apply: ", answer.warnings(0))
                        : absl::StrCat(what, ": it changes nothing in these traces"));
  }
  const Change change = ChangeOf(answer);
  const std::string interval =
      change.interval == "-"
          ? ""
          : absl::StrCat(", ", FormatConfidence(reply.confidence()), ": ", change.interval);
  return Wrap("", absl::StrCat(what, ": ", Subject(reply),
                               reply.whole_run() ? " would take " : " would have taken ",
                               FormatEstimate(answer.after(), "ns").value, " instead of ",
                               FormatEstimate(answer.before(), "ns").value, " (", change.value,
                               interval, ")"));
}

// Where some lengths gain by it and others lose, one iteration would have told half of it.
std::string SignNote(const v1::WhatIfAnswer& answer) {
  double longer = 0, shorter = 0, all = 0;
  std::vector<std::string> lengths;
  for (const v1::WhatIfSeqPoint& point : answer.seqpoints()) {
    const double before_ns = point.before_duration_ns();
    const double change_ns = point.after_duration_ns() - before_ns;
    all += point.weight();
    if (change_ns < -kSameShare * before_ns) shorter += point.weight();
    if (change_ns > kSameShare * before_ns) {
      longer += point.weight();
      lengths.push_back(FormatLengths(point.lengths()));
    }
  }
  if (!(longer > 0 && shorter > 0)) return "";
  if (lengths.size() > kShownLengths) {
    lengths.resize(kShownLengths);
    lengths.emplace_back("...");
  }
  return Note(absl::StrCat("the sign differs between lengths: ", FormatShare(longer / all),
                           " of the iterations would take longer (length ",
                           absl::StrJoin(lengths, ", "), "), ", FormatShare(shorter / all),
                           " less long"));
}

// "8 more lengths with less weight; --all shows them".
std::string MoreLine(size_t more, const std::string& what, const std::string& which) {
  if (more == 0) return "";
  return absl::StrCat(FormatCount(static_cast<int64_t>(more)), " more ", what, more == 1 ? "" : "s",
                      which, "; --all shows ", more == 1 ? "it" : "them", "\n");
}

// Without `all`, the lengths that stand for most iterations, in the order of length.
std::string SeqPointsTable(const v1::WhatIfAnswer& answer, bool all) {
  std::vector<const v1::WhatIfSeqPoint*> shown;
  for (const v1::WhatIfSeqPoint& point : answer.seqpoints()) shown.push_back(&point);
  const size_t there = shown.size();
  if (!all && there > kShownSeqPoints) {
    std::stable_sort(shown.begin(), shown.end(),
                     [](const auto* a, const auto* b) { return a->weight() > b->weight(); });
    shown.resize(kShownSeqPoints);
    std::sort(shown.begin(), shown.end(), [](const auto* a, const auto* b) {
      return std::lexicographical_compare(a->lengths().begin(), a->lengths().end(),
                                          b->lengths().begin(), b->lengths().end());
    });
  }
  Table table({">LENGTH", ">STANDS FOR", ">BEFORE", ">AFTER", ">CHANGE", "NOTE"});
  for (const v1::WhatIfSeqPoint* point : shown) {
    table.AddRow({FormatLengths(point->lengths()), FormatCount(std::llround(point->weight())),
                  NanosecondsOrNone(point->before_duration_ns()),
                  NanosecondsOrNone(point->after_duration_ns()),
                  ChangeFrom(point->before_duration_ns(), point->after_duration_ns()),
                  point->traces() == 0 ? "not traced: from lengths near it" : ""});
  }
  if (table.empty()) return "";
  return absl::StrCat("\n", table.ToString(),
                      MoreLine(there - shown.size(), "length", " with less weight"));
}

// With `all` all that there are, their names whole.
std::string KernelsTable(const v1::WhatIfAnswer& answer, bool all, int width) {
  Table table({">BEFORE", ">AFTER", ">CHANGE", "KERNEL"});
  const int shown = all ? answer.kernels_size() : std::min(answer.kernels_size(), kShownKernels);
  for (int i = 0; i < shown; ++i) {
    const v1::WhatIfKernel& kernel = answer.kernels(i);
    table.AddRow({NanosecondsOrNone(kernel.before_duration_ns()),
                  NanosecondsOrNone(kernel.after_duration_ns()),
                  ChangeFrom(kernel.before_duration_ns(), kernel.after_duration_ns()),
                  Demangle(kernel.name())});
  }
  if (table.empty()) return "";
  return absl::StrCat("\n",
                      table.ToString(all         ? 0
                                     : width > 0 ? width
                                                 : kTextColumns),
                      MoreLine(static_cast<size_t>(answer.kernels_size() - shown), "kernel",
                               " whose time changes less"));
}

// Parts that are in either path, in the order of the first.
std::string PathsTable(const v1::WhatIfAnswer& answer) {
  const TimeShares& before = answer.critical_path_before();
  const TimeShares& after = answer.critical_path_after();
  const auto of = [](const TimeShares& shares, const std::string& what) {
    const auto it = std::find_if(shares.begin(), shares.end(), [&](const v1::TimeShare& share) {
      return share.category() == what;
    });
    return it == shares.end() ? v1::TimeShare() : *it;
  };
  Table table({"CRITICAL PATH", ">BEFORE", ">SHARE", ">AFTER", ">SHARE"});
  std::set<std::string> seen;
  for (const TimeShares* shares : {&before, &after}) {
    for (const v1::TimeShare& share : *shares) {
      if (!seen.insert(share.category()).second) continue;
      const v1::TimeShare was = of(before, share.category()), is = of(after, share.category());
      if (!(was.duration_ns() > 0 || is.duration_ns() > 0)) continue;
      table.AddRow({share.category(), NanosecondsOrNone(was.duration_ns()),
                    FormatShare(was.share()), NanosecondsOrNone(is.duration_ns()),
                    FormatShare(is.share())});
    }
  }
  return table.empty() ? "" : "\n" + table.ToString();
}

std::string StepsTable(const v1::WhatIfAnswer& answer) {
  Table table({">TASKS", "STEP"});
  for (const v1::WhatIfStep& step : answer.steps()) {
    table.AddRow({step.tasks() == 0 ? "none" : FormatCount(step.tasks()), step.text()});
  }
  return table.empty() ? "" : "\n" + table.ToString();
}

// The basis of the figures.
std::string Basis(const v1::WhatIfReply& reply) {
  std::string text;
  if (reply.traces() > 0) {
    text = absl::StrCat(FormatCount(reply.traces(), "traced iteration"), ", replayed as they are ",
                        FormatChange(reply.replay_error(), 2), " off");
  }
  if (!reply.basis().empty()) absl::StrAppend(&text, text.empty() ? "" : "; ", reply.basis());
  return absl::StrCat(Wrap("basis:   ", text), ClockNote(reply.clock_kind()),
                      LossesLine(reply.losses()));
}

}  // namespace

std::string ReplayText(const v1::ReplayReply& reply, bool all) {
  std::vector<const v1::ReplayedIteration*> shown;
  std::set<int32_t> ranks;
  for (const v1::ReplayedIteration& iteration : reply.iterations()) {
    shown.push_back(&iteration);
    ranks.insert(iteration.rank());
  }
  const bool worst_only = !all && shown.size() > kShownIterations;
  if (worst_only) {
    std::stable_sort(shown.begin(), shown.end(), [](const auto* a, const auto* b) {
      return std::abs(ErrorOf(*a)) > std::abs(ErrorOf(*b));
    });
    shown.resize(kShownWorst);
  }
  Table table({">ITERATION", ">RANK", ">LENGTH", ">MEASURED", ">REPLAYED", ">ERROR"});
  for (const v1::ReplayedIteration* iteration : shown) {
    table.AddRow({FormatCount(iteration->number()),
                  ranks.size() > 1 ? absl::StrCat(iteration->rank()) : "",
                  iteration->lengths_size() > 0 ? FormatLengths(iteration->lengths()) : "",
                  FormatQuantity(iteration->measured_duration_ns(), "ns"),
                  FormatQuantity(iteration->replayed_duration_ns(), "ns"),
                  FormatChange(ErrorOf(*iteration), 2)});
  }
  std::string text = table.ToString();
  if (worst_only) {
    absl::StrAppend(&text, "the ", kShownWorst, " worst; --all shows all ",
                    FormatCount(reply.iterations_size()), "\n");
  }
  absl::StrAppend(&text, "\n", FormatCount(reply.iterations_size(), "iteration"), ", ",
                  FormatCount(reply.tasks(), "task"), ": replayed ",
                  FormatChange(reply.mean_error(), 2), " off in all, ",
                  FormatChange(reply.worst_error(), 2), " in the worst\n",
                  SharesText("CRITICAL PATH", reply.critical_path()),
                  SharesText("GPU IDLE, WAITING FOR", reply.idle()));
  for (const std::string& message : reply.messages()) text += Note(message);
  return text + LossesLine(reply.losses());
}

std::string WhatIfText(const v1::WhatIfReply& reply, bool all, int width) {
  if (reply.answers_size() == 0) return "there is no answer\n";
  const v1::WhatIfAnswer& answer = reply.answers(0);
  std::string text = Headline(reply, answer);
  std::vector<std::string> warnings(answer.warnings().begin(), answer.warnings().end());
  // The headline has it.
  if (!answer.applies() && !warnings.empty()) warnings.erase(warnings.begin());
  for (const std::string& warning : warnings) text += Wrap("warning: ", warning);
  if (!answer.assumption().empty()) {
    text += Wrap("assumes ", absl::StrCat("(not in the interval): ", answer.assumption()));
  }
  if (answer.measured_bounds() + answer.guessed_bounds() > 0) {
    text += Wrap("bounds:  ",
                 absl::StrCat("what limits a kernel was measured for ",
                              FormatCount(answer.measured_bounds()), ", told by its name and time ",
                              "for ", FormatCount(answer.guessed_bounds())));
  }
  if (answer.applies()) {
    absl::StrAppend(&text, PathsTable(answer), SeqPointsTable(answer, all), SignNote(answer),
                    KernelsTable(answer, all, width));
  }
  absl::StrAppend(&text, StepsTable(answer), "\n");
  if (!answer.source().empty()) text += Wrap("source:  ", answer.source());
  return text + Basis(reply);
}

std::string WhatIfListText(const v1::WhatIfReply& reply, bool all, int width) {
  Table table({"PRESET", ">TIME", FormatConfidence(reply.confidence()) + " INTERVAL",
               reply.whole_run() || IsOver(reply.job()) ? ">RUN THEN" : ">SO FAR THEN", "NOTE"});
  int unfit = 0;
  std::string before;
  for (const v1::WhatIfAnswer& answer : reply.answers()) {
    std::string note = answer.warnings_size() == 0 ? "" : answer.warnings(0);
    if (!answer.applies()) {
      ++unfit;
      if (all) table.AddRow({answer.name(), "-", "-", "-", note});
      continue;
    }
    note.resize(std::min(note.find(':'), note.size()));  // --apply says it all
    if (before.empty()) before = FormatEstimate(answer.before(), "ns").value;
    const Change change = ChangeOf(answer);
    table.AddRow({answer.name(), change.value, change.interval,
                  FormatEstimate(answer.after(), "ns").value, note});
  }
  std::string text;
  if (!before.empty()) {
    text = absl::StrCat(Subject(reply), reply.whole_run() ? " takes " : " took ", before,
                        "; with one change:\n\n");
  }
  text +=
      table.empty() ? "no preset would change anything in these traces\n" : table.ToString(width);
  if (unfit > 0 && !all) {
    absl::StrAppend(&text, FormatCount(unfit, "preset"), unfit == 1 ? " does" : " do",
                    " not apply; --all shows ", unfit == 1 ? "it" : "them", "\n");
  }
  if (reply.ranks() > 1) {
    text += Wrap(
        "",
        absl::StrCat("its ", reply.ranks(),
                     " ranks can be changed by --apply: without-slow-rank,rank=R, balance-lengths, "
                     "bucket-size,bytes=B, bandwidth,factor=F, ranks,count=N "
                     "(--presets says what each assumes)"));
  }
  return absl::StrCat(text, "\n", Basis(reply));
}

}  // namespace seqpoint::client
