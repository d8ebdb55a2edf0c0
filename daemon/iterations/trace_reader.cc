#include "daemon/iterations/trace_reader.h"

#include <simdjson.h>
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <unordered_map>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace seqpoint::iterations {
namespace {

using abi::CallRecord;
using abi::Op;

absl::StatusOr<std::string> ReadMaybeGzipped(const std::string& path) {
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(path.c_str(), "rb"), gzclose);
  if (file == nullptr) return absl::NotFoundError(absl::StrCat("cannot open ", path));
  std::string text;
  std::vector<char> buffer(1 << 20);
  int n;
  while ((n = gzread(file.get(), buffer.data(), static_cast<unsigned>(buffer.size()))) > 0) {
    text.append(buffer.data(), static_cast<size_t>(n));
  }
  if (n < 0) return absl::InvalidArgumentError(absl::StrCat(path, ": damaged gzip stream"));
  return text;
}

class Names {
 public:
  explicit Names(std::vector<std::string>* names) : names_(names) { names_->assign(1, ""); }
  uint32_t Id(std::string_view name) {
    auto [it, inserted] = ids_.try_emplace(std::string(name), names_->size());
    if (inserted) names_->push_back(it->first);
    return static_cast<uint32_t>(it->second);
  }

 private:
  std::vector<std::string>* names_;
  std::unordered_map<std::string, size_t> ids_;
};

bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

Op CopyOp(std::string_view name) {
  if (Contains(name, "HtoD") || Contains(name, "HostToDevice")) return Op::kCopyH2D;
  if (Contains(name, "DtoH") || Contains(name, "DeviceToHost")) return Op::kCopyD2H;
  if (Contains(name, "DtoD") || Contains(name, "DeviceToDevice")) return Op::kCopyD2D;
  return Op::kCopyOther;
}

// The operation of a runtime or driver call by its name; kNone for calls that reach no GPU queue.
Op ApiOp(std::string_view name) {
  if (Contains(name, "GraphLaunch")) return Op::kGraphLaunch;
  if (Contains(name, "StreamSynchronize")) return Op::kStreamSync;
  if (Contains(name, "EventSynchronize")) return Op::kEventSync;
  if (Contains(name, "DeviceSynchronize") || Contains(name, "CtxSynchronize")) {
    return Op::kContextSync;
  }
  if (Contains(name, "EventRecord")) return Op::kEventRecord;
  if (Contains(name, "StreamWaitEvent")) return Op::kStreamWait;
  if (Contains(name, "Memset")) return Op::kMemset;
  if (Contains(name, "Memcpy")) return Op::kCopyOther;
  if (Contains(name, "Launch") && !Contains(name, "HostFunc")) return Op::kLaunch;
  return Op::kNone;
}

class KinetoReader {
 public:
  KinetoReader(const std::string& marker_prefix, RecordedTrace* trace)
      : marker_prefix_(marker_prefix), trace_(trace), names_(&trace->names) {}

  absl::Status Read(const std::string& path, const std::string& text) {
    simdjson::dom::parser parser;
    simdjson::dom::element root;
    if (auto error = parser.parse(simdjson::padded_string(text)).get(root)) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": not JSON: ", simdjson::error_message(error)));
    }
    simdjson::dom::array events;
    if (root["traceEvents"].get(events) && root.get(events)) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": no traceEvents"));
    }
    for (simdjson::dom::element event : events) ReadEvent(event);
    Join();
    return absl::OkStatus();
  }

 private:
  struct Api {
    uint64_t begin_ns, end_ns;
    Op op;
    uint64_t correlation;
    uint32_t thread;
  };
  struct Gpu {
    uint64_t start_ns;
    Op op;
    uint32_t name_id;
    uint64_t stream, bytes;
    uint32_t grid[3], block[3];
  };

  static double Number(simdjson::dom::element event, const char* key) {
    double value = 0;
    simdjson::dom::element field;
    if (event[key].get(field)) return 0;
    if (!field.get(value)) return value;
    std::string_view text;
    if (!field.get(text)) value = std::strtod(std::string(text).c_str(), nullptr);
    return value;
  }
  static void Dimensions(simdjson::dom::element args, const char* key, uint32_t out[3]) {
    simdjson::dom::array values;
    if (args[key].get(values)) return;
    size_t i = 0;
    for (simdjson::dom::element value : values) {
      double number = 0;
      if (i < 3 && !value.get(number)) out[i++] = static_cast<uint32_t>(number);
    }
  }

  void ReadEvent(simdjson::dom::element event) {
    std::string_view phase, category, name;
    if (event["ph"].get(phase) || phase != "X") return;
    if (event["cat"].get(category) || event["name"].get(name)) return;
    const double ts = Number(event, "ts");
    const auto begin = static_cast<uint64_t>(std::llround(ts * 1000));
    const auto end = begin + static_cast<uint64_t>(std::llround(Number(event, "dur") * 1000));
    simdjson::dom::element args;
    const bool has_args = !event["args"].get(args);
    uint64_t correlation = 0;
    if (has_args) {
      correlation = static_cast<uint64_t>(Number(args, "correlation"));
      if (correlation == 0) correlation = static_cast<uint64_t>(Number(args, "correlation id"));
    }
    const bool kernel = category == "kernel" || category == "Kernel";
    const bool copy = category == "gpu_memcpy" || category == "Memcpy";
    const bool memset = category == "gpu_memset" || category == "Memset";
    if (has_args && (kernel || copy || memset)) {
      Gpu gpu{begin,
              kernel   ? Op::kLaunch
              : memset ? Op::kMemset
                       : CopyOp(name),
              kernel ? names_.Id(name) : 0,
              static_cast<uint64_t>(Number(args, "stream")),
              static_cast<uint64_t>(Number(args, "bytes")),
              {1, 1, 1},
              {1, 1, 1}};
      Dimensions(args, "grid", gpu.grid);
      Dimensions(args, "block", gpu.block);
      gpu_.try_emplace(correlation, gpu);
      return;
    }
    if (category == "cuda_runtime" || category == "Runtime" || category == "cuda_driver" ||
        category == "hip_runtime") {
      const Op op = ApiOp(name);
      if (op == Op::kNone) return;
      const auto thread = static_cast<uint32_t>(Number(event, "tid"));
      api_.push_back({begin, end, op, correlation, thread});
      return;
    }
    if (name.substr(0, marker_prefix_.size()) == marker_prefix_ &&
        (category == "user_annotation" || category == "cpu_op" || category == "Operator")) {
      trace_->markers.push_back({std::string(name), begin, end});
    }
  }

  void Join() {
    std::stable_sort(api_.begin(), api_.end(),
                     [](const Api& a, const Api& b) { return a.begin_ns < b.begin_ns; });
    for (const Api& api : api_) {
      CallRecord call{};
      call.type = static_cast<uint16_t>(abi::DataType::kCall);
      call.op = static_cast<uint8_t>(api.op);
      call.api_ns = api.begin_ns;
      call.thread_id = api.thread;
      call.correlation_id = static_cast<uint32_t>(api.correlation);
      const auto it = gpu_.find(api.correlation);
      const bool queues = api.op == Op::kLaunch || api.op == Op::kMemset ||
                          api.op == Op::kCopyOther || api.op == Op::kGraphLaunch;
      if (queues && it == gpu_.end()) continue;  // its work ran outside the recorded window
      if (it != gpu_.end()) {
        const Gpu& gpu = it->second;
        if (api.op != Op::kGraphLaunch) {
          call.op = static_cast<uint8_t>(gpu.op);
          call.name_id = gpu.name_id;
          call.grid_x = gpu.grid[0];
          call.grid_y = static_cast<uint16_t>(gpu.grid[1]);
          call.grid_z = static_cast<uint16_t>(gpu.grid[2]);
          call.block_x = static_cast<uint16_t>(gpu.block[0]);
          call.block_y = static_cast<uint16_t>(gpu.block[1]);
          call.block_z = static_cast<uint16_t>(gpu.block[2]);
          call.bytes = gpu.bytes;
        }
        call.stream = gpu.stream;
        trace_->gpu_starts.push_back({call.correlation_id, gpu.start_ns});
      } else if (api.op == Op::kStreamSync || api.op == Op::kEventSync ||
                 api.op == Op::kContextSync) {
        call.bytes = api.end_ns - api.begin_ns;
      }
      call.sequence = trace_->calls.size() + 1;
      trace_->calls.push_back(call);
    }
    std::sort(trace_->markers.begin(), trace_->markers.end(),
              [](const Marker& a, const Marker& b) { return a.begin_ns < b.begin_ns; });
  }

  std::string marker_prefix_;
  RecordedTrace* trace_;
  Names names_;
  std::vector<Api> api_;
  absl::flat_hash_map<uint64_t, Gpu> gpu_;
};

