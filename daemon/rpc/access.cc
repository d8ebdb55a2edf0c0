#include "daemon/rpc/access.h"

#include <openssl/sha.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "daemon/base/file_stamp.h"
#include "daemon/base/limits.h"
#include "daemon/base/status_macros.h"
#include "daemon/rpc/text_file.h"
#include "spdlog/spdlog.h"

namespace seqpoint::rpc {
namespace {

constexpr absl::string_view kProfiler = "/seqpoint.v1.Profiler/";
constexpr absl::string_view kIngest = "/seqpoint.v1.Ingest/";
// These tell of the daemon itself and of no job: a peer of any role may ask for them.
constexpr absl::string_view kForEveryRole[] = {"/grpc.health.v1.Health/", "/grpc.reflection."};
// Every other call of the service changes something, or may one day.
constexpr absl::string_view kQuestions[] = {
    "GetDaemon",      "ListNodes",      "ListJobs",       "GetFleet", "GetJob",
    "WatchJob",       "GetSeqPoints",   "ListIterations", "Project",  "GetCounters",
    "GetKernels",     "GetRoofline",    "GetRanks",       "Compare",  "Export",
    "Analyze",        "GetPlaylist",    "Replay",         "WhatIf",   "ListPresets",
    "ListMetricSets", "ProjectPlaylist"};

constexpr Roles kNode = {.node = true};
constexpr Roles kRead = {.read = true};
constexpr Roles kControl = {.read = true, .control = true};
constexpr Roles kAll = {.node = true, .read = true, .control = true};

// 256 random bits have 43 characters in base64. A word that people remember is soon guessed.
constexpr size_t kLeastTokenBytes = 32;
constexpr size_t kMostTokenFileBytes = 1 << 20;

void Add(const Roles& more, Roles* roles) {
  roles->node |= more.node;
  roles->read |= more.read;
  roles->control |= more.control;
}

std::vector<std::string> ListOf(const std::string& text) {
  std::vector<std::string> patterns = absl::StrSplit(text, ',');
  for (std::string& pattern : patterns) absl::StripAsciiWhitespace(&pattern);
  std::erase(patterns, "");
  return patterns;
}

// "*" in the pattern is any text.
bool Matches(absl::string_view pattern, absl::string_view name) {
  std::vector<absl::string_view> pieces;
  for (const absl::string_view piece : absl::StrSplit(pattern, '*')) pieces.push_back(piece);
  if (pieces.size() == 1) return pattern == name;
  if (!absl::StartsWith(name, pieces.front())) return false;
  name.remove_prefix(pieces.front().size());
  for (size_t i = 1; i + 1 < pieces.size(); ++i) {
    const size_t at = name.find(pieces[i]);
    if (at == absl::string_view::npos) return false;
    name.remove_prefix(at + pieces[i].size());
  }
  return absl::EndsWith(name, pieces.back());
}

bool AnyMatches(const std::vector<std::string>& patterns, const std::vector<std::string>& names) {
  for (const std::string& pattern : patterns) {
    for (const std::string& name : names) {
      if (Matches(pattern, name)) return true;
    }
  }
  return false;
}

std::string Sha256(absl::string_view text) {
  std::string digest(SHA256_DIGEST_LENGTH, '\0');
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(),
         reinterpret_cast<unsigned char*>(digest.data()));
  return digest;
}

std::string WordsOf(const Roles& roles) {
  std::vector<std::string> words;
  if (roles.node) words.emplace_back("node");
  if (roles.read) words.emplace_back("read");
  if (roles.control) words.emplace_back("control");
  return words.empty() ? "no role" : absl::StrJoin(words, " and ");
}

// The role that the call needs; empty: any.
absl::string_view NeededFor(absl::string_view method) {
  if (absl::StartsWith(method, kIngest)) return "node";
  for (const absl::string_view service : kForEveryRole) {
    if (absl::StartsWith(method, service)) return "";
  }
  if (!absl::StartsWith(method, kProfiler)) return "control";
  const absl::string_view name = method.substr(kProfiler.size());
  return std::count(std::begin(kQuestions), std::end(kQuestions), name) > 0 ? "read" : "control";
}

bool Has(const Roles& roles, absl::string_view needed) {
  if (needed == "node") return roles.node;
  if (needed == "read") return roles.read;
  if (needed == "control") return roles.control;
  return roles.node || roles.read || roles.control;
}

}  // namespace

Access::Access(const AccessOptions& options)
    : node_names_(ListOf(options.node_names)),
      read_names_(ListOf(options.read_names)),
      control_names_(ListOf(options.control_names)),
      has_names_(!node_names_.empty() || !read_names_.empty() || !control_names_.empty()),
      token_file_(options.token_file) {}

absl::StatusOr<std::unique_ptr<Access>> Access::Open(const AccessOptions& options) {
  std::unique_ptr<Access> access(new Access(options));
  if (options.token_file.empty()) return access;
  absl::MutexLock lock(&access->mutex_);
  access->stamp_ = FileStamp(options.token_file);
  SEQPOINT_ASSIGN_OR_RETURN(access->tokens_, ReadTokens(options.token_file));
  return access;
}

