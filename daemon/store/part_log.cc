#include "daemon/store/part_log.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace seqpoint {

std::string PartLog::Piece(int index) const { return absl::StrFormat("%s+%06d", part_, index); }

void PartLog::Write(int64_t job_id, int32_t version, std::string_view added,
                    absl::FunctionRef<std::string()> whole, std::vector<StateRow>& rows) {
  const auto put = [&](std::string part, std::string bytes) {
    rows.push_back(
        {.job_id = job_id, .part = std::move(part), .version = version, .bytes = std::move(bytes)});
  };
  log_bytes_ += added.size();
  if (base_due_ || log_bytes_ > std::max(kLeastLogBytes, base_bytes_)) {
    std::string base = whole();
    base_bytes_ = base.size();
    put(part_, std::move(base));
    for (int i = 0; i < pieces_ + !last_.empty(); ++i) put(Piece(i), "");  // forgotten
    last_.clear();
    log_bytes_ = 0;
    pieces_ = 0;
    base_due_ = false;
    return;
  }
  if (added.empty()) return;
  last_ += added;
  put(Piece(pieces_), last_);
  if (last_.size() < kPieceBytes) return;
  last_.clear();
  ++pieces_;
}

PartLog::Content PartLog::Load(const std::vector<StateRow>& rows) {
  *this = PartLog(part_);
  Content content;
  const std::string prefix = absl::StrCat(part_, "+");
  for (const StateRow& row : rows) {
    if (row.part == part_) {
      content.base = row.bytes;
    } else if (absl::StartsWith(row.part, prefix)) {
      content.added += row.bytes;
      ++pieces_;
    }
  }
  base_bytes_ = content.base.size();
  log_bytes_ = content.added.size();
  return content;
}

}  // namespace seqpoint
