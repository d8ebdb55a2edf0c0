#include "injection/cupti/ownership.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "injection/cupti/stand_down_requests.h"
#include "tests/support/test_ring.h"

namespace seqpoint::inject {
namespace {

using Share = CuptiOwnership::Share;

// A CUPTI of functions that do nothing but answer, and note the order in which they are called.
struct FakeCupti {
  CUptiResult subscribe = CUPTI_SUCCESS;
  CUptiResult enable = CUPTI_SUCCESS;
  std::vector<std::string> log;
};
FakeCupti g_fake;

CUptiResult CUPTIAPI Subscribe(CUpti_SubscriberHandle* handle, CUpti_CallbackFunc, void*) {
  g_fake.log.push_back("subscribe");
  *handle = reinterpret_cast<CUpti_SubscriberHandle>(&g_fake);
  return g_fake.subscribe;
}
CUptiResult CUPTIAPI Unsubscribe(CUpti_SubscriberHandle) {
  g_fake.log.push_back("unsubscribe");
  return CUPTI_SUCCESS;
}
CUptiResult CUPTIAPI EnableCallback(uint32_t, CUpti_SubscriberHandle, CUpti_CallbackDomain,
                                    CUpti_CallbackId) {
  return g_fake.enable;
}
CUptiResult CUPTIAPI GetTimestamp(uint64_t* now) {
  *now = RealNs();
  return CUPTI_SUCCESS;
}
void OnCall(void*, CUpti_CallbackDomain, CUpti_CallbackId, const void*) {}

// Notes what it is told, and may refuse to leave.
class FakeUser final : public CuptiUser {
 public:
  explicit FakeUser(SpinLock* lock) : lock_(lock) {}
  void Begin() override { g_fake.log.push_back("begin"); }
  void Renew() override { g_fake.log.push_back("renew"); }
  void OnChange(bool hole) override {
    EXPECT_FALSE(lock_->TryLock(1)) << "it is called under the lock";
    g_fake.log.push_back(hole ? "change after a hole" : "change");
  }
  void Switch(bool) override {
    g_fake.log.push_back("switch");
    if (on_switch) on_switch();
  }
  bool Leave() override {
    g_fake.log.push_back("leave");
    return leaves;
  }
  uint64_t Abandon() override { return 77; }
  void ReportAbandoned() override { g_fake.log.push_back("abandoned"); }
  uint64_t Iteration() override { return 5; }

  bool leaves = true;
  std::function<void()> on_switch;

 private:
  SpinLock* const lock_;
};

class OwnershipTest : public testing::Test {
 protected:
  OwnershipTest() {
    g_fake = {};
    ForgetStandDownInChild();
    cupti_.Subscribe = Subscribe;
    cupti_.Unsubscribe = Unsubscribe;
    cupti_.EnableCallback = EnableCallback;
    cupti_.GetTimestamp = GetTimestamp;
    cupti_.version = 130200;
    clock_.Decide();
    ownership_.SetLibrary(CuptiOwnership::Library::kFound);
  }
  std::vector<std::string> TakeLog() { return std::exchange(g_fake.log, {}); }
  std::vector<abi::StandDownEvent> StandDowns() {
    return ring_.Events<abi::StandDownEvent>(abi::EventType::kStandDown);
  }

