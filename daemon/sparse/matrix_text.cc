#include "daemon/sparse/matrix_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "daemon/base/status_macros.h"
#include "proto/invalid_argument.h"

namespace seqpoint::sparse {
namespace {

constexpr size_t kMostQuoted = 40;  // characters of a file in a message

std::string Quoted(absl::string_view text) {
  return absl::StrCat("\"", absl::CHexEscape(text.substr(0, kMostQuoted)),
                      text.size() > kMostQuoted ? "..." : "", "\"");
}

// Goes through a text line by line, and through a line word by word.
class Lines {
 public:
  Lines(std::string_view text, const std::string& file)
      : rest_(text.data(), text.size()), file_(file) {}

  bool Next() {
    if (rest_.empty()) return false;
    const size_t end = rest_.find('\n');
    line_ = rest_.substr(0, end);
    rest_ = end == absl::string_view::npos ? absl::string_view() : rest_.substr(end + 1);
    ended_ = end != absl::string_view::npos;
    at_ = line_;
    ++number_;
    return true;
  }

  absl::string_view Word() {
    at_ = absl::StripLeadingAsciiWhitespace(at_);
    const absl::string_view word = at_.substr(0, at_.find_first_of(" \t\r"));
    at_ = at_.substr(word.size());
    return word;
  }

  // A neuron's number, from 1 on; at most `most`.
  absl::StatusOr<int32_t> Index(absl::string_view name, int32_t most) {
    const absl::string_view word = Word();
    int64_t value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (word.empty() || error != std::errc() || end != word.data() + word.size()) {
      return Error(name, " is ", Quoted(word), ", not a whole number");
    }
    if (value < 1 || value > most) {
      return Error(name, " is ", value, "; it is from 1 to ", most);
    }
    return static_cast<int32_t>(value);
  }

  absl::StatusOr<float> Weight() {
    const absl::string_view word = Word();
    double value = 0;
    const bool plus = absl::StartsWith(word, "+");  // which from_chars does not take
    const auto [end, error] = std::from_chars(word.data() + plus, word.data() + word.size(), value);
    if (word.empty() || error == std::errc::invalid_argument || end != word.data() + word.size()) {
      return Error("the weight is ", Quoted(word), ", not a number");
    }
    if (error != std::errc() || !std::isfinite(static_cast<float>(value))) {
      return Error("the weight is ", Quoted(word), ", not a finite number of 32 bits");
    }
    return static_cast<float>(value);
  }

  absl::Status NoMore() {
    if (const absl::string_view word = Word(); !word.empty()) {
      return Error("there is ", Quoted(word), " behind the last column");
    }
    return absl::OkStatus();
  }

  bool blank() const { return absl::StripAsciiWhitespace(line_).empty(); }
  bool ended() const { return ended_; }  // by a line end
  absl::string_view line() const { return line_; }
  int64_t number() const { return number_; }

  template <typename... What>
  absl::Status Error(const What&... what) const {
    return InvalidArgument(file_, ":", number_, ": ", what...);
  }