// "47.954MB" and the like: the profiler's decimal sizes with binary prefixes.
double Size(const std::string& text) {
  char* unit = nullptr;
  const double value = std::strtod(text.c_str(), &unit);
  if (absl::StartsWith(unit, "GB")) return value * (1 << 30);
  if (absl::StartsWith(unit, "MB")) return value * (1 << 20);
  if (absl::StartsWith(unit, "KB")) return value * (1 << 10);
  return value;
}

// "(64 1 1)|(256 1 1)" of kernels: grid and block.
void Geometry(const std::string& text, CallRecord* call) {
  std::vector<uint32_t> numbers;
  uint32_t number = 0;
  bool in_number = false;
  for (char c : text + " ") {
    if (c >= '0' && c <= '9') {
      number = number * 10 + static_cast<uint32_t>(c - '0');
      in_number = true;
    } else if (in_number) {
      numbers.push_back(number);
      number = 0;
      in_number = false;
    }
  }
  numbers.resize(6, 1);
  call->grid_x = numbers[0];
  call->grid_y = static_cast<uint16_t>(numbers[1]);
  call->grid_z = static_cast<uint16_t>(numbers[2]);
  call->block_x = static_cast<uint16_t>(numbers[3]);
  call->block_y = static_cast<uint16_t>(numbers[4]);
  call->block_z = static_cast<uint16_t>(numbers[5]);
}

