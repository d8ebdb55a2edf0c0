#include "client/text/whatif_text.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/text/nothing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace seqpoint::client {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(WhatIfTextTest, WhatIsNotKnownIsNotShown) {
  v1::ReplayReply replay;
  EXPECT_NE(NothingIn(replay), "");
  v1::ReplayedIteration& iteration = *replay.add_iterations();
  iteration.set_measured_duration_ns(2e6);
  iteration.set_replayed_duration_ns(2e6);
  EXPECT_EQ(NothingIn(replay), "");
  EXPECT_THAT(ReplayText(replay, false),
              AllOf(StartsWith("ITERATION  MEASURED  REPLAYED   ERROR\n"),
                    HasSubstr("2 ms      2 ms  0.00 %\n"), Not(HasSubstr("CRITICAL"))));

  v1::WhatIfReply reply;
  reply.set_confidence(0.95);
  EXPECT_THAT(WhatIfListText(reply, false, 0), StartsWith("no preset would change anything"));
  v1::WhatIfAnswer& answer = *reply.add_answers();
  answer.set_name("steps");
  answer.add_steps()->set_text("remove copies");
  EXPECT_THAT(WhatIfText(reply, false, 0),
              AllOf(StartsWith("steps: it changes nothing in these traces\n"),
                    HasSubstr(" none  remove copies\n"), Not(HasSubstr("CHANGE"))));
  // What takes longer has a plus; a gain of nothing has no sign.
  answer.set_applies(true);
  answer.mutable_before()->set_value(4e9);
  answer.mutable_after()->set_value(5e9);
  answer.mutable_saved()->set_value(-1e9);
  reply.set_whole_run(true);
  reply.set_iterations(100);
  EXPECT_THAT(WhatIfText(reply, false, 0),
              StartsWith("steps: the run (100 iterations) would take 5 s instead of 4 s "
                         "(+25.0 %)\n"));
  answer.mutable_saved()->set_value(0);
  EXPECT_THAT(WhatIfText(reply, false, 0), HasSubstr("(0.0 %)\n"));
  // A small change has more digits, and a large table of lengths a short sentence.
  answer.mutable_saved()->set_value(1e6);
  answer.mutable_saved()->set_low(0.5e6);
  answer.mutable_saved()->set_high(1.5e6);
  for (int i = 0; i < 20; ++i) {
    v1::WhatIfSeqPoint& point = *answer.add_seqpoints();
    point.add_lengths(i);
    point.set_weight(5);
    point.set_before_duration_ns(1e6);
    point.set_after_duration_ns(i < 10 ? 1.1e6 : 0.9e6);
  }
  EXPECT_THAT(WhatIfText(reply, false, 0),
              AllOf(HasSubstr("(-0.03 %, 95 %: -0.04 to -0.01 %)"), HasSubstr("2, 3, 4, 5, ...)")));
}

