#include "client/commands/run/summary.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/connection.h"
#include "client/text/format.h"
#include "client/text/job_text.h"
#include "client/text/notes.h"
#include "client/text/projection_text.h"

namespace seqpoint::client {
namespace {

// The summary of a run without a process that reported to the daemon.
std::string WhyNothing(int wait_status, const std::string& adapter_missing) {
  const char* other = getenv("CUDA_INJECTION64_PATH");
  if (other != nullptr && *other != '\0' && FindLibrary().value_or("") != other) {
    return absl::StrCat(
        "another profiler has the command's GPU work (CUDA_INJECTION64_PATH is ", other,
        "), and the CUDA driver takes one; nothing was profiled. Unset it to profile the command");
  }
  if (WIFSIGNALED(wait_status)) return "it ended before it trained; nothing was profiled";
  if (const int status = WEXITSTATUS(wait_status); status != 0) {
    return absl::StrCat("the command ended with status ", status,
                        " before it trained; nothing was profiled");
  }
  if (FindAdapter().empty()) {
    return "the command used no GPU, and PyTorch was not asked, as there is no adapter "
           "(SEQPOINT_ADAPTER); nothing was profiled";
  }
  if (!adapter_missing.empty()) {
    return absl::StrCat("nothing was profiled: the command used no GPU, and ", adapter_missing);
  }
  return "no process of the command was seen to use a GPU or to train with PyTorch; nothing was "
         "profiled. If one did, `seqpoint doctor` says what stands in the way; a loop of another "
         "kind can report its iterations with two lines (docs/using/pytorch.md)";
}

// The command that asks the hub: the client's certificate is for its user to name.
std::string AskHub(absl::string_view hub) {
  if (!absl::ConsumePrefix(&hub, "unix:")) return absl::StrCat("seqpoint --server ", hub);
  return absl::StrCat("seqpoint --socket ", hub);
}

std::string EndedBy(int signal, const char* how) {
  return absl::StrCat(
      signal == SIGINT ? "interrupted by Ctrl-C" : absl::StrCat(how, " by signal ", signal), " (",
      strsignal(signal), ")");
}

}  // namespace

std::string RunSummary(const v1::Job& job, const Answerable& answers, int wait_status,
                       const std::string& adapter_missing, int stop_signal) {
  std::string text = JobTitle(job);
  if (WIFSIGNALED(wait_status)) {
    absl::StrAppend(&text, ", ", EndedBy(WTERMSIG(wait_status), "ended"));
  } else if (stop_signal != 0) {
    absl::StrAppend(&text, ", ", EndedBy(stop_signal, "interrupted"));
  } else if (WEXITSTATUS(wait_status) != 0 && job.process_count() > 0) {
    absl::StrAppend(&text, ", the command ended with status ", WEXITSTATUS(wait_status));
  }
  absl::StrAppend(&text, "\n");
  if (job.process_count() == 0) {
    text += Wrap("", WhyNothing(wait_status, adapter_missing), kTextColumns - 2);
  } else {
    std::string early = EndedBeforeText(job);
    absl::StrAppend(&text, early.empty() ? FormatCount(job.iterations(), "iteration") : early, ", ",
                    FormatCount(job.unique_lengths(), "length"));
    if (job.time_only().empty()) {
      absl::StrAppend(&text, ", ", FormatCount(job.seqpoints().seqpoints(), "SeqPoint"), ", ",
                      FormatCount(job.seqpoints().measurements(), "iteration"), " measured");
    }
    text += "\n";
    if (job.time_only() != job.error()) text += Note(job.time_only());
    if (job.has_time()) absl::StrAppend(&text, ProjectionText(job.time(), job));
    text += Note(job.rule().message());
    if (!adapter_missing.empty()) {
      text += Note(absl::StrCat("iterations come from CUDA calls alone: ", adapter_missing));
    }
    if (std::string losses = FormatLosses(job.losses()); !losses.empty()) {
      absl::StrAppend(&text, "left out: ", losses, "\n");
    }
    text += UnprojectedText(job);
    if (!job.ranks().empty()) text += Wrap("ranks: ", job.ranks());
    if (!job.error().empty()) text += Wrap("problem: ", job.error());
    if (!IsOver(job)) text += "the last records are not in these figures yet: ask again\n";
    const std::string& id = job.id();
    absl::StrAppend(&text, "ask next: seqpoint jobs ", id);
    if (job.has_time()) absl::StrAppend(&text, ", seqpoint project ", id);
    if (answers.counters) absl::StrAppend(&text, ", seqpoint counters ", id);
    if (answers.kernels) {
      absl::StrAppend(&text, ", seqpoint kernels ", id, ", seqpoint export ", id,
                      " --chrome trace.json");
    }
    if (job.process_count() > 1) absl::StrAppend(&text, ", seqpoint ranks ", id);
    if (answers.operators) absl::StrAppend(&text, ", seqpoint place ", id, " --devices 2");
    if (answers.kernels && job.time_only().empty() && job.seqpoints().measurements() > 0) {
      absl::StrAppend(&text, ", seqpoint whatif ", id, " --list");
    }
    text += "\n";
    if (!answers.hub.empty()) {
      absl::StrAppend(&text, "all nodes' ranks: ", AskHub(answers.hub), " jobs ", job.name(), "@",
                      job.run_id(), "\n");
    }
  }
  std::string indented = "\n";
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    absl::StrAppend(&indented, indented.size() == 1 ? "" : "  ", line, "\n");
  }
  return indented;
}

}  // namespace seqpoint::client
