#include "daemon/traces/execution_trace.h"

#include <simdjson.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "daemon/base/status_macros.h"

namespace seqpoint::traces {
namespace {

using simdjson::ondemand::json_type;
using simdjson::ondemand::object;
using simdjson::ondemand::value;

constexpr std::string_view kRootName = "[pytorch|profiler|execution_";  // graph, later trace
constexpr char kHowToRecord[] =
    "give the file of torch.profiler's ExecutionGraphObserver (1.13) or ExecutionTraceObserver as "
    "it "
    "is after unregister_callback()";
constexpr size_t kTensorFields = 6;  // id, storage, offset, elements, bytes of one, device

class Reader {
 public:
  explicit Reader(std::string_view name) { trace_.source = name; }

  absl::StatusOr<ExecutionTrace> Read(std::string_view text) {
    if (text.size() >= simdjson::SIMDJSON_MAXSIZE_BYTES) {
      return Fail(absl::StrCat("has ", text.size() >> 20,
                               " MiB, more than can be read; record a single iteration"));
    }
    trace_.names.emplace_back();
    numbers_.emplace("", 0);
    const simdjson::padded_string padded(text);
    simdjson::ondemand::parser parser;
    simdjson::ondemand::document document;
    object fields;
    if (parser.iterate(padded).get(document) || document.get_object().get(fields)) {
      return Fail(absl::StrCat("is no JSON object, or ends in the middle; ", kHowToRecord));
    }
    bool nodes_seen = false;
    for (auto field : fields) {
      std::string_view key;
      if (field.unescaped_key().get(key)) return Damaged();
      if (key != "nodes" || nodes_seen) continue;
      nodes_seen = true;
      simdjson::ondemand::array nodes;
      if (field.value().get_array().get(nodes)) return Fail("\"nodes\" is no list");
      for (auto element : nodes) {
        object node;
        ++place_;
        if (element.get_object().get(node)) return Damaged();
        SEQPOINT_RETURN_IF_ERROR(ReadNode(node));
      }
    }
    if (!nodes_seen) return Fail(absl::StrCat("has no \"nodes\"; ", kHowToRecord));
    if (trace_.operators.empty()) {
      return Fail("has no operators; call the observer's start() before the iteration");
    }
    SEQPOINT_RETURN_IF_ERROR(Order());
    return std::move(trace_);
  }

 private:
  absl::Status Fail(const std::string& what) const {
    return absl::InvalidArgumentError(absl::StrCat(trace_.source, ": ", what));
  }

  // PyTorch 1.13 writes strings as they are: a quote in one of them breaks the file.
  absl::Status Damaged() const {
    return Fail(absl::StrCat(
        place_ == 0 ? "is no JSON" : absl::StrCat("node ", place_, " is no JSON"),
        ", or the file ends there; call unregister_callback() before the program ends (PyTorch "
        "1.13 also writes strings with quotes in them wrongly)"));
  }

  absl::Status Wrong(std::string_view key, const char* what) const {
    return Fail(absl::StrCat("node ", place_, ": \"", std::string(key), "\" is ", what));
  }

  uint32_t Name(const std::string& text) {
    const auto [it, added] = numbers_.try_emplace(text, static_cast<uint32_t>(trace_.names.size()));
    if (added) trace_.names.push_back(text);
    return it->second;
  }

  absl::Status Number(value content, std::string_view key, uint64_t* number) const {
    if (content.get_uint64().get(*number)) return Wrong(key, "no number from 0 on");
    return absl::OkStatus();
  }

