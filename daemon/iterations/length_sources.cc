#include "daemon/iterations/length_sources.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "daemon/iterations/kernel_names.h"

namespace seqpoint::iterations {
namespace {

using abi::CallRecord;
using abi::LengthField;
using abi::LengthFold;
using abi::LengthSource;
using abi::Op;

constexpr uint32_t kMaxCopies = 8;
constexpr const char* kLagWords[] = {"", " of the iteration before", " two iterations before"};
constexpr uint32_t kMaxCounted = 6;

// Proposes sources by looking at a few iterations.
class Proposer {
 public:
  Proposer(const LaunchLog& stream, const std::vector<MicroBatch>& micro_batches, bool accumulates,
           LengthSources* found)
      : stream_(stream), micro_batches_(micro_batches), accumulates_(accumulates), found_(found) {}

  void Propose() {
    Marks();
    Framework();
    Nvtx();
    const uint8_t likely = LikelyLag();
    for (int lag = 0; lag < 3; ++lag) Copies(static_cast<uint8_t>((likely + lag) % 3));
    Grids();
    Counts();
  }

 private:
  void Add(LengthSource source, std::string words) {
    source.fold = static_cast<uint8_t>(accumulates_ ? LengthFold::kSum : LengthFold::kFirst);
    if (accumulates_) absl::StrAppend(&words, ", summed over micro-batches");
    found_->sources.push_back(source);
    found_->words.push_back(std::move(words));
  }
  static LengthSource Source(Op op, LengthField field) {
    LengthSource source{};
    source.pattern.op = static_cast<uint8_t>(op);
    source.field = static_cast<uint8_t>(field);
    return source;
  }
  // The last few micro-batches.
  absl::Span<const MicroBatch> Studied() const {
    const size_t n = std::min<size_t>(micro_batches_.size(), 8);
    return absl::Span<const MicroBatch>(micro_batches_).subspan(micro_batches_.size() - n);
  }
  uint32_t FewestCalls(Op op) const {
    uint32_t fewest = UINT32_MAX;
    for (const MicroBatch& m : Studied()) {
      uint32_t n = 0;
      for (uint32_t i = m.begin; i < m.end; ++i) {
        n += stream_.calls()[i].op == static_cast<uint8_t>(op);
      }
      fewest = std::min(fewest, n);
    }
    return fewest == UINT32_MAX ? 0 : fewest;
  }

  void Marks() {
    if (FewestCalls(Op::kMark) > 0) {
      Add(Source(Op::kMark, LengthField::kBytes), "length told by the framework mark");
    }
  }

  // Features that each of the studied micro-batches has.
  void Framework() {
    std::vector<uint32_t> names;
    for (const MicroBatch& m : Studied()) {
      std::vector<uint32_t> told;
      for (uint32_t i = m.begin; i < m.end; ++i) {
        const CallRecord& call = stream_.calls()[i];
        if (call.op == static_cast<uint8_t>(Op::kFeature)) told.push_back(call.name_id);
      }
      if (&m == &Studied()[0]) names = told;
      std::erase_if(names, [&](uint32_t name) {
        return std::find(told.begin(), told.end(), name) == told.end();
      });
    }
    for (uint32_t id : names) {
      LengthSource source = Source(Op::kFeature, LengthField::kNamePayload);
      source.pattern.match = abi::kMatchName;
      source.pattern.name_hash = stream_.names().Get(id).hash;
      Add(source, stream_.names().Get(id).text);
    }
  }

  void Nvtx() {
    for (Op op : {Op::kNvtxPush, Op::kNvtxMark}) {
      std::vector<uint64_t> seen;
      if (micro_batches_.empty()) return;
      const MicroBatch& last = micro_batches_.back();
      for (uint32_t i = last.begin; i < last.end; ++i) {
        const CallRecord& call = stream_.calls()[i];
        if (call.op != static_cast<uint8_t>(op)) continue;
        const Name& name = stream_.names().Get(call.name_id);
        if (std::find(seen.begin(), seen.end(), name.shape.hash) != seen.end()) continue;
        seen.push_back(name.shape.hash);
        if (seen.size() > 16) break;
        LengthSource source = Source(op, LengthField::kNamePayload);
        source.pattern.match = abi::kMatchName;
        source.pattern.name_hash = name.shape.hash;
        if ((call.flags & abi::kCallHasPayload) != 0) {
          Add(source, absl::StrCat("payload of NVTX \"", name.text, "\""));
        }
        source.field = static_cast<uint8_t>(LengthField::kNameDigits);
        for (uint32_t run = 0; run < name.shape.digit_runs; ++run) {
          source.digit_run = static_cast<uint8_t>(run);
          Add(source, absl::StrCat(Ordinal(run + 1), " number in NVTX \"", name.text, "\""));
        }
      }
    }
  }

