#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "daemon/whatif/language/evaluate.h"
#include "daemon/whatif/language/parser.h"
#include "daemon/whatif/language/printer.h"
#include "daemon/whatif/language/units.h"

namespace seqpoint::whatif {
namespace {

using testing::HasSubstr;

std::string Error(const std::string& text) {
  const absl::StatusOr<Request> request = ParseRequest(text);
  EXPECT_FALSE(request.ok()) << text;
  return std::string(request.status().message());
}

TEST(RequestTest, EveryStepReadsAsItIsWritten) {
  const std::string text =
      "scale kernels where name ~ \"gemm|conv\" and name !~ \"wgrad\" by 1/$compute\n"
      "scale work where bound = memory and duration > 10us by 0.5\n"
      "set collectives where in = \"forward \\\"x\\\"\" to 12us\n"
      "remove gaps where in ~ \"DataLoader\"\n"
      "insert \"all_reduce\" of $bytes/50 after kernels where name ~ \"wgrad\"\n"
      "insert \"mask\" of 3us before kernels where stream = 7\n"
      "fuse kernels where in ~ \"Optimizer.step\" into \"fused_adam\"\n"
      "capture launches\n"
      "scale copies where bytes > 1MB and thread != \"main\" by 2\n"
      "set copies where phase = forward to bytes/12GB/s\n"
      "scale kernels where counter \"sm__throughput.avg\" > 0.6 and name ~ $kernels by "
      "duration/2us\n"
      "insert collective \"all_reduce\" of allreduce_ring(bytes, $workers, 10GB/s, 5us) into "
      "\"network\" after kernels where phase = backward sharing $bytes in 25MB needed by kernels "
      "where phase = optimizer\n"
      "insert copy \"offload\" of bytes/$bandwidth into \"d2h\" with kernels sharing 3GB\n"
      "insert \"push\" of parameter_server(1MB, 2, $rate, 0) into \"network\" after kernels needed "
      "by "
      "kernels where phase = forward in reverse\n"
      "fuse chains of kernels where phase != unknown into \"fused\" of longest\n"
      "reschedule collectives by need\n"
      "reschedule work where name = \"push\" first\n"
      "scale collectives by allreduce_two_level(1GB, 16, 8, 100GB/s, 10GB/s, "
      "0)/allreduce_tree(1GB, 16, 10GB/s, 0)\n";
  const absl::StatusOr<Request> request = ParseRequest(text);
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->steps.size(), 18u);
  EXPECT_EQ(FormatRequest(*request), text);
}

TEST(RequestTest, StepsOnOneLineCommentsAndUnits) {
  const absl::StatusOr<Request> request = ParseRequest(
      "# faster loading\n\n  remove gaps where in ~ \"a;b#c\"; set launches to 2.5us  # cheap\n"
      "scale copies where bytes > 2MiB by 1/4");
  ASSERT_TRUE(request.ok()) << request.status();
  ASSERT_EQ(request->steps.size(), 3u);
  EXPECT_EQ(request->steps[0].selection.conditions[0].text, "a;b#c");
  EXPECT_EQ(*Evaluate(request->steps[1].amount, {}), 2500);
  EXPECT_EQ(request->steps[2].selection.conditions[0].number, 2 << 20);
  EXPECT_EQ(*Evaluate(request->steps[2].amount, {}), 0.25);
}

TEST(RequestTest, WhatIsWrongIsNamedWithWhatThereIs) {
  EXPECT_THAT(Error(""), HasSubstr("needs a step"));
  EXPECT_THAT(Error("\n\nspeed kernels by 2"), HasSubstr("line 3: \"speed\" where one of scale"));
  EXPECT_THAT(Error("scale kernel by 2"), HasSubstr("\"kernel\" where one of work, kernels"));
  EXPECT_THAT(Error("scale kernels"), HasSubstr("it ends where \"by FACTOR\""));
  EXPECT_THAT(Error("scale kernels by fast"), HasSubstr("\"fast\" is not a number"));
  EXPECT_THAT(Error("scale kernels by -2"), HasSubstr("-2"));
  EXPECT_THAT(Error("scale kernels by 2us"), HasSubstr("has a unit where none belongs"));
  EXPECT_THAT(Error("set kernels to 5"), HasSubstr("needs one of the units ns, us, ms, s"));
  EXPECT_THAT(Error("scale kernels where name ~ \"(\" by 2"), HasSubstr("missing"));
  EXPECT_THAT(Error("scale kernels where name > \"a\" by 2"), HasSubstr("name is text"));
  EXPECT_THAT(Error("scale kernels where duration ~ \"a\" by 2"), HasSubstr("duration is no text"));
  EXPECT_THAT(Error("scale kernels where bound = speed by 2"),
              HasSubstr("compute, memory, latency"));
  EXPECT_THAT(Error("scale kernels where name ~ \"a by 2"), HasSubstr("closing \""));
  EXPECT_THAT(Error("scale kernels by 2 3"), HasSubstr("\"3\" where the end of the step"));
  EXPECT_THAT(Error("insert mask of 2us after kernels"), HasSubstr("a name in quotation marks"));
  EXPECT_THAT(Error("scale kernels where phase = middle by 2"),
              HasSubstr("\"middle\" where one of forward, backward, optimizer"));
  EXPECT_THAT(Error("scale kernels where phase > forward by 2"), HasSubstr("it has no order"));
  EXPECT_THAT(Error("scale kernels where counter \"x\" ~ 2 by 2"), HasSubstr("counter is no text"));
  EXPECT_THAT(Error("set copies to bytes"), HasSubstr("\"bytes\" is not a time"));
  EXPECT_THAT(Error("set copies to bytes/2"),
              HasSubstr("\"bytes/2\" is not a time such as 10us; "));
  EXPECT_THAT(Error("set copies to bytes*2GB/s"), HasSubstr("\"bytes*2GB/s\" is not a time"));
  EXPECT_THAT(Error("set copies to 2GB/h"), HasSubstr("\"h\""));
  EXPECT_THAT(Error("set work to allreduce_ring(bytes, 2us, 1GB/s, 0)"),
              HasSubstr("\"2us\" has a unit where none belongs"));
  EXPECT_THAT(Error("set work to allreduce_ring(bytes, 2, 1GB/s)"), HasSubstr("\")\" where \",\""));
  EXPECT_THAT(Error("set work to allreduce_star(bytes)"), HasSubstr("allreduce_star"));
  EXPECT_THAT(Error("insert \"x\" of 2us into \"q\" before kernels"),
              HasSubstr("\"before\" where \"after\" or \"with\""));
  EXPECT_THAT(Error("insert \"x\" of 2us into \"q\" after kernels sharing 5"),
              HasSubstr("needs one of the units B, KB"));
  EXPECT_THAT(Error("reschedule kernels by size"), HasSubstr("\"first\" or \"by need\""));
}

TEST(RequestTest, ParametersNeedValuesThatMakeSense) {
  const Amount amount = ParseRequest("scale kernels by 1/$compute")->steps[0].amount;
  EXPECT_EQ(*Evaluate(amount, {{"compute", 4}}), 0.25);
  EXPECT_THAT(std::string(Evaluate(amount, {}).status().message()), HasSubstr("$compute"));
  EXPECT_FALSE(Evaluate(amount, {{"compute", 0}}).ok());
  EXPECT_FALSE(Evaluate(amount, {{"compute", -1}}).ok());
}

TEST(RequestTest, ModelsOfCommunication) {
  const auto us = [](const std::string& amount) {
    const absl::StatusOr<Request> request = ParseRequest("set work to " + amount);
    EXPECT_TRUE(request.ok()) << request.status();
    const absl::StatusOr<double> ns =
        Evaluate(request->steps[0].amount, {{"n", 4}, {"slow", 1}}, {3e6, 7000});
    EXPECT_TRUE(ns.ok()) << ns.status();
    return *ns / 1000;
  };
  // 8 MB over 4: each moves 3/4 of it twice, in 6 messages.
  EXPECT_NEAR(us("allreduce_ring(8MB, $n, 2GB/s, 10us)"), 6000 + 60, 1e-6);
  EXPECT_NEAR(us("allreduce_ring(8MB, 1, 2GB/s, 10us)"), 0, 1e-6);
  EXPECT_NEAR(us("allreduce_tree(8MB, $n, 2GB/s, 10us)"), 8000 + 40, 1e-6);
  EXPECT_NEAR(us("parameter_server(8MB, $n, 2GB/s, 10us)"), 6000 + 20, 1e-6);
  // Inside: 2 * 1/2 * 8 MB at 8 GB/s; between: half of it, 2 * 1/2 * 4 MB at 1 GB/s.
  EXPECT_NEAR(us("allreduce_two_level(8MB, $n, 2, 8GB/s, $slow, 10us)"), 1000 + 20 + 4000 + 20,
              1e-6);
  EXPECT_NEAR(us("bytes/2GB/s"), 1500, 1e-6);
  EXPECT_NEAR(us("bytes/500MB/s"), 6000, 1e-6);
  EXPECT_NEAR(us("duration*3"), 21, 1e-6);
}

TEST(RequestTest, WhateverIsWrittenIsReadAgain) {
  std::mt19937_64 random(1);
  const std::string letters = "aZ \\\";#~=<>$\t.*(1";
  for (int round = 0; round < 2000; ++round) {
    Request request;
    for (uint64_t steps = 1 + random() % 3; steps > 0; --steps) {
      Step& step = request.steps.emplace_back();
      step.verb = static_cast<Verb>(random() % 7);
      step.selection.target = static_cast<Target>(random() % 8);
      for (uint64_t n = random() % 3; n > 0; --n) {
        Condition& condition = step.selection.conditions.emplace_back();
        condition.field = static_cast<Field>(random() % 9);
        condition.compare = random() % 2 != 0 ? Compare::kEqual : Compare::kNotEqual;
        if (condition.field == Field::kBound) {
          condition.text = "memory";
        } else if (condition.field == Field::kPhase) {
          condition.text = "loading";
        } else if (condition.field <= Field::kThread) {
          for (uint64_t i = random() % 12; i > 0; --i) {
            condition.text += letters[random() % letters.size()];
          }
        } else {
          condition.number = static_cast<double>(random() % 1'000'000) / 7;
          if (condition.field == Field::kCounter) condition.text = "a\"b";
        }
      }
      const bool amount =
          step.verb == Verb::kScale || step.verb == Verb::kSet || step.verb == Verb::kInsert;
      if (amount) {
        step.amount.time = step.verb != Verb::kScale;
        if (step.amount.time) step.amount.first.unit = Unit::kTime;
        step.amount.first.number = static_cast<double>(random() % 100'000) / 3;
        if (random() % 2 != 0) {
          step.amount.operation = random() % 2 != 0 ? '*' : '/';
          step.amount.second.parameter = "p";
        }
      }
      if (step.verb == Verb::kInsert || step.verb == Verb::kFuse) step.name = "x\"\\";
      if (step.verb == Verb::kInsert) {
        step.made = static_cast<Made>(random() % 4);
        if (step.made == Made::kCall) {
          step.before = true;
        } else if (random() % 2 != 0) {
          step.before = random() % 2 != 0;
        } else {
          step.lane = "net";
          step.with = random() % 2 != 0;
          if (random() % 2 != 0) {
            Amount& shared = step.shared.emplace();
            shared.first = {.number = static_cast<double>(random() % 1'000'000) / 9,
                            .unit = Unit::kBytes};
            if (random() % 2 != 0) step.transfer.emplace().first.parameter = "piece";
          }
          if (random() % 2 != 0) {
            step.needed_by.emplace().target = Target::kCopies;
            step.reversed = random() % 2 != 0;
          }
          const double rate = static_cast<double>(1 + random() % 1'000'000) / 11e5;
          step.amount = {.first = {.function = "bytes"},
                         .operation = '/',
                         .second = {.number = rate, .unit = Unit::kRate},
                         .time = true};
        }
      }
      if (step.verb == Verb::kFuse) {
        step.chains = random() % 2 != 0;
        step.longest = random() % 2 != 0;
      }
      if (step.verb == Verb::kReschedule) step.first = random() % 2 != 0;
    }
    const std::string text = FormatRequest(request);
    const absl::StatusOr<Request> again = ParseRequest(text);
    ASSERT_TRUE(again.ok()) << text << again.status();
    EXPECT_EQ(*again, request) << text;
  }
}

TEST(RequestTest, NoiseIsRefusedNotRead) {
  std::mt19937_64 random(2);
  const std::vector<std::string> words = {
      "scale ",   "kernels ", "where ",     "name ",       "~ ",     "\"a\" ",        "by ",
      "2 ",       "\n",       "; ",         "\"",          "$x ",    "1e999 ",        "/ ",
      "\\",       "and ",     "insert ",    "into ",       "after ", "of ",           "2GB/s ",
      "sharing ", "bytes ",   "needed by ", "in reverse ", "( ",     "allreduce_ring"};
  for (int round = 0; round < 20'000; ++round) {
    std::string text;
    for (uint64_t n = random() % 12; n > 0; --n) text += words[random() % words.size()];
    const absl::StatusOr<Request> request = ParseRequest(text);
    if (!request.ok()) continue;
    EXPECT_EQ(*ParseRequest(FormatRequest(*request)), *request) << text;
  }
}

}  // namespace
}  // namespace seqpoint::whatif
