#include "daemon/store/iteration_block.h"

#include <algorithm>
#include <utility>

#include "daemon/base/status_macros.h"
#include "daemon/base/zstd_frame.h"

namespace seqpoint {
namespace {

constexpr uint64_t kBlockVersion = 1;
// Far above what a thousand numbers with their incarnations take.
constexpr size_t kMostBlockBytes = 64 << 20;

// Calls `field` with each field of the row but its job and its rank, in the order of the columns.
template <int kColumn, typename Row, typename Field>
void WithColumn(Row& row, const Field& field) {
  if constexpr (kColumn == 0) field(row.number);
  if constexpr (kColumn == 1) field(row.incarnation);
  if constexpr (kColumn == 2) field(row.length_count);
  if constexpr (kColumn == 3) field(row.length[0]);
  if constexpr (kColumn == 4) field(row.length[1]);
  if constexpr (kColumn == 5) field(row.start_ns);
  if constexpr (kColumn == 6) field(row.duration_ns);
  if constexpr (kColumn == 7) field(row.rest_ns);
  if constexpr (kColumn == 8) field(row.level);
  if constexpr (kColumn == 9) field(row.flags);
  if constexpr (kColumn == 10) field(row.config_id);
  if constexpr (kColumn == 11) field(row.phase);
  if constexpr (kColumn == 12) field(row.boundary_ns);
}
constexpr int kColumns = 13;

void PutNumber(uint64_t value, std::string& to) {
  for (; value >= 128; value >>= 7) to.push_back(static_cast<char>(value | 128));
  to.push_back(static_cast<char>(value));
}

// False: the bytes end too early, or no number is so long.
bool TakeNumber(std::string_view& bytes, uint64_t* value) {
  *value = 0;
  for (int shift = 0; shift < 64 && !bytes.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes.front());
    bytes.remove_prefix(1);
    *value |= static_cast<uint64_t>(byte & 127) << shift;
    if (byte < 128) return true;
  }
  return false;
}

// Differences of both signs as small numbers. Differences wrap.
uint64_t ZigZag(uint64_t value) { return (value << 1) ^ (0 - (value >> 63)); }
uint64_t UnZigZag(uint64_t value) { return (value >> 1) ^ (0 - (value & 1)); }

template <int... kAll>
void PackColumns(const std::vector<IterationRow>& rows, std::string& to,
                 std::integer_sequence<int, kAll...>) {
  const auto pack = [&]<int kColumn>() {
    uint64_t before = 0;
    for (const IterationRow& row : rows) {
      WithColumn<kColumn>(row, [&](const auto& field) {
        const auto value = static_cast<uint64_t>(static_cast<int64_t>(field));
        PutNumber(ZigZag(value - before), to);
        before = value;
      });
    }
  };
  (pack.template operator()<kAll>(), ...);
}

template <int... kAll>
bool UnpackColumns(std::string_view& bytes, std::vector<IterationRow>& rows,
                   std::integer_sequence<int, kAll...>) {
  const auto unpack = [&]<int kColumn>() {
    uint64_t value = 0;
    for (IterationRow& row : rows) {
      uint64_t difference = 0;
      if (!TakeNumber(bytes, &difference)) return false;
      value += UnZigZag(difference);
      WithColumn<kColumn>(row, [&](auto& field) {
        field = static_cast<std::remove_reference_t<decltype(field)>>(value);
      });
    }
    return true;
  };
  return (unpack.template operator()<kAll>() && ...);
}

}  // namespace

int64_t BlockOf(int64_t number) {
  return number / kBlockNumbers - (number % kBlockNumbers < 0 ? 1 : 0);
}

std::string PackBlock(const std::vector<IterationRow>& rows) {
  std::string bytes;
  PutNumber(kBlockVersion, bytes);
  PutNumber(rows.size(), bytes);
  PackColumns(rows, bytes, std::make_integer_sequence<int, kColumns>());
  return ToZstdFrame(bytes);
}

absl::StatusOr<std::vector<IterationRow>> UnpackBlock(std::string_view frame, int64_t job_id,
                                                      int32_t rank) {
  SEQPOINT_ASSIGN_OR_RETURN(const std::string unpacked, FromZstdFrame(frame, kMostBlockBytes));
  std::string_view bytes = unpacked;
  uint64_t version = 0, count = 0;
  std::vector<IterationRow> rows;
  // Each field of a row takes a byte at least.
  if (TakeNumber(bytes, &version) && version == kBlockVersion && TakeNumber(bytes, &count) &&
      count <= bytes.size() / kColumns) {
    rows.resize(count, {.job_id = job_id, .rank = rank});
    const bool whole =
        UnpackColumns(bytes, rows, std::make_integer_sequence<int, kColumns>()) && bytes.empty();
    // A reader of the row goes through so many lengths.
    const bool fits = std::all_of(rows.begin(), rows.end(), [](const IterationRow& row) {
      return row.length_count >= 0 && row.length_count <= 2;
    });
    if (whole && fits) {
      return rows;
    }
  }
  return absl::DataLossError("a block of iterations is damaged");
}

}  // namespace seqpoint
