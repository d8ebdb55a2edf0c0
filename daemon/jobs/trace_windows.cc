#include "daemon/jobs/trace_windows.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace seqpoint::jobs {
namespace {

constexpr size_t kMaxOpenRecords = 1 << 21;   // of an open window
constexpr size_t kMaxStrayRecords = 1 << 16;  // others: the event of their window may still come

// Every trace record has its start at the same offset.
int64_t StartOf(const abi::DataRecord& record) {
  return static_cast<int64_t>(record.kernel.start_ns);
}

void Append(const abi::DataRecord& record, std::string& to) {
  to.append(reinterpret_cast<const char*>(&record), sizeof(record));
}

}  // namespace

void TraceWindows::Close(uint64_t number, int64_t begin_ns, int64_t end_ns) {
  closed_.push_back({number, begin_ns, end_ns, readings_ + 2});
}

void TraceWindows::ForgetBefore(uint64_t number) {
  open_.erase(open_.begin(), open_.lower_bound(number));
}

void TraceWindows::SetTracing(bool tracing) {
  was_tracing_ |= tracing_;
  tracing_ = tracing;
}

std::optional<TraceWindows::Work> TraceWindows::Take(bool ended) {
  if (closed_.empty() || (!ended && !due())) return std::nullopt;
  const Window window = closed_.front();
  closed_.pop_front();
  open_.erase(window.number);
  Work work = {.number = window.number};
  std::vector<abi::DataRecord> rest;
  size_t rest_stored = 0;
  for (size_t i = 0; i < pending_.size(); ++i) {
    const abi::DataRecord& record = pending_[i];
    if (window.Has(StartOf(record))) {
      work.records.push_back(record);
      if (i >= stored_) Append(record, work.unstored);
    } else if (StartOf(record) > window.end_ns || tracing()) {
      rest.push_back(record);
      if (i < stored_) ++rest_stored;
    }
  }
  pending_ = std::move(rest);
  stored_ = rest_stored;
  return work;
}

std::map<uint64_t, std::string> TraceWindows::TakeUnstored(uint64_t next_number) {
  std::map<uint64_t, std::string> unstored;
  if (stored_ < pending_.size() && (tracing() || !open_.empty())) {
    // The window that is open: its event is not here yet.
    const auto first_open = std::find_if(open_.begin(), open_.end(), [&](uint64_t number) {
      return std::none_of(closed_.begin(), closed_.end(),
                          [&](const Window& window) { return window.number == number; });
    });
    std::optional<uint64_t> open;
    if (first_open != open_.end()) {
      open = *first_open;
    } else if (tracing()) {
      open = next_number;
    }
    const auto stray = std::stable_partition(
        pending_.begin() + static_cast<ptrdiff_t>(stored_), pending_.end(),
        [&](const abi::DataRecord& record) {
          const auto window = std::find_if(closed_.begin(), closed_.end(),
                                           [&](const Window& w) { return w.Has(StartOf(record)); });
          if (window == closed_.end() && !open) return false;
          Append(record, unstored[window != closed_.end() ? window->number : *open]);
          return true;
        });
    stored_ = static_cast<size_t>(stray - pending_.begin());
  }
  was_tracing_ = false;
  const size_t limit = open_.empty() ? kMaxStrayRecords : kMaxOpenRecords;
  if (pending_.size() > 2 * limit) {
    const size_t surplus = pending_.size() - limit;
    pending_.erase(pending_.begin(), pending_.begin() + static_cast<ptrdiff_t>(surplus));
    stored_ -= std::min(stored_, surplus);
  }
  return unstored;
}

void TraceWindows::Restore(std::string_view records) {
  const size_t count = records.size() / sizeof(abi::DataRecord);
  const size_t before = pending_.size();
  pending_.resize(before + count);
  std::memcpy(pending_.data() + before, records.data(), count * sizeof(abi::DataRecord));
  stored_ = pending_.size();
}

void TraceWindows::Save(TraceWindowsState* to) const {
  to->mutable_open()->Add(open_.begin(), open_.end());
  for (const Window& window : closed_) {
    WindowState& saved = *to->add_closed();
    saved.set_number(window.number);
    saved.set_begin_ns(window.begin_ns);
    saved.set_end_ns(window.end_ns);
  }
}

void TraceWindows::Load(const TraceWindowsState& from) {
  open_.insert(from.open().begin(), from.open().end());
  for (const WindowState& saved : from.closed()) {
    Close(saved.number(), saved.begin_ns(), saved.end_ns());
  }
}

}  // namespace seqpoint::jobs