absl::Status ReadCsv(const std::string& path, const std::string& text, RecordedTrace* trace) {
  absl::flat_hash_map<int, std::string> names;
  std::vector<std::string> rows;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (line.empty() || absl::StartsWith(line, "#names") || absl::StartsWith(line, "start_us")) {
      continue;
    }
    if (line[0] == '#') {
      const std::vector<std::string> parts =
          absl::StrSplit(line.substr(1), absl::MaxSplits('\t', 1));
      int id = 0;
      if (parts.size() == 2 && absl::SimpleAtoi(parts[0], &id)) names[id] = parts[1];
      continue;
    }
    rows.push_back(std::string(line));
  }
  Names ids(&trace->names);
  for (const std::string& row : rows) {
    const std::vector<std::string> fields = absl::StrSplit(row, absl::MaxSplits(',', 4));
    double start_us = 0;
    int name_id = 0;
    if (fields.size() != 5 || !absl::SimpleAtod(fields[0], &start_us) ||
        !absl::SimpleAtoi(fields[3], &name_id)) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": \"", row, "\" is not a GPU activity"));
    }
    const std::string& name = names[name_id];
    CallRecord call{};
    call.type = static_cast<uint16_t>(abi::DataType::kCall);
    call.api_ns = static_cast<uint64_t>(std::llround(start_us * 1000));
    call.sequence = trace->calls.size() + 1;
    call.correlation_id = static_cast<uint32_t>(call.sequence);
    call.stream = std::strtoull(fields[2].c_str(), nullptr, 10);
    if (absl::StartsWith(name, "[CUDA memcpy")) {
      call.op = static_cast<uint8_t>(CopyOp(name));
      call.bytes = static_cast<uint64_t>(Size(fields[4]));
    } else if (absl::StartsWith(name, "[CUDA memset")) {
      call.op = static_cast<uint8_t>(Op::kMemset);
      call.bytes = static_cast<uint64_t>(Size(fields[4]));
    } else {
      call.op = static_cast<uint8_t>(Op::kLaunch);
      call.name_id = ids.Id(name);
      Geometry(fields[4], &call);
    }
    trace->gpu_starts.push_back({call.correlation_id, call.api_ns});
    trace->calls.push_back(call);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RecordedTrace> ReadTrace(const std::string& path, const std::string& marker_prefix) {
  absl::StatusOr<std::string> text = ReadMaybeGzipped(path);
  if (!text.ok()) return text.status();
  RecordedTrace trace;
  const absl::Status status = Contains(path, ".csv")
                                  ? ReadCsv(path, *text, &trace)
                                  : KinetoReader(marker_prefix, &trace).Read(path, *text);
  if (!status.ok()) return status;
  return trace;
}

}  // namespace seqpoint::iterations