 private:
  absl::string_view rest_, line_, at_;
  const std::string& file_;
  int64_t number_ = 0;
  bool ended_ = false;
};

absl::Status Append(MatrixEntries* matrix, Lines* lines, int32_t row, int32_t column,
                    float weight) {
  matrix->entries.push_back({row - 1, column - 1, weight, lines->number()});
  return lines->NoMore();
}

}  // namespace

absl::StatusOr<MatrixEntries> ReadTsv(std::string_view text, const std::string& file) {
  MatrixEntries matrix{.file = file};
  Lines lines(text, file);
  while (lines.Next()) {
    if (lines.blank()) continue;
    SEQPOINT_ASSIGN_OR_RETURN(const int32_t source, lines.Index("the source", kMostNeuronsOfLayer));
    SEQPOINT_ASSIGN_OR_RETURN(const int32_t target, lines.Index("the target", kMostNeuronsOfLayer));
    SEQPOINT_ASSIGN_OR_RETURN(const float weight, lines.Weight());
    // The published files end with a line end: half a number looks like a whole one.
    if (!lines.ended()) {
      return lines.Error(
          "the last line has no line end: the file was cut off; add a line end if "
          "it is whole");
    }
    SEQPOINT_RETURN_IF_ERROR(Append(&matrix, &lines, target, source, weight));
  }
  return matrix;
}

absl::StatusOr<MatrixEntries> ReadMatrixMarket(std::string_view text, const std::string& file) {
  Lines lines(text, file);
  lines.Next();
  const std::string banner = absl::AsciiStrToLower(lines.line().substr(0, 200));
  const std::vector<absl::string_view> words =
      absl::StrSplit(banner, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
  if (words.size() != 5 || words[0] != "%%matrixmarket" || words[1] != "matrix" ||
      words[2] != "coordinate" ||
      (words[3] != "real" && words[3] != "integer" && words[3] != "pattern") ||
      (words[4] != "general" && words[4] != "symmetric")) {
    return lines.Error("the first line is ", Quoted(lines.line()),
                       ", not \"%%MatrixMarket matrix coordinate\" with real, integer or pattern, "
                       "and general or symmetric");
  }
  const bool pattern = words[3] == "pattern";
  const bool symmetric = words[4] == "symmetric";

  while (lines.Next() && (lines.blank() || absl::StartsWith(lines.line(), "%"))) {
  }
  MatrixEntries matrix{.file = file};
  SEQPOINT_ASSIGN_OR_RETURN(const int32_t rows,
                            lines.Index("the number of rows", kMostNeuronsOfLayer));
  SEQPOINT_ASSIGN_OR_RETURN(const int32_t columns,
                            lines.Index("the number of columns", kMostNeuronsOfLayer));
  SEQPOINT_ASSIGN_OR_RETURN(const int32_t nonzeros,
                            lines.Index("the number of nonzeros", INT32_MAX));
  SEQPOINT_RETURN_IF_ERROR(lines.NoMore());
  if (symmetric && rows != columns) {
    return lines.Error("a symmetric matrix has as many rows as columns, not ", rows, " and ",
                       columns);
  }
  matrix.rows = rows;
  matrix.columns = columns;

  int64_t read = 0;
  while (lines.Next()) {
    if (lines.blank()) continue;
    if (++read > nonzeros) {
      return lines.Error("there are more nonzeros than the ", nonzeros, " of the size line");
    }
    SEQPOINT_ASSIGN_OR_RETURN(const int32_t row, lines.Index("the row", rows));
    SEQPOINT_ASSIGN_OR_RETURN(const int32_t column, lines.Index("the column", columns));
    SEQPOINT_ASSIGN_OR_RETURN(const float weight, pattern ? 1.0F : lines.Weight());
    SEQPOINT_RETURN_IF_ERROR(Append(&matrix, &lines, row, column, weight));
    if (symmetric && row != column) {
      matrix.entries.push_back({column - 1, row - 1, weight, lines.number()});
    }
  }
  if (read < nonzeros) {
    return InvalidArgument(file, ": the file was cut off: it has ", read, " of the ", nonzeros,
                           " nonzeros that its size line says");
  }
  return matrix;
}

namespace {

std::string At(const MatrixEntries& matrix, const MatrixEntries::Entry& entry) {
  return entry.line == 0 ? matrix.file : absl::StrCat(matrix.file, ":", entry.line);
}

absl::StatusOr<Layer> MakeLayer(MatrixEntries* matrix) {
  std::vector<MatrixEntries::Entry>& entries = matrix->entries;
  for (const MatrixEntries::Entry& entry : entries) {
    if (entry.row >= matrix->rows || entry.column >= matrix->columns) {
      const bool row = entry.row >= matrix->rows;
      return InvalidArgument(At(*matrix, entry), ": ", row ? "neuron " : "input ",
                             (row ? entry.row : entry.column) + 1, " of a layer with ",
                             row ? matrix->rows : matrix->columns, row ? " neurons" : " inputs");
    }
  }
  const auto less = [](const auto& a, const auto& b) {
    return std::pair(a.row, a.column) < std::pair(b.row, b.column);
  };
  if (!std::is_sorted(entries.begin(), entries.end(), less)) {
    std::stable_sort(entries.begin(), entries.end(), less);
  }
  Layer layer{.rows = matrix->rows, .columns = matrix->columns};
  layer.row_begin.assign(static_cast<size_t>(matrix->rows) + 1, 0);
  layer.column.reserve(entries.size());
  layer.weight.reserve(entries.size());
  for (size_t k = 0; k < entries.size(); ++k) {
    const MatrixEntries::Entry& entry = entries[k];
    if (k > 0 && entries[k - 1].row == entry.row && entries[k - 1].column == entry.column) {
      return InvalidArgument(
          At(*matrix, entry), ": the nonzero from input ", entry.column + 1, " to neuron ",
          entry.row + 1, " is there twice",
          entry.line == 0 ? "" : absl::StrCat(", first in line ", entries[k - 1].line));
    }
    ++layer.row_begin[entry.row + 1];
    layer.column.push_back(entry.column);
    layer.weight.push_back(entry.weight);
  }
  for (int32_t row = 0; row < layer.rows; ++row) layer.row_begin[row + 1] += layer.row_begin[row];
  return layer;
}

}  // namespace

absl::StatusOr<Network> MakeNetwork(std::vector<MatrixEntries> matrices, int32_t neurons) {
  if (matrices.empty()) return absl::InvalidArgumentError("there is no matrix");
  std::vector<int32_t> largest(matrices.size() + 1, 0);  // of the numbers in the files that meet
  for (size_t l = 0; l < matrices.size(); ++l) {
    if (matrices[l].entries.empty()) {
      return InvalidArgument(matrices[l].file, ": the layer has no nonzeros");
    }
    for (const MatrixEntries::Entry& entry : matrices[l].entries) {
      largest[l] = std::max(largest[l], entry.column + 1);
      largest[l + 1] = std::max(largest[l + 1], entry.row + 1);
    }
  }
  for (size_t level = 0; level <= matrices.size(); ++level) {
    MatrixEntries* before = level == 0 ? nullptr : &matrices[level - 1];
    MatrixEntries* after = level == matrices.size() ? nullptr : &matrices[level];
    if (before != nullptr && after != nullptr && before->rows != 0 && after->columns != 0 &&
        before->rows != after->columns) {
      return InvalidArgument(
          after->file, ": the layer has ", after->columns,
          " inputs (columns), and the one before, ", before->file, ", has ", before->rows,
          " neurons (rows)",
          before->columns == after->rows ? "; are the files in the order of the layers?" : "");
    }
    int32_t size = before != nullptr ? before->rows : 0;
    if (size == 0 && after != nullptr) size = after->columns;
    if (size == 0) size = neurons != 0 ? neurons : largest[level];
    if (before != nullptr) before->rows = size;
    if (after != nullptr) after->columns = size;
  }
  Network network;
  for (MatrixEntries& matrix : matrices) {
    SEQPOINT_ASSIGN_OR_RETURN(Layer layer, MakeLayer(&matrix));
    network.layers.push_back(std::move(layer));
    std::vector<MatrixEntries::Entry>().swap(matrix.entries);
  }
  return network;
}

std::string WriteTsv(const Layer& layer) {
  std::string text;
  for (int32_t row = 0; row < layer.rows; ++row) {
    for (int64_t k = layer.row_begin[row]; k < layer.row_begin[row + 1]; ++k) {
      absl::StrAppendFormat(&text, "%d\t%d\t%.6e\n", layer.column[k] + 1, row + 1, layer.weight[k]);
    }
  }
  return text;
}

}  // namespace seqpoint::sparse
