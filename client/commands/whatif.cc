#include "client/commands/whatif.h"

#include <errno.h>
#include <google/protobuf/struct.pb.h>
#include <stdio.h>
#include <string.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/commands/commands.h"
#include "client/commands/figures.h"
#include "client/commands/options.h"
#include "client/text/format.h"
#include "client/text/help.h"
#include "client/text/json.h"
#include "client/text/notes.h"
#include "client/text/whatif_text.h"
#include "daemon/whatif/language/printer.h"
#include "daemon/whatif/language/units.h"
#include "daemon/whatif/preset.h"
#include "proto/utf8.h"

namespace seqpoint::client {
namespace {

constexpr size_t kMaxTextBytes = 64 << 10;  // what a daemon takes

absl::StatusOr<std::string> ReadText(const std::string& path) {
  const std::unique_ptr<FILE, decltype(&fclose)> file(fopen(path.c_str(), "rb"), &fclose);
  std::string text(kMaxTextBytes + 1, '\0');
  if (file != nullptr) text.resize(fread(text.data(), 1, text.size(), file.get()));
  if (file == nullptr || ferror(file.get()) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("cannot read ", path, ": ", strerror(errno)));
  }
  return text;
}

absl::StatusOr<v1::WhatIfChange> TextChange(const std::string& name, const std::string& text) {
  std::string wrong;
  if (text.empty()) wrong = "is empty";
  if (text.size() > kMaxTextBytes) wrong = absl::StrCat("has more than ", kMaxTextBytes, " bytes");
  if (!IsUtf8(text)) wrong = "is not UTF-8";
  if (!wrong.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " ", wrong, "; docs/whatif.md has the ", "form of steps and presets"));
  }
  v1::WhatIfChange change;
  change.set_name(Printable(name));
  change.set_text(text);
  return change;
}

// From the largest on; what is read back is the same.
std::string WithUnit(double value, const std::vector<const char*>& units) {
  for (const char* unit : units) {
    const auto one = whatif::ParseQuantity(absl::StrCat("1", unit));
    const std::string text = absl::StrFormat("%g%s", value / one->number, unit);
    const auto back = whatif::ParseQuantity(text);
    const bool large_enough = value >= one->number || unit == units.back();
    if (large_enough && back.ok() && back->number == value) return text;
  }
  return absl::StrFormat("%.17g%s", value, units.back());
}

struct UnitWords {
  const char* name;     // as a file of a preset says it
  const char* example;  // of a value
  const char* stands;   // for a value
  std::vector<const char*> units;
};
UnitWords WordsOf(const whatif::Parameter& parameter) {
  if (parameter.is_text) return {"text", "\"gemm|conv\"", "TEXT", {}};
  switch (parameter.unit) {
    case whatif::Unit::kTime:
      return {"time", "10us", "TIME", {"s", "ms", "us", "ns"}};
    case whatif::Unit::kBytes:
      return {"bytes", "100MB", "BYTES", {"TB", "GB", "MB", "KB", "B"}};
    case whatif::Unit::kRate:
      return {"bytes/s", "10GB/s", "RATE", {"TB/s", "GB/s", "MB/s", "KB/s"}};
    case whatif::Unit::kNumber:
      break;
  }
  return {"number", "2", "NUMBER", {""}};
}

// As an option takes it: "3", "50us"; empty: it has to be given.
std::string Value(const whatif::Parameter& parameter) {
  if (parameter.is_text) return parameter.text ? whatif::Quoted(*parameter.text) : "";
  return parameter.value ? WithUnit(*parameter.value, WordsOf(parameter).units) : "";
}

}  // namespace

std::vector<std::string> PresetNames() {
  std::vector<std::string> names;
  for (const whatif::Preset& preset : whatif::Presets()) names.push_back(preset.name);
  return names;
}

absl::StatusOr<v1::WhatIfChange> ReadChange(const std::string& text) {
  const size_t comma = std::min(text.find(','), text.size());
  const std::string name = text.substr(0, comma);
  const std::vector<std::string> presets = PresetNames();
  const bool is_preset = std::find(presets.begin(), presets.end(), name) != presets.end();
  std::error_code error;
  if (!is_preset && (absl::StrContains(name, "/") || absl::EndsWith(name, ".whatif") ||
                     std::filesystem::exists(name, error))) {
    absl::StatusOr<std::string> content = ReadText(name);
    if (!content.ok()) return content.status();
    absl::StatusOr<v1::WhatIfChange> change = TextChange(name, *content);
    if (change.ok() && comma < text.size()) {
      change->set_parameters(Printable(text.substr(comma + 1)));
    }
    return change;
  }
  if (!is_preset) {
    return absl::InvalidArgumentError(absl::StrCat("there is neither a preset nor a file ",
                                                   Quote(name), DidYouMean(name, presets),
                                                   "; `seqpoint whatif --presets` lists presets"));
  }
  // Its parameters, before a daemon is asked.
  if (const auto parsed = whatif::ParseChange(text); !parsed.ok()) return parsed.status();
  v1::WhatIfChange change;
  change.set_preset(Printable(text));
  return change;
}

absl::StatusOr<v1::WhatIfChange> StepsChange(const std::string& steps) {
  return TextChange("steps", steps);
}

std::string PresetsText() {
  std::string text;
  for (const whatif::Preset& preset : whatif::Presets()) {
    absl::StrAppend(&text, preset.name, ": ", preset.title, "\n");
    for (const whatif::Parameter& parameter : preset.parameters) {
      const std::string value = Value(parameter);
      const UnitWords words = WordsOf(parameter);
      std::string line = absl::StrCat(parameter.name, "=", value.empty() ? words.stands : value,
                                      ": ", parameter.meaning);
      if (value.empty()) {
        absl::StrAppend(&line, "; has to be given: ", words.name, ", such as ", words.example);
      }
      text += Wrap("  ", line, kTextColumns);
    }
    text += Wrap("  assumes ", preset.assumption, kTextColumns);
    text += Wrap("  source: ", preset.source, kTextColumns) + "\n";
  }
  return text + "with others' values: --apply amp,compute=4; the file, to change it: --show amp\n";
}

