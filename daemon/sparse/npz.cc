#include "daemon/sparse/npz.h"

#include <string.h>
#include <zlib.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "daemon/base/status_macros.h"
#include "proto/invalid_argument.h"

namespace seqpoint::sparse {
namespace {

static_assert(std::endian::native == std::endian::little,
              "arrays are read as they lie in the file");

// Deflate packs at most 1032 to 1 (zlib's technical details); a larger claim is a lie.
constexpr uint64_t kMostUnpacked = 1032;
constexpr int64_t kMostElements = int64_t{1} << 40;

template <typename T>
T Load(absl::string_view bytes, size_t at) {
  T value;
  memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

struct Member {
  std::string name;  // without ".npy"
  std::string data;
};

absl::StatusOr<std::string> Inflate(absl::string_view packed, uint64_t size,
                                    const std::string& where) {
  if (size > (packed.size() + 1) * kMostUnpacked) {
    return InvalidArgument(where, ": ", packed.size(), " packed bytes cannot hold ", size);
  }
  std::string data(size, '\0');
  z_stream stream = {};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) return absl::InternalError("zlib does not start");
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  stream.avail_in = static_cast<uInt>(packed.size());
  stream.next_out = reinterpret_cast<Bytef*>(data.data());
  stream.avail_out = static_cast<uInt>(data.size());
  const int result = inflate(&stream, Z_FINISH);
  inflateEnd(&stream);
  if (result != Z_STREAM_END || stream.avail_out != 0) {
    return InvalidArgument(where, ": the packed data is damaged");
  }
  return data;
}

// The members of a ZIP archive, by its central directory.
absl::StatusOr<std::vector<Member>> ReadArchive(absl::string_view bytes, const std::string& file) {
  constexpr uint32_t kEndSignature = 0x06054b50;
  constexpr uint32_t kDirectorySignature = 0x02014b50;
  constexpr uint32_t kLocalSignature = 0x04034b50;
  constexpr size_t kEndBytes = 22;
  constexpr size_t kDirectoryBytes = 46;
  constexpr size_t kLocalBytes = 30;
  constexpr uint32_t kIn64BitField = 0xffffffff;
  const auto error = [&](const auto&... what) { return InvalidArgument(file, ": ", what...); };
  if (bytes.size() < kEndBytes) return error("no .npz archive, or cut off");
  size_t end = bytes.size() - kEndBytes;
  while (end > 0 && Load<uint32_t>(bytes, end) != kEndSignature) --end;
  if (Load<uint32_t>(bytes, end) != kEndSignature) return error("no .npz archive, or cut off");

  const int count = Load<uint16_t>(bytes, end + 10);
  size_t at = Load<uint32_t>(bytes, end + 16);
  std::vector<Member> members;
  for (int i = 0; i < count; ++i) {
    if (at > end || end - at < kDirectoryBytes ||
        Load<uint32_t>(bytes, at) != kDirectorySignature) {
      return error("the directory of the archive is damaged");
    }
    const int method = Load<uint16_t>(bytes, at + 10);
    const uint32_t packed = Load<uint32_t>(bytes, at + 20);
    const uint32_t size = Load<uint32_t>(bytes, at + 24);
    const size_t name_bytes = Load<uint16_t>(bytes, at + 28);
    const size_t local = Load<uint32_t>(bytes, at + 42);
    if (end - at - kDirectoryBytes < name_bytes) {
      return error("the directory of the archive is damaged");
    }
    std::string name(bytes.substr(at + kDirectoryBytes, name_bytes));
    at += kDirectoryBytes + name_bytes + Load<uint16_t>(bytes, at + 30) +
          Load<uint16_t>(bytes, at + 32);
    const std::string where = absl::StrCat(file, ", array \"", absl::CHexEscape(name), "\"");
    if (packed == kIn64BitField || size == kIn64BitField || local == kIn64BitField) {
      return InvalidArgument(where,
                             ": arrays of 4 GiB and more are not read; give each layer a file");
    }
    if (local > end || end - local < kLocalBytes ||
        Load<uint32_t>(bytes, local) != kLocalSignature) {
      return InvalidArgument(where, ": the archive is damaged");
    }
    const size_t begin =
        local + kLocalBytes + Load<uint16_t>(bytes, local + 26) + Load<uint16_t>(bytes, local + 28);
    if (begin > end || end - begin < packed) {
      return InvalidArgument(where, ": the archive is cut off");
    }
    const absl::string_view content = bytes.substr(begin, packed);
    if (!absl::EndsWith(name, ".npy")) continue;
    name.resize(name.size() - 4);
    if (method == 0) {
      members.push_back({std::move(name), std::string(content)});
    } else if (method == 8) {
      SEQPOINT_ASSIGN_OR_RETURN(std::string data, Inflate(content, size, where));
      members.push_back({std::move(name), std::move(data)});
    } else {
      return InvalidArgument(where, ": packed by method ", method, "; numpy.savez packs by 0 or 8");
    }
  }
  return members;
}

struct Array {
  std::string where;  // for messages
  std::string type;   // as "<f4"
  bool by_columns = false;
  std::vector<int64_t> shape;
  int64_t elements = 1;
  absl::string_view data;