TEST(WhatIfTextTest, WhatMattersIsSaidFirst) {
  v1::WhatIfReply reply;
  reply.set_confidence(0.95);
  reply.set_basis("2 traces");
  v1::WhatIfAnswer& answer = *reply.add_answers();
  answer.set_name("amp");
  answer.set_applies(true);
  answer.set_assumption("tensor cores");
  answer.set_source("Daydream");
  answer.set_guessed_bounds(3);
  answer.add_warnings("doubtful for < 0.1 % of the time of kernels: half");
  answer.add_warnings("doubtful for 0.1 % of the time of copies: small");
  answer.mutable_before()->set_value(4e9);
  answer.mutable_after()->set_value(3e9);
  answer.mutable_saved()->set_value(1e9);
  for (int i = 1; i <= 20; ++i) {
    v1::WhatIfSeqPoint& point = *answer.add_seqpoints();
    point.add_lengths(i);
    point.set_weight(i % 2 == 0 ? 100 : i);
    point.set_before_duration_ns(4e6);
    point.set_after_duration_ns(3e6);
    v1::WhatIfKernel& kernel = *answer.add_kernels();
    kernel.set_name(absl::StrCat("kernel_", i, "_", std::string(200, 'x'), "_end"));
    kernel.set_before_duration_ns(4e6);
    kernel.set_after_duration_ns(3e6);
  }
  for (auto* path : {answer.mutable_critical_path_before(), answer.mutable_critical_path_after()}) {
    path->Add()->set_category("kernels");
    (*path)[0].set_duration_ns(1e6);
  }
  answer.add_steps()->set_text("remove copies");
  std::string text = WhatIfText(reply, /*all=*/false, 0);
  size_t at = 0;
  for (const char* next :
       {"amp: the 0 iterations", "\nwarning: doubtful for < 0.1 % of the time of kernels: half\n",
        "\nwarning: doubtful for 0.1 % of the time of copies",
        "\nassumes (not in the interval): ", "\nbounds: ", "\nCRITICAL PATH", "\nLENGTH",
        "\n     2         100", "\n    17          17", "\n    20         100",
        "\n8 more lengths with less weight; --all shows them\n", "  KERNEL\n", "  kernel_10_",
        "\n10 more kernels whose time changes less; --all shows them\n", "  STEP\n",
        "\nsource: ", "\nbasis: "}) {
    const size_t found = text.find(next, at);
    ASSERT_NE(found, std::string::npos) << next << " is not behind the one before in\n" << text;
    at = found;
  }
  EXPECT_EQ(text.find("warning: ", text.find("0.1 % of the time of copies")), std::string::npos);
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(text, '\n'))) {
    EXPECT_LE(line.size(), 100u) << line;
  }
  text = WhatIfText(reply, /*all=*/true, 80);
  EXPECT_THAT(text, AllOf(HasSubstr("x_end\n"), HasSubstr("kernel_20_"), HasSubstr("\n     1   "),
                          Not(HasSubstr("more"))));
  // Nothing is known of the width of an interval.
  EXPECT_THAT(
      WhatIfListText(reply, false, 0),
      AllOf(HasSubstr("-25.0 %  -  "), HasSubstr("doubtful for < 0.1 % of the time of kernels\n"),
            Not(HasSubstr("exact"))));
  EXPECT_THAT(WhatIfListText(reply, false, 0), HasSubstr("SO FAR THEN"));
  reply.mutable_job()->set_state(v1::JOB_STATE_ENDED);
  EXPECT_THAT(WhatIfText(reply, false, 0), HasSubstr("amp: the 0 iterations that ran"));
  EXPECT_THAT(WhatIfListText(reply, false, 0),
              AllOf(HasSubstr("RUN THEN"), Not(HasSubstr("SO FAR"))));
}

TEST(WhatIfTextTest, WhatDoesNotApplySaysWhy) {
  v1::WhatIfReply reply;
  v1::WhatIfAnswer& answer = *reply.add_answers();
  answer.set_name("gist");
  answer.set_title("compressed activations");
  answer.add_warnings("there is nothing in the trace: no relu");
  EXPECT_THAT(WhatIfText(reply, false, 0),
              AllOf(StartsWith("gist does not apply: there is nothing in the trace: no relu\n"),
                    Not(HasSubstr("warning:"))));
  EXPECT_THAT(WhatIfListText(reply, /*all=*/true, 0),
              AllOf(HasSubstr("  there is nothing in the trace: no relu\n"),
                    Not(HasSubstr("balance-lengths"))));
  // Changes of ranks are asked for apart.
  reply.set_ranks(4);
  EXPECT_THAT(WhatIfListText(reply, false, 0),
              AllOf(HasSubstr("its 4 ranks can be changed by --apply: without-slow-rank,rank=R, "),
                    HasSubstr("ranks,count=N")));
  answer.clear_warnings();
  EXPECT_THAT(WhatIfText(reply, false, 0),
              StartsWith("compressed activations (gist): it changes nothing in these traces\n"));
}

}  // namespace
}  // namespace seqpoint::client
