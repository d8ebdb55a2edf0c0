#include "daemon/placement/problem_json.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/placement_problem.h"

namespace seqpoint::placement {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kDevices = R"("maxSizePerFPGA": 16e9, "maxFPGAs": 2, "maxCPUs": 1)";

std::string Node(int id, const std::string& more = "") {
  return absl::StrCat(R"({"id": )", id,
                      R"(, "supportedOnFpga": 1, "isBackwardNode": 0, "cpuLatency": 2,)",
                      R"( "fpgaLatency": 1)", more, "}");
}

std::string Edge(int from, int to, const std::string& cost = "0.5") {
  return absl::StrCat(R"({"sourceId": )", from, R"(, "destId": )", to, R"(, "cost": )", cost, "}");
}

std::string File(const std::string& nodes, const std::string& edges = "") {
  return absl::StrCat("{", kDevices, R"(, "nodes": [)", nodes, R"(], "edges": [)", edges, "]}");
}

std::string Error(const std::string& text) {
  const auto problem = ReadProblem(text, "model.json");
  return problem.ok() ? "" : std::string(problem.status().message());
}

TEST(ReadProblemTest, ReadsThePublishedForm) {
  const auto problem = ReadProblem(R"({
    "edges": [{"sourceId": 7, "destId": -3, "cost": 0.25, "size": 9}],
    "maxCPUs": 1, "maxFPGAs": 2, "maxSizePerFPGA": 17185374208.0,
    "nodes": [
      {"id": 7, "name": "embed", "supportedOnFpga": true, "isBackwardNode": false,
       "cpuLatency": 20, "fpgaLatency": 2.5, "size": 4e9, "colorClass": 5, "layerId": 1},
      {"id": -3, "supportedOnFpga": 0, "isBackwardNode": 1, "cpuLatency": 1, "fpgaLatency": 0}]})",
                                   "model.json");
  ASSERT_TRUE(problem.ok()) << problem.status();
  EXPECT_EQ(problem->accelerators, 2);
  EXPECT_EQ(problem->cpus, 1);
  EXPECT_EQ(problem->memory_bytes, 17185374208.0);
  ASSERT_EQ(problem->operators.size(), 2u);
  const Operator& embed = problem->operators[0];
  EXPECT_EQ(embed.id, 7);
  EXPECT_EQ(embed.name, "embed");
  EXPECT_TRUE(embed.accelerator_supported);
  EXPECT_FALSE(embed.backward);
  EXPECT_EQ(embed.accelerator_time, 2.5);
  EXPECT_EQ(embed.cpu_time, 20);
  EXPECT_EQ(embed.memory_bytes, 4e9);
  EXPECT_EQ(embed.transfer_time, 0.25);
  EXPECT_EQ(embed.color, 5);
  EXPECT_FALSE(problem->operators[1].accelerator_supported);
  EXPECT_TRUE(problem->operators[1].backward);
  EXPECT_EQ(problem->operators[1].memory_bytes, 0);
  EXPECT_EQ(problem->operators[1].color, std::nullopt);
}

// As editors of Windows write it.
TEST(ReadProblemTest, AByteOrderMarkIsSkipped) {
  EXPECT_EQ(Error("\xef\xbb\xbf" + File(Node(1))), "");
  EXPECT_EQ(Error(File(Node(1, ", \"name\": \"\xc3\xa9\xe2\x82\xac\""))), "");
}

TEST(ReadProblemTest, EdgesThatAreThereTwiceAreOne) {
  const auto problem =
      ReadProblem(File(Node(1) + "," + Node(2), Edge(1, 2) + "," + Edge(1, 2, "0.5000005")), "f");
  ASSERT_TRUE(problem.ok()) << problem.status();
  EXPECT_EQ(problem->edges.size(), 1u);
  EXPECT_EQ(problem->operators[0].transfer_time, 0.5);
}

