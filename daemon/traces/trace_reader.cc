#include "daemon/traces/trace_reader.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/traces/activity_csv.h"
#include "daemon/traces/chrome_events.h"
#include "daemon/traces/element_scanner.h"
#include "daemon/traces/gunzip.h"
#include "daemon/traces/trace_builder.h"
#include "proto/file_content.h"

namespace seqpoint::traces {
namespace {

constexpr std::string_view kGzip = "\x1f\x8b";
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

// The message for content of no known format.
std::string Foreign(std::string_view head) {
  if (head.starts_with("SQLite format 3")) {
    return "is an SQLite database (an export of Nsight Systems?); give a trace of torch.profiler: "
           "export_chrome_trace(\"trace.json\")";
  }
  if (head.starts_with("\x28\xB5\x2F\xFD") || head.starts_with("PK\x03\x04") ||
      head.starts_with("\xFD"
                       "7zXZ") ||
      head.starts_with("BZh")) {
    return "is packed in a way that is not read; unpack it, or pack it with gzip";
  }
  if (ContentOf(head) == ContentKind::kBinary) {
    return "is a binary file (a report of Nsight?), not a trace; give the JSON of torch.profiler: "
           "export_chrome_trace(\"trace.json\")";
  }
  return absl::StrCat("is not a trace: it begins with \"",
                      absl::Utf8SafeCHexEscape(std::string(head.substr(0, 24))),
                      "\"; give the JSON of torch.profiler (export_chrome_trace), of \"seqpoint "
                      "export --chrome\", or the table of docs/formats/traces.md");
}

}  // namespace

struct TraceReader::Content {
  explicit Content(bool operators) : events(&builder, operators) {}

