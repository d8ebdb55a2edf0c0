#include "daemon/iterations/launch_log.h"

#include <bit>

namespace seqpoint::iterations {
namespace {

// The tables must not grow with a job that keeps making new symbols (a new NVTX name per step).
constexpr uint32_t kMaxSymbols = 1 << 18;

// Both numbers are often small and close together: the pairs (8, 0) and (7, 65) must not collide.
uint64_t Mix(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9e3779b97f4a7c15ull ^ std::rotl(b * 0xc2b2ae3d27d4eb4full, 31);
  x = (x ^ x >> 32) * 0xff51afd7ed558ccdull;
  return x ^ x >> 29;
}

bool IsNvtx(abi::Op op) {
  return op == abi::Op::kNvtxPush || op == abi::Op::kNvtxPop || op == abi::Op::kNvtxMark;
}

}  // namespace

void NameTable::Add(uint32_t id, std::string_view text) {
  if (id == 0 || id >= kMaxNames) return;
  if (id >= names_.size()) names_.resize(id + 1);
  Name& name = names_[id];
  name.text = std::string(text.substr(0, kMaxTextBytes));
  name.hash = abi::NameHash(text.data(), text.size());
  name.shape = abi::ShapeOfName(text.data(), text.size());
}

abi::MatchEvent ToMatchEvent(const abi::CallRecord& call, const NameTable& names) {
  const Name& name = names.Get(call.name_id);
  abi::MatchEvent event{};
  event.op = call.op;
  event.has_payload = (call.flags & abi::kCallHasPayload) != 0;
  event.grid_x = call.grid_x;
  event.grid_y = call.grid_y;
  event.grid_z = call.grid_z;
  event.name_hash = name.hash;
  event.bytes = call.bytes;
  event.stream = call.stream;
  if (IsNvtx(static_cast<abi::Op>(call.op))) {
    event.name_hash = name.shape.hash;
    event.digit_runs = static_cast<uint8_t>(name.shape.digit_runs);
    event.digits = name.shape.digits;
  }
  return event;
}

uint32_t CountLaunches(const std::vector<abi::CallRecord>& calls, uint32_t begin, uint32_t end) {
  uint32_t launches = 0;
  for (uint32_t i = begin; i < end; ++i) launches += IsLaunch(calls[i].op);
  return launches;
}

void LaunchLog::Add(const abi::CallRecord& call) {
  if (!calls_.empty() && call.sequence != calls_.back().sequence + 1) {
    holes_ +=
        call.sequence > calls_.back().sequence + 1 ? call.sequence - calls_.back().sequence - 1 : 1;
    after_hole_ = calls_.size();
    last_launch_ = 0;
  }
  const auto op = static_cast<abi::Op>(call.op);
  uint64_t name = 0;
  if (op == abi::Op::kLaunch || op == abi::Op::kGraphLaunch) {
    name = call.name_id;
  } else if (IsNvtx(op)) {
    name = names_.Get(call.name_id).shape.hash;
  }
  uint64_t size = 0;
  bool sized = true;
  switch (op) {
    case abi::Op::kLaunch:
      size = Mix(Mix(call.grid_x, static_cast<uint64_t>(call.grid_y) << 16 | call.grid_z),
                 static_cast<uint64_t>(call.block_x) << 32 |
                     static_cast<uint64_t>(call.block_y) << 16 | call.block_z);
      break;
    case abi::Op::kCopyH2D:
    case abi::Op::kCopyD2H:
    case abi::Op::kCopyD2D:
    case abi::Op::kCopyOther:
    case abi::Op::kMemset:
      size = call.bytes;
      break;
    case abi::Op::kGraphLaunch:
      break;
    default:
      sized = false;
      break;
  }
  const uint64_t kind_key = Mix(call.op, name);
  Symbols symbols{};
  const uint32_t kind = Intern(Alphabet::kKind, kind_key);
  symbols.of[0] = kind;
  if (sized) {
    const uint64_t key = op == abi::Op::kGraphLaunch ? call.op : Mix(kind_key, size);
    symbols.of[1] = Intern(Alphabet::kSized, key);
    symbols.of[2] = Intern(Alphabet::kPair, static_cast<uint64_t>(last_launch_) << 32 | kind);
  }
  if (IsLaunch(call.op)) {
    if (kind != last_launch_) symbols.of[3] = last_launch_;
    last_launch_ = kind;
    counts_[3] = counts_[0];
  }
  calls_.push_back(call);
  symbols_.push_back(symbols);
  if (calls_.size() >= max_calls_) DropOlderHalf();
}

uint32_t LaunchLog::Intern(Alphabet alphabet, uint64_t key) {
  auto& ids = ids_[static_cast<size_t>(alphabet)];
  uint32_t& count = counts_[static_cast<size_t>(alphabet)];
  if (count >= kMaxSymbols) {
    auto it = ids.find(key);
    return it == ids.end() ? 0 : it->second;
  }
  auto [it, inserted] = ids.try_emplace(key, count);
  if (inserted) ++count;
  return it->second;
}

uint32_t LaunchLog::SymbolOf(Alphabet alphabet, abi::Op op) const {
  const auto& ids = ids_[static_cast<size_t>(alphabet)];
  const auto key = static_cast<uint64_t>(op);
  const auto it = ids.find(alphabet == Alphabet::kSized ? key : Mix(key, 0));
  return it == ids.end() ? 0 : it->second;
}

void LaunchLog::DropOlderHalf() {
  const size_t half = calls_.size() / 2;
  calls_.erase(calls_.begin(), calls_.begin() + static_cast<ptrdiff_t>(half));
  symbols_.erase(symbols_.begin(), symbols_.begin() + static_cast<ptrdiff_t>(half));
  after_hole_ = after_hole_ > half ? after_hole_ - half : 0;
  dropped_ += half;
}

void LaunchLog::ClearCalls() {
  LaunchLog empty(max_calls_);
  empty.names_ = std::move(names_);
  *this = std::move(empty);
}

}  // namespace seqpoint::iterations