std::string PresetsJson() {
  google::protobuf::Struct object;
  auto* presets = (*object.mutable_fields())["presets"].mutable_list_value();
  for (const whatif::Preset& preset : whatif::Presets()) {
    auto& fields = *presets->add_values()->mutable_struct_value()->mutable_fields();
    fields["name"].set_string_value(preset.name);
    fields["title"].set_string_value(preset.title);
    fields["assumption"].set_string_value(preset.assumption);
    fields["source"].set_string_value(preset.source);
    auto* parameters = fields["parameters"].mutable_list_value();
    for (const whatif::Parameter& parameter : preset.parameters) {
      auto& of = *parameters->add_values()->mutable_struct_value()->mutable_fields();
      of["name"].set_string_value(parameter.name);
      of["value"].set_string_value(Value(parameter));
      of["unit"].set_string_value(WordsOf(parameter).name);
      if (Value(parameter).empty()) of["example"].set_string_value(WordsOf(parameter).example);
      of["meaning"].set_string_value(parameter.meaning);
    }
  }
  return ToJson(object, /*one_line=*/false);
}

absl::StatusOr<std::string> PresetFileText(const std::string& name) {
  const absl::StatusOr<whatif::Preset> preset = whatif::FindPreset(name);
  if (preset.ok()) return preset->text;
  return absl::InvalidArgumentError(preset.status().message());
}

namespace {

struct Options {
  std::vector<std::string> applied, steps;
  const CLI::App* command = nullptr;  // knows in which order the two above were given
  bool list = false, presets = false, all = false;
  std::string show;
  FigureOptions figures;
};

int ShowPresets(const Context& context) {
  Context::Print(context.json() ? PresetsJson() + "\n" : PresetsText());
  return kExitOk;
}

int ShowPreset(const Context& context, const std::string& name) {
  const absl::StatusOr<std::string> text = PresetFileText(name);
  if (!text.ok()) return context.Fail(text.status());
  Context::Print(context.json() ? FieldsJson({{"name", name}, {"text", *text}}) + "\n" : *text);
  return kExitOk;
}

// In the order of the command line.
absl::Status AddChanges(const Options& options, v1::WhatIfRequest* request) {
  size_t applied = 0, steps = 0;
  for (const CLI::Option* option : options.command->parse_order()) {
    const bool apply = option->get_name() == "--apply";
    if (!apply && option->get_name() != "--steps") continue;
    absl::StatusOr<v1::WhatIfChange> change =
        apply ? ReadChange(options.applied[applied++]) : StepsChange(options.steps[steps++]);
    if (!change.ok()) return change.status();
    *request->add_changes() = *std::move(change);
  }
  return absl::OkStatus();
}

int WhatIf(const Context& context, Options& options) {
  const bool changes = !options.applied.empty() || !options.steps.empty();
  const std::string& job = options.figures.job;
  const bool about_presets = options.presets || !options.show.empty();
  const int questions = (changes ? 1 : 0) + (options.list ? 1 : 0) + (options.presets ? 1 : 0) +
                        (options.show.empty() ? 0 : 1);
  if (questions == 0) {
    return context.FailUsage("say --apply PRESET or FILE, or --list, which tries all presets");
  }
  if (questions > 1) {
    return context.FailUsage(
        "--apply (with --steps), --list, --presets and --show go one at a time");
  }
  if (!job.empty() == about_presets) {
    return context.FailUsage(job.empty() ? "JOB is missing" : "--presets and --show take no JOB");
  }
  if (options.presets) return ShowPresets(context);
  if (!options.show.empty()) return ShowPreset(context, options.show);
  v1::WhatIfRequest request;
  request.set_list(options.list);
  if (absl::Status status = AddChanges(options, &request); !status.ok()) {
    return context.Fail(status);
  }
  return AskFigures(context, options.figures, &v1::Profiler::Stub::WhatIf, request,
                    [&](const v1::WhatIfReply& reply, const v1::Job&) {
                      return options.list ? WhatIfListText(reply, options.all, Context::Width())
                                          : WhatIfText(reply, options.all, Context::Width());
                    });
}

}  // namespace

void AddWhatIf(CLI::App* app, Context* context) {
  auto [command, options] = AddCommand<Options>(
      app, context, "whatif", "What a change would do to the time of the whole run.", &WhatIf);
  options->command = command;
  command->footer(kWhatIfHelp);
  AddJob(command, &options->figures.job);
  const std::string group = "What is asked";
  command
      ->add_option("--apply", options->applied,
                   "a preset or a file, with parameters behind commas: amp,compute=4. "
                   "Several are done one after the other")
      ->allow_extra_args(false)
      ->type_name("CHANGE")
      ->group(group);
  command->add_option("--steps", options->steps, "steps as in a file (docs/whatif.md), parted by ;")
      ->allow_extra_args(false)
      ->type_name("STEPS")
      ->group(group);
  command->add_flag("--list", options->list, "what each preset would save")->group(group);
  command->add_flag("--presets", options->presets, "what presets there are (no JOB)")->group(group);
  command->add_option("--show", options->show, "the file of one, to save and change (no JOB)")
      ->type_name("PRESET")
      ->group(group);
  command->add_flag("--all", options->all,
                    "all lengths and kernels, names whole; with --list: presets that do not "
                    "apply, too");
  options->figures.AddTo(command);
}

}  // namespace seqpoint::client