  int64_t bytes_each() const {
    int bytes = 0;
    return type.size() > 2 && absl::SimpleAtoi(type.substr(2), &bytes) ? bytes : 0;
  }
};

// The text behind 'key': in the header, which is a Python dictionary of literals.
absl::string_view ValueOf(absl::string_view header, absl::string_view key) {
  const size_t at = header.find(absl::StrCat("'", key, "':"));
  if (at == absl::string_view::npos) return {};
  absl::string_view value = header.substr(at + key.size() + 3);
  value.remove_prefix(std::min(value.find_first_not_of(' '), value.size()));
  return value;
}

absl::StatusOr<Array> ParseArray(const Member& member, const std::string& file) {
  Array array{.where = absl::StrCat(file, ", array \"", absl::CHexEscape(member.name), "\"")};
  const auto error = [&](const auto&... what) {
    return InvalidArgument(array.where, ": ", what...);
  };
  const absl::string_view bytes = member.data;
  if (bytes.size() < 12 || !absl::StartsWith(bytes, "\x93NUMPY")) return error("no NumPy array");
  const bool first_version = bytes[6] == 1;
  const size_t begin = first_version ? 10 : 12;
  const size_t length = first_version ? Load<uint16_t>(bytes, 8) : Load<uint32_t>(bytes, 8);
  if (bytes.size() - begin < length) return error("the array is cut off");
  const absl::string_view header = bytes.substr(begin, length);

  absl::string_view type = ValueOf(header, "descr");
  if (!absl::ConsumePrefix(&type, "'")) {
    return error("arrays of records are not read; save the numbers alone");
  }
  array.type = std::string(type.substr(0, type.find('\'')));
  array.by_columns = absl::StartsWith(ValueOf(header, "fortran_order"), "True");
  absl::string_view shape = ValueOf(header, "shape");
  if (!absl::ConsumePrefix(&shape, "(") || shape.find(')') == absl::string_view::npos) {
    return error("the header of the array is damaged");
  }
  for (const absl::string_view word :
       absl::StrSplit(shape.substr(0, shape.find(')')), absl::ByAnyChar(", "), absl::SkipEmpty())) {
    int64_t extent = 0;
    if (!absl::SimpleAtoi(word, &extent) || extent < 0 ||
        (extent > 0 && array.elements > kMostElements / extent)) {
      return error("the shape of the array is damaged");
    }
    array.shape.push_back(extent);
    array.elements *= extent;
  }
  array.data = bytes.substr(begin + length);
  return array;
}

// The numbers of an array in the order of the file.
absl::StatusOr<std::vector<double>> Numbers(const Array& array) {
  const auto error = [&](const auto&... what) {
    return InvalidArgument(array.where, ": ", what...);
  };
  const int64_t each = array.bytes_each();
  if (each <= 0 || array.data.size() / each != static_cast<uint64_t>(array.elements)) {
    return error("the array has ", array.elements, " elements of type \"",
                 absl::CHexEscape(array.type), "\" in ", array.data.size(), " bytes");
  }
  std::vector<double> numbers(array.elements);
  const auto convert = [&]<typename T>(T) {
    for (size_t i = 0; i < numbers.size(); ++i) {
      numbers[i] = static_cast<double>(Load<T>(array.data, i * sizeof(T)));
    }
    return numbers;
  };
  const std::string& type = array.type;
  if (type == "<f4") return convert(float());
  if (type == "<f8") return convert(double());
  if (type == "<i4") return convert(int32_t());
  if (type == "<i8") return convert(int64_t());
  if (type == "<u4") return convert(uint32_t());
  if (type == "<u2") return convert(uint16_t());
  if (type == "<i2") return convert(int16_t());
  if (type == "|i1") return convert(int8_t());
  if (type == "|u1" || type == "|b1") return convert(uint8_t());
  if (type == "<f2") {
    for (size_t i = 0; i < numbers.size(); ++i) {
      const auto half = Load<uint16_t>(array.data, i * 2);
      const int exponent = half >> 10 & 31;
      const int fraction = half & 1023;
      const double size = exponent == 31  ? (fraction == 0 ? HUGE_VAL : NAN)
                          : exponent == 0 ? std::ldexp(fraction, -24)
                                          : std::ldexp(fraction + 1024, exponent - 25);
      numbers[i] = (half & 0x8000) != 0 ? -size : size;
    }
    return numbers;
  }
  return error("elements are of type \"", absl::CHexEscape(type),
               "\"; floating point or whole numbers in little-endian order are read");
}

absl::Status AddEntry(const std::string& where, double row, double column, double weight,
                      MatrixEntries* matrix) {
  if (!(row >= 0 && row < matrix->rows && column >= 0 && column < matrix->columns)) {
    return InvalidArgument(where, ": a nonzero in row ", row, ", column ", column,
                           " of a matrix of ", matrix->rows, " x ", matrix->columns,
                           " (from 0 on)");
  }
  if (!std::isfinite(static_cast<float>(weight))) {
    return InvalidArgument(where, ": the weight in row ", row, ", column ", column, " is ", weight,
                           ", not finite");
  }
  matrix->entries.push_back(
      {static_cast<int32_t>(row), static_cast<int32_t>(column), static_cast<float>(weight)});
  return absl::OkStatus();
}

absl::Status SetShape(const std::string& where, double rows, double columns,
                      MatrixEntries* matrix) {
  if (!(rows >= 1 && rows <= kMostNeuronsOfLayer && columns >= 1 &&
        columns <= kMostNeuronsOfLayer)) {
    return InvalidArgument(where, ": a layer of ", rows, " x ", columns, "; it has 1 to ",
                           kMostNeuronsOfLayer, " rows and columns");
  }
  matrix->rows = static_cast<int32_t>(rows);
  matrix->columns = static_cast<int32_t>(columns);
  return absl::OkStatus();
}

using Arrays = std::map<std::string, Array>;

absl::StatusOr<MatrixEntries> ReadScipy(const Arrays& arrays, const std::string& file) {
  const auto get = [&](const std::string& name) -> absl::StatusOr<std::vector<double>> {
    const auto found = arrays.find(name);
    if (found == arrays.end()) {
      return InvalidArgument(file, ": no array \"", name, "\", which scipy.sparse.save_npz writes");
    }
    return Numbers(found->second);
  };
  SEQPOINT_ASSIGN_OR_RETURN(const auto shape, get("shape"));
  SEQPOINT_ASSIGN_OR_RETURN(const auto data, get("data"));
  MatrixEntries matrix{.file = file};
  if (shape.size() != 2) return InvalidArgument(file, ": no matrix");
  SEQPOINT_RETURN_IF_ERROR(SetShape(file, shape[0], shape[1], &matrix));

  std::vector<double> major;  // of each nonzero
  absl::StatusOr<std::vector<double>> minor;
  bool by_columns = false;
  if (arrays.contains("indptr")) {
    const auto format = arrays.find("format");
    by_columns = format != arrays.end() && absl::StartsWith(format->second.data, "csc");
    if (format != arrays.end() && !by_columns && !absl::StartsWith(format->second.data, "csr")) {
      return InvalidArgument(file, ": the matrix is in format \"",
                             absl::CHexEscape(format->second.data.substr(0, 3)),
                             "\"; csr, csc and coo are read");
    }
    minor = get("indices");
    SEQPOINT_ASSIGN_OR_RETURN(const auto begin, get("indptr"));
    const int32_t lines = by_columns ? matrix.columns : matrix.rows;
    if (begin.size() != static_cast<size_t>(lines) + 1 || begin[0] != 0 ||
        begin.back() != static_cast<double>(data.size())) {
      return InvalidArgument(file, ": \"indptr\" does not fit \"shape\" and \"data\"");
    }
    for (int32_t line = 0; line < lines; ++line) {
      if (!(begin[line + 1] >= begin[line] && begin[line + 1] <= begin.back())) {
        return InvalidArgument(file, ": \"indptr\" falls behind its entry ", line);
      }
      major.resize(static_cast<size_t>(begin[line + 1]), line);
    }
  } else {
    SEQPOINT_ASSIGN_OR_RETURN(const auto row, get("row"));
    major = row;
    minor = get("col");
  }
  if (!minor.ok()) return minor.status();
  if (major.size() != data.size() || minor->size() != data.size()) {
    return InvalidArgument(file, ": \"data\" has ", data.size(), " entries, and there are ",
                           major.size(), " and ", minor->size(), " indices");
  }
  for (size_t i = 0; i < data.size(); ++i) {
    const double row = by_columns ? (*minor)[i] : major[i];
    const double column = by_columns ? major[i] : (*minor)[i];
    SEQPOINT_RETURN_IF_ERROR(AddEntry(file, row, column, data[i], &matrix));
  }
  return matrix;
}

absl::StatusOr<MatrixEntries> ReadDense(const Array& array) {
  MatrixEntries matrix{.file = array.where};
  SEQPOINT_ASSIGN_OR_RETURN(const auto numbers, Numbers(array));
  SEQPOINT_RETURN_IF_ERROR(SetShape(array.where, static_cast<double>(array.shape[0]),
                                    static_cast<double>(array.shape[1]), &matrix));
  const int64_t lines = array.by_columns ? matrix.rows : matrix.columns;
  for (int64_t i = 0; i < array.elements; ++i) {
    const double weight = numbers[i];
    if (weight == 0) continue;
    const auto outer = static_cast<double>(i / lines);
    const auto inner = static_cast<double>(i % lines);
    SEQPOINT_RETURN_IF_ERROR(AddEntry(array.where, array.by_columns ? inner : outer,
                                      array.by_columns ? outer : inner, weight, &matrix));
  }
  return matrix;
}

}  // namespace

absl::StatusOr<std::vector<MatrixEntries>> ReadNpz(std::string_view bytes,
                                                   const std::string& file) {
  SEQPOINT_ASSIGN_OR_RETURN(const std::vector<Member> members,
                            ReadArchive(absl::string_view(bytes.data(), bytes.size()), file));
  Arrays by_name;
  std::vector<Array> in_order;
  for (const Member& member : members) {
    SEQPOINT_ASSIGN_OR_RETURN(Array array, ParseArray(member, file));
    in_order.push_back(array);
    by_name[member.name] = std::move(array);
  }
  std::vector<MatrixEntries> matrices;
  if (by_name.contains("shape") && by_name.contains("data")) {
    SEQPOINT_ASSIGN_OR_RETURN(MatrixEntries matrix, ReadScipy(by_name, file));
    matrices.push_back(std::move(matrix));
    return matrices;
  }
  for (const Array& array : in_order) {
    if (array.shape.size() < 2) continue;
    if (array.shape.size() > 2) {
      return InvalidArgument(array.where, ": ", array.shape.size(),
                             " dimensions; a layer is a matrix. Save fully connected layers alone");
    }
    SEQPOINT_ASSIGN_OR_RETURN(MatrixEntries matrix, ReadDense(array));
    matrices.push_back(std::move(matrix));
  }
  if (matrices.empty()) {
    return InvalidArgument(file, ": no two-dimensional array in it");
  }
  return matrices;
}

}  // namespace seqpoint::sparse
