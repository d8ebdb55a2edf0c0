#include "daemon/rpc/access.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"
#include "seqpoint/v1/profiler.pb.h"
#include "tests/support/temp_folder.h"

namespace seqpoint::rpc {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kAsk = "/seqpoint.v1.Profiler/GetJob";
constexpr const char* kControl = "/seqpoint.v1.Profiler/Control";
constexpr const char* kReport = "/seqpoint.v1.Ingest/Connect";

// printf %s TOKEN | sha256sum
constexpr const char* kReaderToken = "0123456789abcdef0123456789abcdef";
constexpr const char* kReaderDigest =
    "3eb1bd439947eb762998e566ccc2e099c791118b2f40579cc4f7da2b5061b7f9";

CallingPeer Certificate(const std::vector<std::string>& names) {
  return {.has_certificate = true, .names = names};
}
CallingPeer Token(const std::string& token) { return {.authorization = "Bearer " + token}; }

class AccessTest : public testing::Test {
 protected:
  void Open() {
    auto access = Access::Open(options_);
    ASSERT_TRUE(access.ok()) << access.status();
    access_ = *std::move(access);
  }
  bool May(const char* method, const CallingPeer& peer) {
    return access_->Check(method, peer).ok();
  }
  std::string Refusal(const char* method, const CallingPeer& peer) {
    return std::string(access_->Check(method, peer).message());
  }
  void WriteTokens(const std::string& text) {
    options_.token_file = folder_.path() / "tokens";
    std::ofstream(options_.token_file) << text;
  }