absl::StatusOr<Access::Tokens> Access::ReadTokens(const std::string& path) {
  SEQPOINT_ASSIGN_OR_RETURN(const std::string text, ReadTextFile("tokens", path));
  if (text.size() > kMostTokenFileBytes) {
    return absl::InvalidArgumentError(absl::StrCat(path, " has ", text.size(), " bytes, more than ",
                                                   kMostTokenFileBytes,
                                                   ": it is no list of tokens"));
  }
  Tokens tokens;
  int number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    const std::vector<std::string> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    if (words.empty() || absl::StartsWith(words[0], "#")) continue;
    const bool known = words[0] == "read" || words[0] == "control";
    const bool hex = words.size() == 3 && words[2].size() == 2 * SHA256_DIGEST_LENGTH &&
                     std::all_of(words[2].begin(), words[2].end(), absl::ascii_isxdigit);
    if (!known || !hex) {  // the line may hold a token that should not be there: it is not repeated
      return absl::InvalidArgumentError(absl::StrCat(
          path, ":", number, ": not `read NAME SHA256` or `control NAME SHA256`, with ",
          "the 64 hexadecimal digits that sha256sum prints of the token"));
    }
    tokens[absl::HexStringToBytes(words[2])] = {ClipText(words[1], kMaxHostBytes),
                                                words[0] == "read" ? kRead : kControl};
  }
  return tokens;
}

Roles Access::OfCertificate(const std::vector<std::string>& names) const {
  if (!has_names_) return kAll;
  Roles roles;
  if (AnyMatches(node_names_, names)) Add(kNode, &roles);
  if (AnyMatches(read_names_, names)) Add(kRead, &roles);
  if (AnyMatches(control_names_, names)) Add(kControl, &roles);
  return roles;
}

absl::StatusOr<Access::Token> Access::OfToken(absl::string_view authorization) {
  absl::string_view token = authorization;
  if (token_file_.empty()) {
    return absl::UnauthenticatedError(
        "this daemon has no tokens (--tokens); show a certificate (--cert and --key)");
  }
  if (!absl::ConsumePrefix(&token, "Bearer ")) {
    return absl::UnauthenticatedError("the header authorization is not `Bearer TOKEN`");
  }
  if (token.size() < kLeastTokenBytes) {
    return absl::UnauthenticatedError(
        absl::StrCat("a token has at least ", kLeastTokenBytes,
                     " characters; make one with openssl rand -hex 32"));
  }
  absl::MutexLock lock(&mutex_);
  if (std::string stamp = FileStamp(token_file_); stamp != stamp_) {
    stamp_ = std::move(stamp);
    if (auto tokens = ReadTokens(token_file_); tokens.ok()) {
      tokens_ = *std::move(tokens);
      spdlog::info("{} is read again: {} tokens", token_file_, tokens_.size());
    } else {
      spdlog::error("{}; the tokens from before stay", std::string(tokens.status().message()));
    }
  }
  const auto found = tokens_.find(Sha256(token));
  if (found == tokens_.end()) {
    return absl::UnauthenticatedError(
        "the token is none of those that this daemon knows (--tokens)");
  }
  return found->second;
}

absl::StatusOr<Roles> Access::RolesOf(const CallingPeer& peer, std::string* who) {
  Roles roles;
  if (peer.has_certificate) {
    roles = OfCertificate(peer.names);
    *who = absl::StrCat("the certificate of \"",
                        ClipText(absl::CHexEscape(absl::StrJoin(peer.names, ", ")), kMaxHostBytes),
                        "\"");
  }
  if (!peer.authorization.empty()) {
    SEQPOINT_ASSIGN_OR_RETURN(const Token token, OfToken(peer.authorization));
    Add(token.roles, &roles);
    absl::StrAppend(who, who->empty() ? "" : ", or ", "the token of \"", token.name, "\"");
  }
  if (who->empty()) {
    return absl::UnauthenticatedError(absl::StrCat(
        "this daemon serves those who show a certificate (--cert and --key)",
        token_file_.empty() ? "" : " or a token (--token-file)", ", and you show none"));
  }
  return roles;
}

absl::Status Access::Decide(absl::string_view method, const CallingPeer& peer) {
  std::string who;
  SEQPOINT_ASSIGN_OR_RETURN(const Roles roles, RolesOf(peer, &who));
  const absl::string_view needed = NeededFor(method);
  if (Has(roles, needed)) return absl::OkStatus();
  const absl::string_view name = method.substr(method.rfind('/') + 1);
  return absl::PermissionDeniedError(
      absl::StrCat(ClipText(absl::CHexEscape(name), kMaxHostBytes), " needs ",
                   needed.empty() ? "a role" : absl::StrCat("the role ", needed), ", and ", who,
                   " has ", WordsOf(roles), "; the daemon's settings say who has which (--",
                   needed.empty() ? "read" : needed, "-names",
                   token_file_.empty() || needed == "node" ? "" : ", --tokens", ")"));
}

absl::Status Access::Check(absl::string_view method, const CallingPeer& peer) {
  absl::Status status = Decide(method, peer);
  if (status.ok()) return status;
  if (const auto left_out = refusals_.Admit()) {
    spdlog::warn("refused: {}{}", std::string(status.message()), LeftOut(*left_out));
  }
  return status;
}

}  // namespace seqpoint::rpc