  TestRing ring_;
  Names names_{&ring_.writer};
  WakeWord helper_;
  SpinLock lock_;
  Cupti cupti_ = {};
  CudaDriver driver_ = {};
  Clock clock_{&cupti_, &ring_.writer};
  struct NoListener final : CallRecordListener {
  } listener_;
  LaunchNames launch_names_;
  Features features_{&ring_.writer};
  CallWatch call_watch_{&cupti_, &features_};
  Contexts contexts_{&cupti_, &driver_, &ring_.writer};
  Captures captures_{&clock_, &helper_};
  Callbacks callbacks_{&cupti_, &features_, &call_watch_, &clock_, &names_, OnCall};
  ActivityDecoder decoder_{&names_, &launch_names_, &clock_, &ring_.writer, &listener_};
  Activity activity_{{&cupti_, &driver_, &contexts_, &captures_, &clock_, &call_watch_, &decoder_,
                      &ring_.writer, &features_}};
  SwitchToken token_{&lock_, &features_};
  FakeUser user_{&lock_};
  CuptiOwnership ownership_{{&callbacks_, &activity_, &clock_, &contexts_, &captures_, &token_,
                             &features_, &user_, &ring_.writer}};
};

using Log = std::vector<std::string>;

TEST_F(OwnershipTest, WhatIsFreeIsTakenOnce) {
  EXPECT_TRUE(ownership_.Take(false));
  EXPECT_EQ(ownership_.share(), Share::kAll);
  EXPECT_EQ(TakeLog(), (Log{"subscribe", "begin", "change after a hole", "switch"}));
  EXPECT_TRUE(ownership_.Take(false));
  EXPECT_EQ(TakeLog(), Log{});
}

TEST_F(OwnershipTest, WithoutALibraryNothingIsAsked) {
  ownership_.SetLibrary(CuptiOwnership::Library::kMissing);
  EXPECT_TRUE(ownership_.Take(false));
  EXPECT_EQ(ownership_.share(), Share::kNothing);
  EXPECT_EQ(TakeLog(), Log{});
}

TEST_F(OwnershipTest, AToolThatWasThereFirstKeepsItUntilItLeaves) {
  g_fake.subscribe = CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  EXPECT_TRUE(ownership_.Take(false));
  EXPECT_EQ(ownership_.share(), Share::kNothing);
  EXPECT_TRUE(ownership_.may_be_had());
  EXPECT_EQ(TakeLog(), Log{"subscribe"});
  g_fake.subscribe = CUPTI_SUCCESS;
  EXPECT_TRUE(ownership_.Take(false));
  EXPECT_EQ(ownership_.share(), Share::kAll);
  // Nobody saw what happened before.
  EXPECT_EQ(TakeLog(), (Log{"subscribe", "begin", "renew", "change after a hole", "switch"}));
}

TEST_F(OwnershipTest, AnyOtherRefusalIsForGood) {
  g_fake.subscribe = CUPTI_ERROR_NOT_INITIALIZED;
  EXPECT_TRUE(ownership_.Take(false));
  EXPECT_FALSE(ownership_.may_be_had());
}

TEST_F(OwnershipTest, StandingDownEndsWhatIsOpenBeforeTheSubscription) {
  ownership_.Take(false);
  TakeLog();
  AskToStandDown("torch.profiler");
  EXPECT_TRUE(ownership_.Release(true));
  EXPECT_EQ(ownership_.share(), Share::kNothing);
  EXPECT_EQ(TakeLog(), (Log{"leave", "change", "switch", "unsubscribe"}));
  ASSERT_EQ(StandDowns().size(), 1u);
  EXPECT_EQ(StandDowns()[0].end_ns, 0u);
  EXPECT_EQ(StandDowns()[0].iteration, 5u);
  // While it is wanted, nothing is taken.
  EXPECT_TRUE(ownership_.Take(true));
  EXPECT_EQ(ownership_.share(), Share::kNothing);
  EXPECT_EQ(TakeLog(), Log{});

  EXPECT_TRUE(TakeBackStandDown());
  EXPECT_TRUE(ownership_.Take(true));
  EXPECT_EQ(ownership_.share(), Share::kAll);
  EXPECT_EQ(TakeLog(), (Log{"subscribe", "renew", "change after a hole", "switch"}));
  ASSERT_EQ(StandDowns().size(), 2u);
  EXPECT_EQ(StandDowns()[1].begin_ns, StandDowns()[0].begin_ns);
  EXPECT_NE(StandDowns()[1].end_ns, 0u);
}

TEST_F(OwnershipTest, WhatCannotBeEndedNowKeepsCupti) {
  ownership_.Take(false);
  AskToStandDown("torch.profiler");
  user_.leaves = false;
  EXPECT_FALSE(ownership_.Release(true));
  EXPECT_EQ(ownership_.share(), Share::kAll);
  EXPECT_TRUE(StandDowns().empty());
  user_.leaves = true;
  EXPECT_TRUE(ownership_.Release(true));
}

TEST_F(OwnershipTest, AToolThatKeepsItsSubscriptionLeavesItsRecords) {
  ownership_.Take(false);
  AskToStandDown("torch.profiler");
  ownership_.Release(true);
  TakeBackStandDown();
  g_fake.subscribe = CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  EXPECT_TRUE(ownership_.Take(true));
  EXPECT_EQ(ownership_.share(), Share::kRecords);
  EXPECT_TRUE(ownership_.wants_more());
  EXPECT_TRUE(captures_.MayBeUnderWay());
  g_fake.subscribe = CUPTI_SUCCESS;
  EXPECT_TRUE(ownership_.Take(true));
  EXPECT_EQ(ownership_.share(), Share::kAll);
}

// The program may have begun to capture in a stand-down, and may still be at it.
TEST_F(OwnershipTest, ACaptureMayHaveBegunUnseen) {
  ownership_.Take(false);
  EXPECT_FALSE(captures_.MayBeUnderWay());
  AskToStandDown("torch.profiler");
  ownership_.Release(true);
  TakeBackStandDown();
  user_.on_switch = [this] { EXPECT_TRUE(captures_.MayBeUnderWay()); };
  ownership_.Take(true);
  EXPECT_EQ(TakeLog().back(), "switch");
  EXPECT_TRUE(captures_.MayBeUnderWay());
}

TEST_F(OwnershipTest, WithRecordsAloneCapturesOfAProgramThatCapturesAreNotSeen) {
  captures_.SetUnseen(true);
  EXPECT_FALSE(captures_.MayBeUnderWay());
  captures_.OnBegin();
  captures_.OnEnd();
  EXPECT_TRUE(captures_.MayBeUnderWay());
}

TEST_F(OwnershipTest, OneThreadAtATimeSwitches) {
  ownership_.Take(false);
  const Switching other(&token_);
  ASSERT_TRUE(other);
  AskToStandDown("torch.profiler");
  EXPECT_FALSE(ownership_.Release(true));
  EXPECT_FALSE(ownership_.Take(true));
  EXPECT_FALSE(ownership_.AskDriver([] { ADD_FAILURE(); }));
}

TEST_F(OwnershipTest, TheDriverIsAskedWhileCuptiIsOursOnly) {
  EXPECT_FALSE(ownership_.AskDriver([] { ADD_FAILURE(); }));
  ownership_.Take(false);
  bool asked = false;
  EXPECT_TRUE(ownership_.AskDriver([&asked] { asked = true; }));
  EXPECT_TRUE(asked);
}

TEST_F(OwnershipTest, AnEndBehindOurBackIsAStandDownSinceTheLastBoundary) {
  ownership_.Take(false);
  EXPECT_TRUE(ownership_.StillOurs());
  TakeLog();
  g_fake.enable = CUPTI_ERROR_INVALID_PARAMETER;
  EXPECT_FALSE(ownership_.StillOurs());
  EXPECT_EQ(ownership_.share(), Share::kNothing);
  EXPECT_EQ(TakeLog(), (Log{"change after a hole", "abandoned"}));
  ASSERT_EQ(StandDowns().size(), 1u);
  EXPECT_EQ(StandDowns()[0].begin_ns, 77u);
  g_fake.enable = CUPTI_SUCCESS;
  EXPECT_TRUE(ownership_.Take(false));
  EXPECT_EQ(ownership_.share(), Share::kAll);
  ASSERT_EQ(StandDowns().size(), 2u);
  EXPECT_NE(StandDowns()[1].end_ns, 0u);
}

}  // namespace
}  // namespace seqpoint::inject