  const TempFolder folder_;
  AccessOptions options_;
  std::unique_ptr<Access> access_;
};

TEST_F(AccessTest, WithoutNamesEveryCertificateMayDoEverything) {
  Open();
  EXPECT_FALSE(access_->has_names());
  for (const char* method : {kAsk, kControl, kReport}) {
    EXPECT_TRUE(May(method, Certificate({"anybody"})));
    EXPECT_TRUE(May(method, Certificate({})));
    EXPECT_FALSE(May(method, {}));
  }
}

TEST_F(AccessTest, ANameHasTheRolesOfItsLists) {
  options_ = {
      .node_names = "node-*.example", .read_names = "alice, *.readers", .control_names = "bob"};
  Open();
  EXPECT_TRUE(access_->has_names());
  EXPECT_TRUE(May(kReport, Certificate({"node-17.example"})));
  EXPECT_FALSE(May(kAsk, Certificate({"node-17.example"})));
  EXPECT_FALSE(May(kControl, Certificate({"node-17.example"})));
  EXPECT_TRUE(May(kAsk, Certificate({"alice"})));
  EXPECT_TRUE(May(kAsk, Certificate({"x", "dashboard.readers"})));
  EXPECT_FALSE(May(kControl, Certificate({"alice"})));
  EXPECT_FALSE(May(kReport, Certificate({"alice"})));
  EXPECT_TRUE(May(kAsk, Certificate({"bob"})));
  EXPECT_TRUE(May(kControl, Certificate({"bob"})));
  EXPECT_FALSE(May(kReport, Certificate({"bob"})));
  for (const char* stranger :
       {"bobby", "alic", "readers", "node-.example.org", "NODE-1.example", ""}) {
    EXPECT_FALSE(May(kAsk, Certificate({stranger}))) << stranger;
    EXPECT_FALSE(May(kReport, Certificate({stranger}))) << stranger;
  }
}

TEST_F(AccessTest, ARefusalSaysWhatIsNeededWhoAskedAndWhereToChangeIt) {
  options_ = {.read_names = "alice"};
  Open();
  EXPECT_EQ(Refusal(kControl, Certificate({"alice", "alice.example"})),
            "Control needs the role control, and the certificate of \"alice, alice.example\" has "
            "read; the daemon's settings say who has which (--control-names)");
  EXPECT_THAT(Refusal(kReport, Certificate({"alice"})), HasSubstr("--node-names"));
  EXPECT_THAT(Refusal(kAsk, Certificate({"eve\n"})), AllOf(HasSubstr("\"eve\\n\" has no role")));
  EXPECT_EQ(access_->Check(kAsk, {}).code(), absl::StatusCode::kUnauthenticated);
}

TEST_F(AccessTest, EachCallOfTheApiNeedsARoleAndUnknownOnesControl) {
  options_ = {.node_names = "node", .read_names = "reader", .control_names = "admin"};
  Open();
  const std::set<std::string> changes = {"PrepareJob", "DeleteJob", "UpdateJob",  "SetHorizon",
                                         "Control",    "ImportJob", "ImportTrace"};
  const auto* service = v1::GetDaemonRequest::descriptor()->file()->FindServiceByName("Profiler");
  ASSERT_NE(service, nullptr);
  for (int i = 0; i < service->method_count(); ++i) {
    const std::string& name = service->method(i)->name();
    const std::string method = absl::StrCat("/seqpoint.v1.Profiler/", name);
    EXPECT_EQ(May(method.c_str(), Certificate({"reader"})), changes.count(name) == 0) << name;
    EXPECT_TRUE(May(method.c_str(), Certificate({"admin"}))) << name;
    EXPECT_FALSE(May(method.c_str(), Certificate({"node"}))) << name;
  }
  for (const char* unknown : {"/seqpoint.v1.Profiler/New", "/other.Service/Call", "", "GetJob"}) {
    EXPECT_FALSE(May(unknown, Certificate({"reader"}))) << unknown;
  }
  for (const char* role : {"node", "reader", "admin"}) {
    EXPECT_TRUE(May("/grpc.health.v1.Health/Check", Certificate({role})));
  }
  EXPECT_FALSE(May("/grpc.health.v1.Health/Check", Certificate({"stranger"})));
}

TEST_F(AccessTest, ATokenHasTheRoleOfItsLine) {
  WriteTokens(absl::StrCat("# tokens\n\nread  dashboard ", kReaderDigest, "\n"));
  Open();
  EXPECT_TRUE(May(kAsk, Token(kReaderToken)));
  EXPECT_FALSE(May(kControl, Token(kReaderToken)));
  EXPECT_THAT(Refusal(kControl, Token(kReaderToken)),
              HasSubstr("the token of \"dashboard\" has read"));
  EXPECT_FALSE(May(kReport, Token(kReaderToken)));
  const std::string wrong = "0123456789abcdef0123456789abcdeX";
  const absl::Status refused = access_->Check(kAsk, Token(wrong));
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnauthenticated);
  EXPECT_THAT(std::string(refused.message()), Not(HasSubstr(wrong)));
  EXPECT_THAT(Refusal(kAsk, Token("short")), HasSubstr("at least 32 characters"));
  EXPECT_THAT(Refusal(kAsk, {.authorization = "Basic eA=="}), HasSubstr("Bearer TOKEN"));
}

TEST_F(AccessTest, ATokenFileIsReadAgainAndABrokenOneChangesNothing) {
  WriteTokens(absl::StrCat("read dashboard ", kReaderDigest, "\n"));
  Open();
  EXPECT_FALSE(May(kControl, Token(kReaderToken)));
  WriteTokens(absl::StrCat("control dashboard ", kReaderDigest, "\n# longer\n"));
  EXPECT_TRUE(May(kControl, Token(kReaderToken)));
  WriteTokens("nonsense\n");
  EXPECT_TRUE(May(kControl, Token(kReaderToken)));
  WriteTokens("# all are revoked\n");
  EXPECT_FALSE(May(kAsk, Token(kReaderToken)));
}

TEST_F(AccessTest, ALineThatIsNoTokenIsNamedAndNotRepeated) {
  for (const std::string& line :
       {std::string("read dashboard topsecret"), absl::StrCat("node n ", kReaderDigest),
        absl::StrCat("read ", kReaderDigest), absl::StrCat("read a ", kReaderDigest, " more")}) {
    WriteTokens("# first\n" + line + "\n");
    const absl::Status status = Access::Open(options_).status();
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("tokens:2: not `read NAME SHA256`"), Not(HasSubstr("topsecret"))));
  }
  options_.token_file = folder_.path() / "none";
  EXPECT_THAT(std::string(Access::Open(options_).status().message()), HasSubstr("none"));
}

}  // namespace
}  // namespace seqpoint::rpc