  // Copies after the step belong to the micro-batch before, as the matcher counts. Copies on a
  // stream of their own are the next batch's.
  uint8_t LikelyLag() const {
    const MicroBatch& last = micro_batches_.back();
    uint64_t compute = 0;
    for (uint32_t i = last.begin; i < last.end; ++i) {
      if (IsLaunch(stream_.calls()[i].op)) compute = stream_.calls()[i].stream;
    }
    for (uint32_t i = last.begin; i < last.end; ++i) {
      const CallRecord& call = stream_.calls()[i];
      if (call.op != static_cast<uint8_t>(Op::kCopyH2D)) continue;
      const bool next_batch = call.stream != compute && i != last.begin;
      return static_cast<uint8_t>((i > last.step ? 1 : 0) + (next_batch ? 1 : 0));
    }
    return 0;
  }

  void Copies(uint8_t lag) {
    const uint32_t copies = std::min(FewestCalls(Op::kCopyH2D), kMaxCopies);
    for (uint32_t i = 0; i < copies; ++i) {
      LengthSource source = Source(Op::kCopyH2D, LengthField::kBytes);
      source.ordinal = i;
      source.lag = lag;
      const std::string which = copies == 1 ? "the" : absl::StrCat("the ", Ordinal(i + 1));
      Add(source, absl::StrCat("bytes of ", which, " host-to-device copy", kLagWords[lag]));
    }
  }

  void Grids() {
    const uint32_t launches = std::min(FewestCalls(Op::kLaunch), kReadLaunches);
    for (uint32_t i = 0; i < launches; ++i) {
      constexpr LengthField kFields[] = {LengthField::kGridX, LengthField::kGridY,
                                         LengthField::kGridZ};
      constexpr const char* kNames[] = {"x", "y", "z"};
      for (size_t f = 0; f < 3; ++f) {
        LengthSource source = Source(Op::kLaunch, kFields[f]);
        source.ordinal = i;
        Add(source, absl::StrCat("grid ", kNames[f], " of the ", Ordinal(i + 1), " launch"));
      }
    }
  }

  // Kernels whose number of launches varies. It is known only when the iteration ends, so these are
  // the last resort.
  void Counts() {
    absl::flat_hash_map<uint32_t, std::pair<uint32_t, uint32_t>> range;  // name id -> least, most
    bool first = true;
    for (const MicroBatch& m : Studied()) {
      absl::flat_hash_map<uint32_t, uint32_t> counts;
      for (uint32_t i = m.begin; i < m.step; ++i) {
        const CallRecord& call = stream_.calls()[i];
        if (call.op == static_cast<uint8_t>(Op::kLaunch)) ++counts[call.name_id];
      }
      if (first) {
        for (const auto& [id, n] : counts) range[id] = {n, n};
      }
      first = false;
      for (auto& [id, r] : range) {
        const auto it = counts.find(id);
        const uint32_t n = it == counts.end() ? 0 : it->second;
        r = {std::min(r.first, n), std::max(r.second, n)};
      }
    }
    std::vector<std::pair<uint32_t, uint32_t>> varying;  // most, name id
    for (const auto& [id, r] : range) {
      if (r.first > 0 && r.second > r.first) varying.push_back({r.second, id});
    }
    std::sort(varying.rbegin(), varying.rend());
    if (varying.size() > kMaxCounted) varying.resize(kMaxCounted);
    for (const auto& [most, id] : varying) {
      LengthSource source = Source(Op::kLaunch, LengthField::kCallCount);
      source.pattern.match = abi::kMatchName;
      source.pattern.name_hash = stream_.names().Get(id).hash;
      Add(source, absl::StrCat("launches of ", ShortName(stream_.names().Get(id).text)));
    }
    if (FewestCalls(Op::kLaunch) > 0) {
      Add(Source(Op::kLaunch, LengthField::kCallCount), "number of launches");
    }
  }

  const LaunchLog& stream_;
  const std::vector<MicroBatch>& micro_batches_;
  bool accumulates_;
  LengthSources* found_;
};

}  // namespace

LengthSources ProposeLengthSources(const LaunchLog& log,
                                   const std::vector<MicroBatch>& micro_batches, bool accumulates) {
  LengthSources found;
  Proposer(log, micro_batches, accumulates, &found).Propose();
  return found;
}

}  // namespace seqpoint::iterations