TEST(ReadProblemTest, NamesWhatIsWrongAndWhere) {
  const std::string two = Node(1) + "," + Node(2);
  for (const auto& [text, message] : std::vector<std::pair<std::string, std::string>>{
           {"", "is no JSON"},
           {"{", "is no JSON"},
           {File(two) + " x", "is no JSON"},
           {"\xff\xfe{", "is no JSON: it is UTF-16 or UTF-32; save it as UTF-8"},
           {std::string("{\0}\0", 4), "is no JSON: it is UTF-16 or UTF-32"},
           {File(two, std::string("\n\0", 2)), "line 2 has a control character 0x00"},
           {File(two + ",\n{\"name\": \"\xe9\"}"), "line 2 has a byte 0xe9 that is not UTF-8"},
           {"{\n\"name\": \"a", "is no JSON: it ends within a string, begun in line 2"},
           {"{\"nodes\": [\n{\"name\": \"a\nb\"}]}", "line 2 ends within a string"},
           {"{\"nodes\": [\n", "is no JSON: it ends in the middle, in line 2"},
           {File(two, "\n" + Edge(1, 2, "1e999")), "line 2 has 1e999, which is too large a number"},
           {File(two, "\n" + Edge(1, 2, "12345678901234567890123")),
            "line 2 has 12345678901234567890, which is too large a number"},
           {File(two, "\n" + Edge(1, 2, "01")), "line 2 has 01, which is no number"},
           {File(Node(1, R"(, "cpuLatency": 3)")),
            R"(entry 1 of "nodes": "cpuLatency" is there twice)"},
           {R"({"nodes": [], "edges": [], "nodes": []})", R"("nodes" is there twice)"},
           {File(Node(1, R"(, "size": 1e300)")),
            "operator 1 has a size of 1e+300 bytes; it can be 0 to 9.22337e+18"},
           {File(R"({"id": 4, "supportedOnFpga": 1, "isBackwardNode": 0, "cpuLatency": 1e308, )"
                 R"("fpgaLatency": 1e308})"),
            "the times of all operators add up to inf, which is too much to calculate with"},
           {"[]", "is no JSON object"},
           {"{}", R"(there is no field "nodes")"},
           {R"({"nodes": [], "edges": []})", R"(there is no field "maxSizePerFPGA")"},
           {File(""), "there are no operators"},
           {File("5"), R"(entry 1 of "nodes" is no object)"},
           {File(two, "null"), R"(entry 1 of "edges" is no object)"},
           {File(Node(1) + ",{}"), R"(entry 2 of "nodes": there is no field "id")"},
           {File(R"({"id": 4})"), R"(operator 4: there is no field "supportedOnFpga")"},
           {File(Node(1, R"(, "size": "big")")), R"(operator 1: "size" is no number)"},
           {File(Node(1, R"(, "colorClass": 1.5)")), R"(operator 1: "colorClass" is no integer)"},
           {File(Node(1, R"(, "name": 1)")), R"(operator 1: "name" is no string)"},
           {File(Node(1, R"(, "size": -3)")), R"(operator 1: "size" is negative: -3)"},
           {File(two, "{\n\"sourceId\": 1, \"destId\": 2, \"cost\": NaN}"),
            "line 2 has NaN, which is no number"},
           {File(two, Edge(1, 2, "-1")), R"(entry 1 of "edges": "cost" is negative: -1)"},
           {File(two, Edge(1, 2, "-Infinity")), "line 1 has Infinity"},
           {File(two, R"({"sourceId": 1, "destId": 2})"), R"(there is no field "cost")"},
           {File(two, Edge(1, 3)), "the edge from 1 to 3 names operator 3, which is not there"},
           {File(Node(1) + "," + Node(1)), "two operators have the id 1"},
           {File(two, Edge(1, 1)), "an edge leads from operator 1 to itself"},
           {File(two + "," + Node(3), Edge(1, 2) + "," + Edge(1, 3, "0.6")),
            "edges from operator 1 have different costs, 0.5 and 0.6"},
           {File(two + "," + Node(3) + "," + Node(4),
                 Edge(4, 1) + "," + Edge(1, 2) + "," + Edge(2, 3) + "," + Edge(3, 1)),
            "in a circle: 1 -> 2 -> 3 -> 1 (3 operators)"},
       }) {
    EXPECT_THAT(Error(text), HasSubstr(message)) << text;
    EXPECT_THAT(Error(text), StartsWith("model.json: "));
  }
}

