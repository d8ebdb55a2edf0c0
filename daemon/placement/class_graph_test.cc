#include "daemon/placement/class_graph.h"

#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace seqpoint::placement {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Problem Operators(int count) {
  Problem problem;
  problem.accelerators = 2;
  problem.memory_bytes = 100;
  for (int i = 0; i < count; ++i) {
    problem.operators.push_back({.id = 10 + i,
                                 .cpu_time = 2,
                                 .accelerator_time = 1,
                                 .memory_bytes = 3,
                                 .transfer_time = 0.5});
  }
  return problem;
}

TEST(ClassGraphTest, OperatorsOfOneColorAreOneClass) {
  Problem problem = Operators(3);
  problem.operators[0].color = 4;
  problem.operators[2].color = 4;
  problem.operators[2].backward = true;
  problem.operators[2].accelerator_supported = false;
  problem.edges = {{0, 1}, {0, 2}, {1, 2}};
  const ClassGraph graph = ContiguousClasses(problem);
  ASSERT_EQ(graph.size(), 2);
  const Class& both = graph.classes[graph.class_of[0]];
  EXPECT_EQ(graph.class_of[2], graph.class_of[0]);
  EXPECT_THAT(both.operators, ElementsAre(0, 2));
  EXPECT_EQ(both.accelerator_time, 2);
  EXPECT_EQ(both.cpu_time, 4);
  EXPECT_EQ(both.memory_bytes, 6);
  EXPECT_FALSE(both.accelerator_supported);
  // Forward and backward outputs between the same classes are one net.
  ASSERT_EQ(graph.nets.size(), 1u);
  EXPECT_EQ(graph.nets[0].transfer_time, 1.0);
  EXPECT_THAT(graph.nets[0].classes, ElementsAre(0, 1));
  EXPECT_THAT(graph.predecessors[graph.class_of[1]], ElementsAre(graph.class_of[0]));
}

TEST(ClassGraphTest, AnOutputIsOneNetHoweverManyNeedIt) {
  Problem problem = Operators(3);
  problem.edges = {{0, 1}, {0, 2}};
  const ClassGraph graph = ContiguousClasses(problem);
  ASSERT_EQ(graph.nets.size(), 1u);
  EXPECT_THAT(graph.nets[0].classes, ElementsAre(0, 1, 2));
  EXPECT_EQ(graph.nets[0].transfer_time, 0.5);
}

// Forward a -> b, backward b' -> x -> a', where x has no forward operator: x comes between a and b.
TEST(ClassGraphTest, AClassWithoutForwardOperatorsTakesTheMirroredPlace) {
  Problem problem = Operators(5);
  problem.operators[2].backward = problem.operators[3].backward = true;
  problem.operators[4].backward = true;
  problem.operators[0].color = problem.operators[4].color = 1;
  problem.operators[1].color = problem.operators[2].color = 2;
  problem.edges = {{0, 1}, {2, 3}, {3, 4}};
  const ClassGraph graph = ContiguousClasses(problem);
  ASSERT_EQ(graph.size(), 3);
  const int a = graph.class_of[0], b = graph.class_of[1], x = graph.class_of[3];
  EXPECT_THAT(graph.predecessors[x], ElementsAre(a));
  EXPECT_THAT(graph.predecessors[b], ElementsAre(std::min(a, x), std::max(a, x)));
}

// b lies between two operators of one color.
TEST(ClassGraphTest, ClassesOnACycleAreOneForContiguousPlacementsOnly) {
  Problem problem = Operators(3);
  problem.operators[0].color = problem.operators[2].color = 1;
  problem.edges = {{0, 1}, {1, 2}};
  EXPECT_EQ(ContiguousClasses(problem).size(), 1);
  EXPECT_THAT(ContiguousClasses(problem).nets, IsEmpty());
  EXPECT_EQ(ColorClasses(problem).size(), 2);
}

TEST(ClassGraphTest, ParametersSitWhereTheyAreUsed) {
  Problem problem = Operators(4);
  // 3 -> 2 -> 0: both take no time. 1 has time.
  for (const int free : {2, 3}) {
    problem.operators[free].cpu_time = problem.operators[free].accelerator_time = 0;
  }
  problem.edges = {{0, 1}, {2, 0}, {3, 2}};
  const ClassGraph graph = ContiguousClasses(problem);
  ASSERT_EQ(graph.size(), 2);
  EXPECT_EQ(graph.class_of[2], graph.class_of[0]);
  EXPECT_EQ(graph.class_of[3], graph.class_of[0]);
  EXPECT_EQ(graph.classes[graph.class_of[0]].memory_bytes, 9);
  EXPECT_EQ(ColorClasses(problem).size(), 4);

  // Two neighbors: it may be better with either.
  problem.edges.push_back({2, 1});
  EXPECT_EQ(ContiguousClasses(problem).size(), 3);
}

TEST(ClassGraphTest, AFreeOperatorThatCannotRunWithItsNeighborStaysApart) {
  Problem problem = Operators(2);
  problem.operators[0].cpu_time = problem.operators[0].accelerator_time = 0;
  problem.operators[0].accelerator_supported = false;
  problem.edges = {{0, 1}};
  EXPECT_EQ(ContiguousClasses(problem).size(), 2);
}

TEST(ClassGraphTest, LongChainsAreNumberedInOrder) {
  constexpr int kLong = 200'000;
  Problem problem = Operators(kLong);
  for (int i = 1; i < kLong; ++i) problem.edges.push_back({i, i - 1});
  const ClassGraph graph = ContiguousClasses(problem);
  ASSERT_EQ(graph.size(), kLong);
  EXPECT_EQ(graph.class_of[kLong - 1], 0);
  EXPECT_EQ(graph.class_of[0], kLong - 1);
  EXPECT_THAT(ToPlacement(graph, std::vector<int>(kLong, 1)), ::testing::Each(1));
}

}  // namespace
}  // namespace seqpoint::placement