  absl::Status ReadNode(object node) {
    op_ = ExecutedOperator();
    id_seen_ = false;
    inputs_.clear();
    outputs_.clear();
    name_.clear();
    for (auto field : node) {
      std::string_view key;
      if (field.unescaped_key().get(key)) return Damaged();
      SEQPOINT_RETURN_IF_ERROR(ReadField(key, field.value()));
    }
    if (!id_seen_) return Fail(absl::StrCat("node ", place_, " has no \"id\""));
    if (name_.starts_with(kRootName)) return absl::OkStatus();
    op_.name = Name(name_);
    op_.first_use = trace_.uses.size();
    op_.inputs = static_cast<uint32_t>(inputs_.size());
    op_.outputs = static_cast<uint32_t>(outputs_.size());
    trace_.uses.insert(trace_.uses.end(), inputs_.begin(), inputs_.end());
    trace_.uses.insert(trace_.uses.end(), outputs_.begin(), outputs_.end());
    trace_.operators.push_back(op_);
    return absl::OkStatus();
  }

  // Fields of a node (schema 1.0.1), and attributes of one (since 1.0.2-chakra).
  absl::Status ReadField(std::string_view key, value content) {
    if (key == "id") {
      id_seen_ = true;
      SEQPOINT_RETURN_IF_ERROR(Number(content, key, &op_.id));
      return op_.id > INT64_MAX ? Wrong(key, "larger than 2^63 - 1") : absl::OkStatus();
    }
    if (key == "name") return Text(content, key, &name_);
    if (key == "parent" || key == "ctrl_deps") return Number(content, key, &op_.parent);
    if (key == "rf_id") return Number(content, key, &op_.record_function);
    if (key == "tid") return Number(content, key, &op_.thread);
    if (key == "fw_tid") return Number(content, key, &op_.forward_thread);
    if (key == "seq_id") {
      if (content.get_int64().get(op_.sequence)) return Wrong(key, "no number");
    } else if (key == "scope") {
      uint64_t scope = 0;
      SEQPOINT_RETURN_IF_ERROR(Number(content, key, &scope));
      op_.scope = static_cast<uint8_t>(std::min<uint64_t>(scope, UINT8_MAX));
    } else if (key == "op_schema") {
      std::string schema;
      SEQPOINT_RETURN_IF_ERROR(Text(content, key, &schema));
      op_.schema = Name(schema);
    } else if (key == "kernel_backend") {
      std::string backend;
      SEQPOINT_RETURN_IF_ERROR(Text(content, key, &backend));
      op_.compiled = !backend.empty();
    } else if (key == "inputs") {
      return ReadValues(content, key, &inputs_);
    } else if (key == "outputs") {
      return ReadValues(content, key, &outputs_);
    } else if (key == "attrs") {
      return ReadAttributes(content);
    }
    return absl::OkStatus();
  }

  absl::Status Text(value content, std::string_view key, std::string* text) const {
    std::string_view view;
    if (content.get_string().get(view)) return Wrong(key, "no text");
    *text = view;
    return absl::OkStatus();
  }

  absl::Status ReadAttributes(value content) {
    simdjson::ondemand::array attributes;
    if (content.get_array().get(attributes)) return Wrong("attrs", "no list");
    for (auto element : attributes) {
      object attribute;
      if (element.get_object().get(attribute)) return Wrong("attrs", "a list of something else");
      std::string key;
      for (auto field : attribute) {
        std::string_view name;
        if (field.unescaped_key().get(name)) return Damaged();
        absl::Status status;
        if (name == "name") status = Text(field.value(), "attrs", &key);
        // An attribute may be called as a field of a node; only those of the table are attributes.
        if (name == "value" && key != "attrs" && key != "inputs" && key != "outputs") {
          status = ReadField(key, field.value());
        }
        if (!status.ok()) return status;
      }
    }
    return absl::OkStatus();
  }

  // Until 1.0.1 a list, since then an object with the list as its "values".
  absl::Status ReadValues(value content, std::string_view key, std::vector<TensorUse>* uses) {
    json_type type;
    if (content.type().get(type)) return Damaged();
    if (type == json_type::array) return ReadArguments(content, key, uses);
    object parts;
    if (content.get_object().get(parts)) return Wrong(key, "no list and no object");
    for (auto part : parts) {
      std::string_view name;
      if (part.unescaped_key().get(name)) return Damaged();
      if (name != "values") continue;
      SEQPOINT_RETURN_IF_ERROR(ReadArguments(part.value(), key, uses));
    }
    return absl::OkStatus();
  }