  uint64_t packed_bytes = 0;
  uint64_t bytes = 0;  // unpacked
  std::string packed_head;
  std::optional<Gunzip> gunzip;
  bool packing_known = false;
  std::string head;  // until the format is known
  bool begun = false;
  TraceBuilder builder;
  ChromeEvents events;
  std::optional<ElementScanner> json;
  std::optional<ActivityCsv> csv;
};

TraceReader::TraceReader(TraceReaderOptions options)
    : options_(std::move(options)), content_(std::make_unique<Content>(options_.operators)) {}

TraceReader::~TraceReader() = default;

uint64_t TraceReader::text_bytes() const { return content_->bytes; }

absl::Status TraceReader::Refuse(std::string_view what) const {
  return absl::InvalidArgumentError(
      absl::StrCat(options_.name.empty() ? "the trace" : options_.name, " ", std::string(what)));
}

absl::Status TraceReader::Add(std::string_view piece) {
  Content& c = *content_;
  c.packed_bytes += piece.size();
  if (!c.packing_known) {
    c.packed_head += piece;
    if (c.packed_head.size() < kGzip.size()) return status_;
    c.packing_known = true;
    if (c.packed_head.starts_with(kGzip)) c.gunzip.emplace();
    piece = c.packed_head;
  }
  if (!status_.ok()) return status_;
  if (c.gunzip) {
    c.gunzip->Add(piece, [this](std::string_view unpacked) { AddUnpacked(unpacked); });
  } else {
    AddUnpacked(piece);
  }
  c.packed_head = {};
  return status_;
}

void TraceReader::AddUnpacked(std::string_view piece) {
  if (!status_.ok()) return;
  Content& c = *content_;
  c.bytes += piece.size();
  if (c.bytes > options_.max_bytes) {
    status_ = absl::ResourceExhaustedError(
        absl::StrCat(options_.name.empty() ? "the trace" : options_.name, " has more than ",
                     options_.max_bytes >> 20, " MiB of text; record fewer iterations"));
    return;
  }
  if (!c.begun) {
    c.head += piece;
    if (c.head.size() < kHeadBytes) return;
    Begin();
  } else if (c.json) {
    c.json->Add(piece);
  } else if (c.csv) {
    c.csv->Add(piece);
  }
}

// Chooses the format by the first bytes.
void TraceReader::Begin() {
  Content& c = *content_;
  c.begun = true;
  std::string_view text = c.head;
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  const ContentKind content = ContentOf(text);
  if (content == ContentKind::kJson) {
    c.json.emplace(&c.events);
    c.json->Add(c.head);
  } else if (content == ContentKind::kActivities) {
    c.csv.emplace(&c.builder);
    c.csv->Add(c.head);
  } else {
    status_ = Refuse(Foreign(text));
  }
  c.head = {};
}

absl::StatusOr<trace::Trace> TraceReader::Finish() {
  Content& c = *content_;
  if (status_.ok() && !c.packing_known && !c.packed_head.empty()) AddUnpacked(c.packed_head);
  const bool cut = c.gunzip && !c.gunzip->complete();
  if (status_.ok() && c.bytes == 0) {
    return Refuse(cut ? absl::StrCat("is only the first ", c.packed_bytes,
                                     " bytes of a gzip file, or a damaged one; copy it again")
                      : "is empty; was the profiler stopped before its file was written?");
  }
  if (status_.ok() && !c.begun) Begin();
  if (!status_.ok()) return status_;

  trace::LeftOut& left_out = c.builder.trace().left_out;
  std::string format = "GPU activities";
  if (c.json) {
    c.json->Finish();
    left_out.truncated = c.json->truncated();
    left_out.trailing_bytes = c.json->trailing_bytes();
    c.events.OnRest(c.json->rest());
    format = c.events.profiler();
  } else {
    c.csv->Finish();
  }
  if (c.gunzip) {
    left_out.truncated |= cut;
    left_out.trailing_bytes += c.gunzip->trailing_bytes();
  }
  const auto refuse = [&](const std::string& what, const std::string& way_out) {
    if (!left_out.truncated) return Refuse(absl::StrCat(what, "; ", way_out));
    return Refuse(absl::StrCat(what, " in the ", c.bytes,
                               " bytes before it is cut or damaged; give the whole file"));
  };
  if (c.json && c.events.events() == 0) {
    std::string what = "has no events of a trace";
    if (!c.json->events_seen()) {
      std::vector<std::string> keys = c.events.keys();
      keys.resize(std::min<size_t>(keys.size(), 5));
      for (std::string& key : keys) key.resize(std::min<size_t>(key.size(), 40));
      what = "is JSON without \"traceEvents\"";
      if (!keys.empty()) {
        absl::StrAppend(&what, " (it has ", absl::Utf8SafeCHexEscape(absl::StrJoin(keys, ", ")),
                        ")");
      }
    }
    return refuse(what, "give the file of torch.profiler's export_chrome_trace");
  }
  if (const std::string& why = c.events.only_to_view(); !why.empty()) {
    return Refuse(absl::StrCat("is only to be looked at: ", absl::Utf8SafeCHexEscape(why),
                               "; give the traces that it was made of"));
  }
  if (options_.operators && c.builder.spans().size() == 0) {
    return refuse("has no operators", "record with activities=[ProfilerActivity.CPU]");
  }
  if (c.builder.work_count() == 0 && !options_.operators) {
    return refuse("has no GPU work",
                  "record with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA] while the "
                  "GPU works");
  }
  if (c.builder.work_count() > 0 && c.builder.calls().size() > 0 && !c.builder.any_correlation()) {
    return refuse(absl::StrCat("has ", c.builder.work_count(),
                               " pieces of GPU work of which none names the call that launched it "
                               "(args.correlation)"),
                  "give the trace as the profiler wrote it");
  }
  trace::Trace result = c.builder.Take();
  result.source = options_.name.empty() ? format : absl::StrCat(format, ", ", options_.name);
  return result;
}

std::string LeftOutInWords(const trace::LeftOut& left_out) {
  std::vector<std::string> parts;
  if (left_out.truncated)
    parts.push_back("the file is cut or damaged: only what is before is read");
  if (left_out.damaged > 0) {
    parts.push_back(absl::StrCat(left_out.damaged, left_out.damaged == 1 ? " element" : " elements",
                                 " damaged and left out, the first at byte ",
                                 left_out.first_damaged_at));
  }
  if (left_out.mended > 0) {
    parts.push_back(absl::StrCat(left_out.mended, left_out.mended == 1 ? " element" : " elements",
                                 " mended (not valid JSON)"));
  }
  if (left_out.without_duration > 0) {
    parts.push_back(
        absl::StrCat(left_out.without_duration, " without a usable duration, taken as 0"));
  }
  if (left_out.trailing_bytes > 0) {
    parts.push_back(absl::StrCat(left_out.trailing_bytes, " bytes behind its end are not read"));
  }
  return absl::StrJoin(parts, "; ");
}

}  // namespace seqpoint::traces