TEST(ReadProblemTest, TheBackwardPassDoesNotLeadToTheForwardPass) {
  const std::string backward =
      R"({"id": 9, "supportedOnFpga": 1, "isBackwardNode": 1, "cpuLatency": 2, "fpgaLatency": 1})";
  EXPECT_THAT(Error(File(Node(1) + "," + backward, Edge(9, 1))),
              HasSubstr("from operator 9 of the backward pass to operator 1"));
  EXPECT_EQ(Error(File(Node(1) + "," + backward, Edge(1, 9))), "");
}

TEST(ReadProblemTest, AbsurdCountsAreRefused) {
  for (const char* count : {"-1", "4097", "1e9", "2.5", "\"six\""}) {
    EXPECT_THAT(Error(absl::StrCat(R"({"maxSizePerFPGA": 1, "maxFPGAs": )", count,
                                   R"(, "maxCPUs": 1, "nodes": [)", Node(1), R"(], "edges": []})")),
                HasSubstr("\"maxFPGAs\" is "))
        << count;
  }
}

// A deep file is no reason to crash.
TEST(ReadProblemTest, DeepNestingIsRefused) {
  EXPECT_THAT(Error("\n" + std::string(100'000, '[')),
              HasSubstr("is no JSON: line 2 nests more than 1023 levels deep"));
}

TEST(ReadProblemTest, LongCyclesAreCutShort) {
  std::string nodes = Node(0), edges = Edge(99, 0);
  for (int i = 1; i < 100; ++i) {
    absl::StrAppend(&nodes, ",", Node(i));
    absl::StrAppend(&edges, ",", Edge(i - 1, i));
  }
  const std::string error = Error(File(nodes, edges));
  EXPECT_THAT(error, HasSubstr("... -> "));
  EXPECT_THAT(error, HasSubstr("(100 operators)"));
  EXPECT_LT(error.size(), 200u);
}

TEST(WriteProblemTest, ReadsBackTheSame) {
  Problem problem;
  problem.accelerators = 3;
  problem.cpus = 2;
  problem.memory_bytes = 1e10 / 3;
  problem.operators = {
      {.id = 12, .name = "a \"quoted\"\nname\\", .cpu_time = 0.1, .transfer_time = 1.0 / 3},
      {.id = -5,
       .accelerator_supported = false,
       .backward = true,
       .accelerator_time = 1e-9,
       .memory_bytes = 1e18,
       .color = 77}};
  problem.edges = {{0, 1}};
  const auto read = ReadProblem(WriteProblem(problem), "f");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->accelerators, 3);
  EXPECT_EQ(read->cpus, 2);
  EXPECT_EQ(read->memory_bytes, problem.memory_bytes);
  ASSERT_EQ(read->operators.size(), 2u);
  for (int i = 0; i < 2; ++i) {
    const Operator &was = problem.operators[i], &is = read->operators[i];
    EXPECT_EQ(is.id, was.id);
    EXPECT_EQ(is.name, was.name);
    EXPECT_EQ(is.accelerator_supported, was.accelerator_supported);
    EXPECT_EQ(is.backward, was.backward);
    EXPECT_EQ(is.cpu_time, was.cpu_time);
    EXPECT_EQ(is.accelerator_time, was.accelerator_time);
    EXPECT_EQ(is.memory_bytes, was.memory_bytes);
    EXPECT_EQ(is.transfer_time, was.transfer_time);
    EXPECT_EQ(is.color, was.color);
  }
}

}  // namespace
}  // namespace seqpoint::placement
