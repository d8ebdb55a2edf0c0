#include "tests/workloads/operations.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace seqpoint::workload {
namespace {

std::string PassJson(const Operation::Pass& pass) {
  return absl::StrFormat(R"({"works":%d,"bytes":%d})", pass.works, pass.bytes);
}

template <typename T>
std::string List(const std::vector<T>& values) {
  return absl::StrCat("[", absl::StrJoin(values, ","), "]");
}

}  // namespace

OperationsFile::OperationsFile(const std::string& path) {
  if (path.empty()) return;
  file_ = std::fopen(path.c_str(), "w");
  if (file_ != nullptr) return;
  std::fprintf(stderr, "seqpoint_workload: cannot write operations file %s: %s\n", path.c_str(),
               std::strerror(errno));
  std::exit(1);
}

OperationsFile::~OperationsFile() {
  if (file_ != nullptr) std::fclose(file_);
}

void OperationsFile::Write(const std::vector<int>& lengths, const Tape& tape,
                           const Parameters& parameters) {
  if (file_ == nullptr || !written_.insert(lengths).second) return;
  std::map<const Tensor*, size_t> parameter;
  std::vector<size_t> parameter_bytes;
  for (const Tensor& tensor : parameters.tensors()) {
    parameter[&tensor] = parameter_bytes.size();
    parameter_bytes.push_back(tensor.Count() * sizeof(float));
  }
  std::map<const Tensor*, std::vector<size_t>> writers;  // several write columns of one tensor
  std::vector<std::string> operations;
  for (const Operation& operation : tape.operations()) {
    std::vector<size_t> inputs, read;
    for (const Tensor* tensor : operation.reads) {
      if (const auto found = parameter.find(tensor); found != parameter.end()) {
        read.push_back(found->second);
      } else {
        const std::vector<size_t>& from = writers[tensor];
        inputs.insert(inputs.end(), from.begin(), from.end());
      }
    }
    std::sort(inputs.begin(), inputs.end());
    inputs.erase(std::unique(inputs.begin(), inputs.end()), inputs.end());
    size_t out_bytes = 0;
    if (operation.out != nullptr) {
      out_bytes = static_cast<size_t>(operation.out->rows) *
                  static_cast<size_t>(operation.out_columns) * sizeof(float);
      writers[operation.out].push_back(operations.size());
    }
    operations.push_back(absl::StrFormat(
        R"({"name":"%s","inputs":%s,"parameters":%s,"out_bytes":%d,"forward":%s,"backward":%s})",
        operation.name, List(inputs), List(read), out_bytes, PassJson(operation.forward),
        PassJson(operation.backward)));
  }
  absl::FPrintF(file_, R"({"lengths":%s,"parameter_bytes":%s,"operations":%s})", List(lengths),
                List(parameter_bytes), List(operations));
  std::fputc('\n', file_);
  std::fflush(file_);
}

}  // namespace seqpoint::workload
