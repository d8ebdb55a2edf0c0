#include "client/commands/whatif.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/commands/commands.h"
#include "client/commands/figures.h"
#include "client/commands/options.h"
#include "client/text/format.h"
#include "client/text/help.h"
#include "client/text/notes.h"
#include "client/text/whatif_text.h"
#include "proto/invalid_argument.h"
#include "proto/status_macros.h"
#include "proto/utf8.h"

namespace seqpoint::client {
namespace {

constexpr size_t kMaxTextBytes = 64 << 10;  // what a daemon takes

absl::StatusOr<std::string> ReadText(const std::string& path) {
  const std::unique_ptr<FILE, decltype(&fclose)> file(fopen(path.c_str(), "rb"), &fclose);
  std::string text(kMaxTextBytes + 1, '\0');
  if (file != nullptr) text.resize(fread(text.data(), 1, text.size(), file.get()));
  if (file == nullptr || ferror(file.get()) != 0) {
    return InvalidArgument("cannot read ", path, ": ", strerror(errno));
  }
  return text;
}

absl::StatusOr<v1::WhatIfChange> TextChange(const std::string& name, const std::string& text) {
  std::string wrong;
  if (text.empty()) wrong = "is empty";
  if (text.size() > kMaxTextBytes) wrong = absl::StrCat("has more than ", kMaxTextBytes, " bytes");
  if (!IsUtf8(text)) wrong = "is not UTF-8";
  if (!wrong.empty()) {
    return InvalidArgument(name, " ", wrong, "; docs/formats/whatif-steps.md has the ",
                           "form of steps and presets");
  }
  v1::WhatIfChange change;
  change.set_name(Printable(name));
  change.set_text(text);
  return change;
}

// The names of the presets that the daemon knows.
absl::StatusOr<std::vector<std::string>> ListNames(const Context& context) {
  SEQPOINT_ASSIGN_OR_RETURN(
      const v1::ListPresetsReply reply,
      context.Call(&v1::Profiler::Stub::ListPresets, v1::ListPresetsRequest()));
  std::vector<std::string> names;
  for (const auto* list : {&reply.presets(), &reply.rank_changes()}) {
    for (const v1::Preset& preset : *list) names.push_back(preset.name());
  }
  return names;
}

// For a value that has to be given.
std::string StandIn(const std::string& unit) {
  return unit == "bytes/s" ? "RATE" : absl::AsciiStrToUpper(unit);
}

}  // namespace

absl::StatusOr<v1::WhatIfChange> ReadChange(const std::string& text,
                                            const std::vector<std::string>& presets) {
  const size_t comma = std::min(text.find(','), text.size());
  const std::string name = text.substr(0, comma);
  const bool is_preset = std::find(presets.begin(), presets.end(), name) != presets.end();
  std::error_code error;
  if (!is_preset && (absl::StrContains(name, "/") || absl::EndsWith(name, ".whatif") ||
                     std::filesystem::exists(name, error))) {
    SEQPOINT_ASSIGN_OR_RETURN(std::string content, ReadText(name));
    absl::StatusOr<v1::WhatIfChange> change = TextChange(name, content);
    if (change.ok() && comma < text.size()) {
      change->set_parameters(Printable(text.substr(comma + 1)));
    }
    return change;
  }
  if (!is_preset) {
    return InvalidArgument("there is neither a preset nor a file ", Quote(name),
                           DidYouMean(name, presets), "; presets are ",
                           absl::StrJoin(presets, ", "),
                           " (`seqpoint whatif --presets` says what they assume)");
  }
  v1::WhatIfChange change;
  change.set_preset(Printable(text));
  return change;
}

absl::StatusOr<v1::WhatIfChange> ReadChange(const Context& context, const std::string& text) {
  SEQPOINT_ASSIGN_OR_RETURN(const std::vector<std::string> presets, ListNames(context));
  return ReadChange(text, presets);
}

std::string PresetsText(const v1::ListPresetsReply& reply) {
  std::string text;
  const auto add = [&](const v1::Preset& preset) {
    absl::StrAppend(&text, preset.name(), ": ", preset.title(), "\n");
    for (const v1::PresetParameter& parameter : preset.parameters()) {
      const bool has_value = !parameter.value().empty();
      std::string line = absl::StrCat(parameter.name(), "=",
                                      has_value ? parameter.value() : StandIn(parameter.unit()),
                                      ": ", parameter.meaning());
      if (!has_value) {
        absl::StrAppend(&line, "; has to be given: ", parameter.unit(), ", such as ",
                        parameter.example());
      }
      text += Wrap("  ", line);
    }
    text += Wrap("  assumes ", preset.assumption());
    if (!preset.source().empty()) text += Wrap("  source: ", preset.source());
    text += "\n";
  };
  for (const v1::Preset& preset : reply.presets()) add(preset);
  if (reply.rank_changes_size() > 0) {
    text += Wrap("",
                 "Of a job of several ranks, from iterations that all of them traced (seqpoint "
                 "ranks); not together with the others:");
    text += "\n";
  }
  for (const v1::Preset& change : reply.rank_changes()) add(change);
  return text + "with others' values: --apply amp,compute=4; the file, to change it: --show amp\n";
}

std::vector<std::string> PresetNames(const Context& context) {
  return ListNames(context).value_or(std::vector<std::string>());
}

namespace {

struct WhatIfOptions {
  std::vector<std::string> applied, steps;
  const CLI::App* command = nullptr;  // knows in which order the two above were given
  bool list = false, presets = false, all = false;
  std::string show;
  FigureOptions figures;
};

absl::StatusOr<int> ShowPresets(const Context& context) {
  return context.Ask(&v1::Profiler::Stub::ListPresets, v1::ListPresetsRequest(), PresetsText);
}

// The file of a preset, as it is.
absl::StatusOr<int> ShowPreset(const Context& context, const std::string& name) {
  v1::ListPresetsRequest request;
  request.set_name(name);
  return context.Ask(
      &v1::Profiler::Stub::ListPresets, request, [](const v1::ListPresetsReply& reply) {
        return reply.presets_size() > 0 ? reply.presets(0).text() : PresetsText(reply);
      });
}

// In the order of the command line.
absl::Status AddChanges(const Context& context, const WhatIfOptions& options,
                        v1::WhatIfRequest* request) {
  std::vector<std::string> presets;
  if (!options.applied.empty()) {
    SEQPOINT_ASSIGN_OR_RETURN(presets, ListNames(context));
  }
  size_t applied = 0, steps = 0;
  for (const CLI::Option* option : options.command->parse_order()) {
    const bool apply = option->get_name() == "--apply";
    if (!apply && option->get_name() != "--steps") continue;
    SEQPOINT_ASSIGN_OR_RETURN(*request->add_changes(),
                              apply ? ReadChange(options.applied[applied++], presets)
                                    : TextChange("steps", options.steps[steps++]));
  }
  return absl::OkStatus();
}

absl::StatusOr<int> WhatIf(const Context& context, WhatIfOptions& options) {
  const bool changes = !options.applied.empty() || !options.steps.empty();
  const std::string& job = options.figures.job;
  const bool about_presets = options.presets || !options.show.empty();
  const int questions = (changes ? 1 : 0) + (options.list ? 1 : 0) + (options.presets ? 1 : 0) +
                        (options.show.empty() ? 0 : 1);
  if (questions == 0) {
    return context.UsageError("say --apply PRESET or FILE, or --list, which tries all presets");
  }
  if (questions > 1) {
    return context.UsageError(
        "--apply (with --steps), --list, --presets and --show go one at a time");
  }
  if (!job.empty() == about_presets) {
    return context.UsageError(job.empty() ? "JOB is missing" : "--presets and --show take no JOB");
  }
  if (options.presets) return ShowPresets(context);
  if (!options.show.empty()) return ShowPreset(context, options.show);
  v1::WhatIfRequest request;
  request.set_list(options.list);
  SEQPOINT_RETURN_IF_ERROR(AddChanges(context, options, &request));
  return AskFigures(context, options.figures, &v1::Profiler::Stub::WhatIf, request,
                    [&](const v1::WhatIfReply& reply, const v1::Job&) {
                      return options.list ? WhatIfListText(reply, options.all, Context::Width())
                                          : WhatIfText(reply, options.all, Context::Width());
                    });
}

}  // namespace

void AddWhatIf(CLI::App* app, Context* context) {
  auto [command, options] = AddCommand<WhatIfOptions>(
      app, context, "whatif", "What a change would do to the time of the whole run.", &WhatIf);
  options->command = command;
  command->footer(kWhatIfHelp);
  AddJob(command, &options->figures.job);
  command->add_flag(
      "--all", options->all,
      "all lengths and kernels, with whole names; with --list: also presets that do not apply");
  {
    const OptionGroup group(command, "The change");
    AddValue(command, "--apply CHANGE", &options->applied,
             "a preset or a file, with parameters behind commas: amp,compute=4; may be "
             "repeated, applied in order")
        ->allow_extra_args(false);
    AddValue(command, "--steps STEPS", &options->steps,
             "steps as in a file (docs/formats/whatif-steps.md), separated by ;")
        ->allow_extra_args(false);
    command->add_flag("--list", options->list, "what each preset would save");
    command->add_flag("--presets", options->presets,
                      "list the presets with their assumptions (no JOB)");
    AddValue(command, "--show PRESET", &options->show,
             "print the file of a preset, to save and change (no JOB)");
  }
  options->figures.AddTo(command);
}

}  // namespace seqpoint::client