  absl::Status ReadArguments(value content, std::string_view key, std::vector<TensorUse>* uses) {
    simdjson::ondemand::array arguments;
    if (content.get_array().get(arguments)) return Wrong(key, "no list");
    uint32_t argument = 0;
    for (auto element : arguments) {
      json_type type;
      if (element.type().get(type)) return Damaged();
      const size_t before = uses->size();
      if (type == json_type::array && !ReadTensors(element, uses)) return Damaged();
      for (size_t i = before; i < uses->size(); ++i) {
        (*uses)[i].argument = argument;
        (*uses)[i].element = static_cast<uint32_t>(i - before);
      }
      ++argument;
    }
    return absl::OkStatus();
  }

  // A tensor is [id, storage, offset, elements, bytes of an element, "device"]; a list of tensors
  // has these as its elements. Lists of something else look like neither. False: no JSON.
  static bool ReadTensors(simdjson::simdjson_result<value> content, std::vector<TensorUse>* uses) {
    simdjson::ondemand::array array;
    if (content.get_array().get(array)) return false;
    uint64_t numbers[kTensorFields - 1] = {};
    std::string_view device;
    size_t count = 0;
    bool tensor = true;
    for (auto element : array) {
      json_type type;
      if (element.type().get(type)) return false;
      if (type == json_type::array) {
        if (!ReadTensors(element, uses)) return false;
        tensor = false;
      } else if (count < kTensorFields - 1) {
        tensor = tensor && type == json_type::number &&
                 element.get_uint64().get(numbers[count]) == simdjson::SUCCESS;
      } else if (count == kTensorFields - 1) {
        tensor = tensor && type == json_type::string &&
                 element.get_string().get(device) == simdjson::SUCCESS;
      }
      ++count;
    }
    if (!tensor || count != kTensorFields || numbers[1] == 0 || numbers[3] == 0) return true;
    uses->push_back({.tensor = numbers[0],
                     .storage = numbers[1],
                     .offset = numbers[2],
                     .elements = numbers[3],
                     .item_bytes = numbers[4],
                     .host = device == "cpu"});
    return true;
  }

  absl::Status Order() {
    std::vector<ExecutedOperator>& operators = trace_.operators;
    std::sort(operators.begin(), operators.end(),
              [](const auto& a, const auto& b) { return a.id < b.id; });
    for (size_t i = 0; i < operators.size(); ++i) {
      const ExecutedOperator& op = operators[i];
      const std::string name = absl::Utf8SafeCHexEscape(trace_.NameOf(op).substr(0, 80));
      if (i > 0 && operators[i - 1].id == op.id) {
        return Fail(absl::StrCat("two nodes have the id ", op.id, ", one of them ", name));
      }
      if (op.parent >= op.id) {
        return Fail(absl::StrCat("node ", op.id, " (", name, ") has the parent ", op.parent,
                                 ", which began later"));
      }
    }
    return absl::OkStatus();
  }

  ExecutionTrace trace_;
  absl::flat_hash_map<std::string, uint32_t> numbers_;  // of names
  uint64_t place_ = 0;                                  // of the node, from 1 on
  ExecutedOperator op_;
  bool id_seen_ = false;
  std::string name_;
  std::vector<TensorUse> inputs_, outputs_;
};

}  // namespace

uint64_t TensorUse::bytes() const {
  return item_bytes != 0 && elements > std::numeric_limits<uint64_t>::max() / item_bytes
             ? std::numeric_limits<uint64_t>::max()
             : elements * item_bytes;
}

absl::StatusOr<ExecutionTrace> ReadExecutionTrace(std::string_view text, std::string_view name) {
  return Reader(name).Read(text);
}

}  // namespace seqpoint::traces
