#include "daemon/traces/activity_csv.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "daemon/traces/json_text.h"
#include "proto/file_content.h"
#include "proto/utf8.h"

namespace seqpoint::traces {
namespace {

using trace::WorkKind;

constexpr size_t kMaxLineBytes = size_t{1} << 20;  // a longer one is cut

// "47.954MB".
uint64_t Bytes(std::string_view text) {
  const size_t unit = std::min(text.find_first_not_of("0123456789."), text.size());
  double value = 0;
  if (!absl::SimpleAtod(absl::string_view(text.data(), unit), &value)) return 0;
  const size_t power = std::string_view("BKMG").find(unit < text.size() ? text[unit] : 'B');
  if (power != std::string_view::npos) value = std::ldexp(value, static_cast<int>(10 * power));
  return value < 1e18 ? static_cast<uint64_t>(value) : 0;
}

// "(64 1 1)|(256 1 1)".
void Geometry(std::string_view text, trace::Work* work) {
  uint64_t numbers[6] = {};
  size_t n = 0;
  for (size_t i = 0; i < text.size() && n < 6; ++i) {
    if (!absl::ascii_isdigit(text[i])) continue;
    for (; i < text.size() && absl::ascii_isdigit(text[i]); ++i) {
      numbers[n] = std::min<uint64_t>(numbers[n] * 10 + static_cast<uint64_t>(text[i] - '0'),
                                      std::numeric_limits<uint32_t>::max());
    }
    ++n;
  }
  if (n < 6) return;
  for (int i = 0; i < 3; ++i) {
    work->grid[i] = static_cast<uint32_t>(numbers[i]);
    work->block[i] = static_cast<uint16_t>(
        std::min<uint64_t>(numbers[i + 3], std::numeric_limits<uint16_t>::max()));
  }
}

}  // namespace

void ActivityCsv::Add(std::string_view piece) {
  while (true) {
    const size_t end = piece.find('\n');
    if (end == std::string_view::npos) break;
    if (line_.empty()) {
      TakeLine(piece.substr(0, end), line_at_);
      line_at_ += end + 1;
    } else {
      line_ += piece.substr(0, end);
      TakeLine(line_, line_at_);
      line_at_ += line_.size() + 1;
      line_.clear();
    }
    piece.remove_prefix(end + 1);
  }
  line_ += piece;
  if (line_.size() > kMaxLineBytes) {
    TakeLine(line_, line_at_);
    line_at_ += line_.size();
    line_.clear();
  }
}

void ActivityCsv::Finish() {
  if (!line_.empty()) TakeLine(line_, line_at_);
}

void ActivityCsv::TakeLine(std::string_view line, uint64_t at) {
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  if (line.empty() || line == kActivityHeader || line.starts_with("#names")) return;
  if (line[0] == '#') {
    const size_t tab = line.find('\t');
    const auto id = ParseInteger(line.substr(1, tab - 1));
    if (tab != std::string_view::npos && id)
      names_[*id] = builder_->Name(ToUtf8(line.substr(tab + 1)));
    return;
  }
  if (TakeActivity(line)) return;
  trace::LeftOut& left_out = builder_->trace().left_out;
  if (left_out.damaged++ == 0) left_out.first_damaged_at = at;
}

bool ActivityCsv::TakeActivity(std::string_view line) {
  std::string_view fields[5];
  for (int i = 0; i < 5; ++i) {
    const size_t comma = i < 4 ? line.find(',') : line.size();
    if (comma == std::string_view::npos) return false;
    fields[i] = line.substr(0, comma);
    line.remove_prefix(std::min(comma + 1, line.size()));
  }
  const auto start_ns = ParseMicros(fields[0]);
  const auto duration_ns = ParseMicros(fields[1]);
  const auto stream = ParseInteger(fields[2]);
  const auto name_id = ParseInteger(fields[3]);
  if (!start_ns || !stream || !name_id) return false;
  const auto name = names_.find(*name_id);
  trace::Work work;
  work.start_ns = *start_ns;
  work.end_ns = *start_ns + std::max<int64_t>(duration_ns.value_or(0), 0);
  if (!duration_ns || *duration_ns < 0) ++builder_->trace().left_out.without_duration;
  work.name = name == names_.end() ? 0 : name->second;
  const std::string_view text = builder_->trace().names[work.name];
  work.stream = builder_->Stream(0, *stream);
  if (text.starts_with("[CUDA memcpy")) {
    work.kind = CopyKindOf(text);
    work.bytes = Bytes(fields[4]);
  } else if (text.starts_with("[CUDA memset")) {
    work.kind = WorkKind::kMemset;
    work.bytes = Bytes(fields[4]);
  } else {
    if (builder_->IsCollective(work.name)) work.kind = WorkKind::kCollective;
    Geometry(fields[4], &work);
  }
  builder_->AddWork(work);
  return true;
}

}  // namespace seqpoint::traces
