#include "daemon/traces/chrome_events.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "daemon/traces/json_text.h"

namespace seqpoint::traces {
namespace {

using trace::kNone;
using trace::WorkKind;

constexpr int64_t kMaxDurationNs = int64_t{1} << 60;
constexpr size_t kMaxGpus = 1024;
constexpr size_t kMaxLengthsBytes = 64;

// Takes `"key": "` from the start of `*text` and returns the text between the next quotes; nothing
// when `*text` starts otherwise. For keys and values that need no escapes.
std::string_view TakeText(std::string_view key, std::string_view* text) {
  const auto take = [text](char c) {
    while (!text->empty() && Blank(text->front())) text->remove_prefix(1);
    if (text->empty() || text->front() != c) return false;
    text->remove_prefix(1);
    return true;
  };
  if (!take('"') || text->substr(0, key.size()) != key) return {};
  text->remove_prefix(key.size());
  if (text->empty() || text->front() != '"') return {};
  text->remove_prefix(1);
  if (!take(':') || !take('"')) return {};
  const size_t end = text->substr(0, 40).find('"');
  if (end == std::string_view::npos) return {};
  const std::string_view value = text->substr(0, end);
  text->remove_prefix(end + 1);
  if (!take(',')) return {};
  return value;
}

uint64_t Positive(std::string_view token) {
  return static_cast<uint64_t>(std::max<int64_t>(ParseInteger(token).value_or(0), 0));
}

// Whether the next text may be a flow between operators. Most flows are not.
bool NamesFlow(std::string_view text) {
  return text.find("\"fwdbwd\"") != text.npos || text.find("\"forward_backward\"") != text.npos;
}

// The size of PyTorch's types; 0: another type.
uint64_t ElementBytes(std::string_view type) {
  if (type == "Float" || type == "Int") return 4;
  if (type == "Half" || type == "BFloat16" || type == "Short") return 2;
  if (type == "Double" || type == "Long") return 8;
  return type == "Byte" || type == "Char" || type == "Bool" ? 1 : 0;
}

template <typename To>
To Clamp(uint64_t value) {
  return static_cast<To>(std::min<uint64_t>(value, std::numeric_limits<To>::max()));
}

simdjson::error_code Dimensions(simdjson::ondemand::value value, uint32_t out[3]) {
  simdjson::ondemand::array values;
  if (value.get(values)) return simdjson::SUCCESS;  // something else: not known
  size_t i = 0;
  for (auto element : values) {
    std::string_view token;
    if (const auto error = element.raw_json_token().get(token)) return error;
    if (i < 3) out[i++] = Clamp<uint32_t>(Positive(token));
  }
  return simdjson::SUCCESS;
}

// The member of an event that a table names for a key; null: none.
template <typename Event, typename Table>
std::string_view* FieldOf(Event* event, simdjson::ondemand::raw_json_string key,
                          const Table& table) {
  for (const auto& [name, member] : table) {
    if (key.raw()[0] == name[0] && key == name) return &(event->*member);
  }
  return nullptr;
}

}  // namespace

ChromeEvents::Category ChromeEvents::CategoryOf(std::string_view name) {
  static const auto* const kCategories = new absl::flat_hash_map<std::string_view, Category>{
      {"kernel", Category::kKernel},
      {"Kernel", Category::kKernel},
      {"gpu_memcpy", Category::kCopy},
      {"Memcpy", Category::kCopy},
      {"gpu_memset", Category::kMemset},
      {"Memset", Category::kMemset},
      {"cuda_runtime", Category::kCall},
      {"cuda_driver", Category::kCall},
      {"hip_runtime", Category::kCall},
      {"hip_driver", Category::kCall},
      {"xpu_runtime", Category::kCall},
      {"privateuse1_runtime", Category::kCall},
      {"privateuse1_driver", Category::kCall},
      {"runtime", Category::kCall},
      {"Runtime", Category::kCall},
      {"cuda_sync", Category::kSync},
      {"cpu_op", Category::kOperator},
      {"Operator", Category::kOperator},
      {"user_annotation", Category::kAnnotation},
      {"python_function", Category::kPython},
      {"Python", Category::kPython},
      {"python", Category::kPython},
      {"fwdbwd", Category::kFlow},
      {"forward_backward", Category::kFlow},
  };
  const auto it = kCategories->find(name);
  return it == kCategories->end() ? Category::kNotNeeded : it->second;
}

void ChromeEvents::OnDamage(uint64_t at) {
  trace::LeftOut& left_out = builder_->trace().left_out;
  if (left_out.damaged++ == 0) left_out.first_damaged_at = at;
}

void ChromeEvents::OnElement(std::string_view element, uint64_t at) {
  if (SkipByHead(element)) return;
  Event event;
  if (Parse(element, &event)) {
    if (!Take(event)) OnDamage(at);
    return;
  }
  std::string mended = Mend(element);
  mended.reserve(mended.size() + simdjson::SIMDJSON_PADDING);
  if (Parse(mended, &event) && Take(event)) {
    ++builder_->trace().left_out.mended;
  } else {
    OnDamage(at);
  }
}

// Most elements start with phase and category: elements that are not needed are not parsed.
bool ChromeEvents::SkipByHead(std::string_view element) {
  element.remove_prefix(1);
  const std::string_view phase = TakeText("ph", &element);
  if (phase.size() != 1 || phase[0] == 'M') return false;
  if ((phase[0] == 's' || phase[0] == 'f') && NamesFlow(element)) return false;
  trace::LeftOut& left_out = builder_->trace().left_out;
  if (phase[0] == 'X') {
    const std::string_view name = TakeText("cat", &element);
    if (name.empty()) return false;
    const Category category = CategoryOf(name);
    if (category != Category::kNotNeeded && category != Category::kPython) return false;
    ++(category == Category::kPython ? left_out.python_frames : left_out.other);
  } else {
    ++left_out.other;
  }
  ++events_;
  return true;
}

bool ChromeEvents::Parse(std::string_view element, Event* event) {
  static constexpr std::pair<std::string_view, std::string_view Event::*> kFields[] = {
      {"dur", &Event::duration}, {"id", &Event::id}, {"pid", &Event::process},
      {"tid", &Event::thread},   {"ts", &Event::ts},
  };
  *event = Event();
  simdjson::ondemand::document document;
  simdjson::ondemand::object fields;
  if (parser_.iterate(element, element.size() + simdjson::SIMDJSON_PADDING).get(document) ||
      document.get_object().get(fields)) {
    return false;
  }
  for (auto field : fields) {
    simdjson::ondemand::raw_json_string key;
    if (field.key().get(key)) return false;
    simdjson::ondemand::value value = field.value();
    bool failed = false;
    if (key == "args") {
      simdjson::ondemand::object arguments;
      const bool wanted =
          (event->category != Category::kOperator || operators_) &&
          (event->category != Category::kAnnotation || event->name.starts_with(kStepName));
      if (wanted && !value.get(arguments)) {
        failed = ParseArguments(arguments, event) != simdjson::SUCCESS;
      }
    } else if (key == "cat") {
      std::string_view text;
      if (!value.get(text)) event->category = CategoryOf(text);
    } else if (key == "name") {
      simdjson::ondemand::json_type type;
      if (value.type().get(type)) return false;
      if (type == simdjson::ondemand::json_type::string) failed = value.get(event->name);
    } else if (key == "ph") {
      std::string_view text;
      failed = value.get(text);
      event->phase = text.empty() ? '\0' : text[0];
    } else if (std::string_view* out = FieldOf(event, key, kFields)) {
      *out = value.raw_json_token();
    }
    if (failed) return false;
  }
  // The list that a PyTorch without Kineto exports has no categories:
  // pytorch/pytorch@v1.13.1:torch/autograd/profiler_util.py, EventList.export_chrome_trace.
  if (operators_ && event->category == Category::kNotNeeded &&
      Unquoted(event->process) == "CPU functions") {
    event->category = Category::kOperator;
  }
  return true;
}

simdjson::error_code ChromeEvents::ParseArguments(simdjson::ondemand::object arguments,
                                                  Event* event) {
  static constexpr std::pair<std::string_view, std::string_view Event::*> kArguments[] = {
      {"In msg nelems", &Event::elements},
      {"Record function id", &Event::record_function},
      {"bytes", &Event::bytes},
      {"correlation", &Event::correlation},
      {"device", &Event::device},
      {"dtype", &Event::element_type},
      {"kind", &Event::kind},
      {"stream", &Event::stream},
      {"wait_on_cuda_event_record_corr_id", &Event::wait_record},
      {"wait_on_stream", &Event::wait_stream},
  };
  // For an event without the usual argument. Before "Record function id" there was, Kineto's own
  // number was the same in some releases.
  static constexpr std::pair<std::string_view, std::string_view Event::*> kInstead[] = {
      {"External id", &Event::record_function},
      {"correlation id", &Event::correlation},
  };
  for (auto field : arguments) {
    simdjson::ondemand::raw_json_string key;
    if (const auto error = field.key().get(key)) return error;
    simdjson::ondemand::value value = field.value();
    simdjson::error_code error = simdjson::SUCCESS;
    if (key == "block") {
      error = Dimensions(value, event->block);
    } else if (key == "grid") {
      error = Dimensions(value, event->grid);
    } else if (key == "graph") {
      event->graph = true;
    } else if (key == "lengths") {
      simdjson::ondemand::array lengths;
      error = value.get(lengths);
      if (!error) error = lengths.raw_json().get(event->lengths);
    } else if (key == "name") {
      if (value.get(event->argument_name)) event->argument_name = {};
    } else if (key == "pageable") {
      event->pageable = std::string_view(value.raw_json_token()).starts_with("true");
    } else if (std::string_view* out = FieldOf(event, key, kArguments)) {
      *out = value.raw_json_token();
    } else if (out = FieldOf(event, key, kInstead); out != nullptr && out->empty()) {
      *out = value.raw_json_token();
    }
    if (error) return error;
  }
  return simdjson::SUCCESS;
}

int32_t ChromeEvents::DeviceOf(const Event& event) {
  const auto device = ParseInteger(event.device.empty() ? event.process : event.device);
  return static_cast<int32_t>(std::clamp<int64_t>(device.value_or(0), 0, INT32_MAX));
}

bool ChromeEvents::Take(const Event& event) {
  trace::Trace& trace = builder_->trace();
  if (event.phase != 0) ++events_;
  if (event.phase == 'M') {
    if (event.name == "thread_name") {
      builder_->SetThreadName(Unquoted(event.process), Unquoted(event.thread), event.argument_name);
    }
    return true;
  }
  const bool flow = event.category == Category::kFlow && !event.id.empty();
  if (flow && (event.phase == 's' || event.phase == 'f')) {
    const std::optional<int64_t> at_ns = ParseMicros(event.ts);
    if (!at_ns) return false;
    builder_->AddFlowEnd(Unquoted(event.id), event.phase == 's', *at_ns,
                         builder_->Thread(Unquoted(event.process), Unquoted(event.thread)));
    return true;
  }
  if (event.phase != 'X' || event.category == Category::kNotNeeded ||
      event.category == Category::kFlow) {
    ++trace.left_out.other;
    return true;
  }
  if (event.category == Category::kPython) {
    ++trace.left_out.python_frames;
    return true;
  }
  if (event.category == Category::kSync) {
    TakeSync(event);
    return true;
  }
  const std::optional<int64_t> begin_ns = ParseMicros(event.ts);
  if (!begin_ns) return false;
  int64_t duration_ns = ParseMicros(event.duration).value_or(-1);
  if (duration_ns < 0 || duration_ns > kMaxDurationNs) {
    duration_ns = 0;
    ++trace.left_out.without_duration;
  }
  const int64_t end_ns = *begin_ns + duration_ns;
  switch (event.category) {
    case Category::kCall: {
      const uint32_t name = builder_->Name(event.name);
      builder_->calls().Add({*begin_ns, end_ns, Positive(event.correlation), name,
                             builder_->Thread(Unquoted(event.process), Unquoted(event.thread)),
                             builder_->CallKindOf(name)});
      break;
    }
    case Category::kOperator:
    case Category::kAnnotation: {
      // Until 2021 the framework's own annotations, "Optimizer.step#SGD.step", were operators.
      const bool annotation =
          event.category == Category::kAnnotation || event.name.find('#') != event.name.npos;
      // The lengths of an iteration become a part of its name: "ProfilerStep#12 lengths=[37,5]".
      std::string with_lengths;
      if (!event.lengths.empty() && event.lengths.size() <= kMaxLengthsBytes) {
        with_lengths = std::string(event.name).append(" lengths=").append(event.lengths);
      }
      const uint64_t record_function = Positive(event.record_function);
      builder_->spans().Add(
          {*begin_ns, end_ns, builder_->Name(with_lengths.empty() ? event.name : with_lengths),
           builder_->Thread(Unquoted(event.process), Unquoted(event.thread)),
           annotation ? trace::SpanKind::kAnnotation : trace::SpanKind::kOperator,
           record_function > UINT32_MAX ? 0 : static_cast<uint32_t>(record_function)});
      break;
    }
    default:
      TakeWork(event, *begin_ns, end_ns);
      break;
  }
  return true;
}

void ChromeEvents::TakeWork(const Event& event, int64_t begin_ns, int64_t end_ns) {
  trace::Work work;
  work.start_ns = begin_ns;
  work.end_ns = end_ns;
  work.correlation = Positive(event.correlation);
  work.name = builder_->Name(event.name);
  const auto stream = ParseInteger(event.stream);
  work.stream =
      builder_->Stream(DeviceOf(event), stream ? *stream : ParseInteger(event.thread).value_or(0));
  if (event.category == Category::kKernel) {
    work.kind = event.graph                         ? WorkKind::kGraph
                : builder_->IsCollective(work.name) ? WorkKind::kCollective
                                                    : WorkKind::kKernel;
    if (work.kind == WorkKind::kCollective) {
      work.bytes = Positive(event.elements) * ElementBytes(Unquoted(event.element_type));
    }
    for (int i = 0; i < 3; ++i) {
      work.grid[i] = event.grid[i];
      work.block[i] = Clamp<uint16_t>(event.block[i]);
    }
  } else {
    work.bytes = Positive(event.bytes);
    work.kind = event.category == Category::kMemset ? WorkKind::kMemset : CopyKindOf(event.name);
    if (work.kind == WorkKind::kCopyOther) work.kind = CopyKindOf(event.kind);
    work.pageable = event.pageable || event.name.find("Pageable") != std::string_view::npos;
  }
  builder_->AddWork(work);
}

void ChromeEvents::TakeSync(const Event& event) {
  const auto stream = [&](std::string_view token) {
    const auto id = ParseInteger(token);
    return id && *id >= 0 ? builder_->Stream(DeviceOf(event), *id) : kNone;
  };
  trace::Wait wait;
  wait.correlation = Positive(event.correlation);
  wait.record_correlation = Positive(event.wait_record);
  wait.stream = stream(event.stream);
  wait.source = stream(event.wait_stream);
  builder_->trace().waits.push_back(wait);
}

void ChromeEvents::OnRest(const std::string& rest) {
  simdjson::dom::parser parser;
  simdjson::dom::object fields;
  if (parser.parse(rest).get(fields) && parser.parse(Mend(rest)).get(fields)) return;
  trace::Trace& trace = builder_->trace();
  const auto integer = [](simdjson::dom::element element) {
    int64_t value = 0;
    std::string_view text;
    if (element.get(value) && !element.get(text)) value = ParseInteger(text).value_or(0);
    return value;
  };
  for (const auto field : fields) {
    keys_.emplace_back(field.key);
    simdjson::dom::object object;
    simdjson::dom::array array;
    if (field.key == "baseTimeNanoseconds") {
      const int64_t base_ns = integer(field.value);
      if (base_ns > 0 && base_ns < int64_t{1} << 61) builder_->set_base_ns(base_ns);
    } else if (field.key == "profiler") {
      std::string_view name;
      if (!field.value.get(name) && name == "SeqPoint") profiler_ = name;
    } else if (field.key == "onlyToView") {
      std::string_view why;
      if (!field.value.get(why)) only_to_view_ = why;
    } else if (field.key == "distributedInfo" && !field.value.get(object)) {
      for (const auto info : object) {
        const int64_t value = std::clamp<int64_t>(integer(info.value), 0, INT32_MAX);
        if (info.key == "rank") trace.rank = static_cast<int32_t>(value);
        if (info.key == "world_size") {
          trace.world_size = static_cast<int32_t>(std::max<int64_t>(value, 1));
        }
      }
    } else if (field.key == "deviceProperties" && !field.value.get(array)) {
      for (const simdjson::dom::element gpu : array) {
        std::string_view name;
        simdjson::dom::element id;
        if (gpu["name"].get(name) || gpu["id"].get(id)) continue;
        const int64_t device = integer(id);
        if (device < 0 || device >= static_cast<int64_t>(kMaxGpus)) continue;
        if (trace.gpus.size() <= static_cast<size_t>(device)) {
          trace.gpus.resize(static_cast<size_t>(device) + 1);
        }
        trace.gpus[static_cast<size_t>(device)] = name;
      }
    }
  }
}

}  // namespace seqpoint::traces
