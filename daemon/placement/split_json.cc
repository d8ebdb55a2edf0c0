#include "daemon/placement/split_json.h"

#include <simdjson.h>

#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "daemon/base/json_string.h"
#include "daemon/base/status_macros.h"
#include "daemon/placement/json_object.h"

namespace seqpoint::placement {
namespace {

using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::object;

class SplitReader {
 public:
  SplitReader(const std::string& file, const Problem& problem)
      : file_(file), problem_(problem), placement_(problem.operators.size(), -1) {
    for (size_t i = 0; i < problem.operators.size(); ++i) {
      index_.try_emplace(problem.operators[i].id, static_cast<int>(i));
    }
  }

  absl::StatusOr<Placement> Read(std::string_view text) {
    SEQPOINT_ASSIGN_OR_RETURN(const object fields, ParseObject(text, file_, &parser_));
    if (const std::string key = RepeatedKey(fields); !key.empty()) {
      return Fail(absl::StrCat("\"", key, "\" is there twice"));
    }
    absl::Status status = ReadDevices(fields, "fpgas", 0, problem_.accelerators);
    status.Update(ReadDevices(fields, "cpus", problem_.accelerators, problem_.cpus));
    if (!status.ok()) return status;
    FollowForward();
    return std::move(placement_);
  }

 private:
  absl::Status Fail(const std::string& what) const {
    return absl::InvalidArgumentError(absl::StrCat(file_, ": ", what));
  }

  absl::Status ReadDevices(object fields, const char* name, int first, int devices) {
    element list;
    array entries;
    if (fields[name].get(list)) return Fail(absl::StrCat("there is no field \"", name, "\""));
    if (list.get_array().get(entries)) return Fail(absl::StrCat("\"", name, "\" is no list"));
    int device = 0;
    for (const element entry : entries) {
      array ids;
      if (entry["nodes"].get_array().get(ids)) {
        return Fail(absl::StrCat("entry ", device + 1, " of \"", name, "\" has no list \"nodes\""));
      }
      // A list more than there are devices is no fault while nothing is on it.
      if (device >= devices && ids.begin() != ids.end()) {
        return Fail(
            absl::StrCat("\"", name, "\" uses ", device + 1, " devices; there are ", devices));
      }
      for (const element id : ids) {
        SEQPOINT_RETURN_IF_ERROR(Place(id, first + device));
      }
      ++device;
    }
    return absl::OkStatus();
  }

  absl::Status Place(element entry, int device) {
    int64_t id = 0;
    if (entry.get_int64().get(id)) {
      return Fail(absl::StrCat("\"nodes\" has ", simdjson::minify(entry), ", which is no id"));
    }
    const auto found = index_.find(id);
    if (found == index_.end()) {
      return Fail(absl::StrCat("operator ", id, " is not in the problem"));
    }
    int& at = placement_[found->second];
    if (at >= 0) return Fail(absl::StrCat("operator ", id, " is there twice"));
    at = device;
    return absl::OkStatus();
  }

  void FollowForward() {
    absl::flat_hash_map<int64_t, int> of_color;
    for (size_t i = 0; i < placement_.size(); ++i) {
      const Operator& op = problem_.operators[i];
      if (!op.backward && op.color.has_value() && placement_[i] >= 0) {
        of_color.try_emplace(*op.color, placement_[i]);
      }
    }
    for (size_t i = 0; i < placement_.size(); ++i) {
      const Operator& op = problem_.operators[i];
      if (placement_[i] >= 0 || !op.backward || !op.color.has_value()) continue;
      const auto found = of_color.find(*op.color);
      if (found != of_color.end()) placement_[i] = found->second;
    }
  }

  std::string file_;
  const Problem& problem_;
  absl::flat_hash_map<int64_t, int> index_;
  simdjson::dom::parser parser_;
  Placement placement_;
};

}  // namespace

absl::StatusOr<Placement> ReadSplit(std::string_view text, const std::string& file,
                                    const Problem& problem) {
  return SplitReader(file, problem).Read(text);
}

std::string WriteSplit(const Problem& problem, const Placement& placement,
                       const Judgement& judgement) {
  std::vector<std::string> ids(problem.devices());
  for (size_t i = 0; i < placement.size(); ++i) {
    std::string& list = ids[placement[i]];
    absl::StrAppend(&list, list.empty() ? "" : ", ", problem.operators[i].id);
  }
  std::string out = absl::StrCat("{\"maxLoad\": ", JsonNumber(judgement.max_load));
  for (const bool accelerators : {true, false}) {
    absl::StrAppend(&out, ",\n \"", accelerators ? "fpgas" : "cpus", "\": [");
    const char* separator = "\n  ";
    for (int device = 0; device < problem.devices(); ++device) {
      if (problem.IsAccelerator(device) != accelerators) continue;
      absl::StrAppend(&out, separator, "{\"load\": ", JsonNumber(judgement.devices[device].load()),
                      ", \"nodes\": [", ids[device], "]}");
      separator = ",\n  ";
    }
    out += ']';
  }
  return out + "}\n";
}

}  // namespace seqpoint::placement
