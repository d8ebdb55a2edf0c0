#include "daemon/base/status_macros.h"

#include <memory>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace seqpoint {
namespace {

absl::StatusOr<std::unique_ptr<int>> Half(int number) {
  if (number % 2 != 0) return absl::InvalidArgumentError("odd");
  return std::make_unique<int>(number / 2);
}

absl::StatusOr<int> Quarter(int number, int* halved) {
  SEQPOINT_ASSIGN_OR_RETURN(const std::unique_ptr<int> half, Half(number));
  *halved = *half;
  std::unique_ptr<int> quarter;
  SEQPOINT_ASSIGN_OR_RETURN(quarter, Half(*half));
  return *quarter;
}

absl::Status Check(absl::Status status, int* reached) {
  SEQPOINT_RETURN_IF_ERROR(status);
  ++*reached;
  return absl::OkStatus();
}

TEST(StatusMacrosTest, ValuesAreAssigned) {
  int halved = 0;
  const absl::StatusOr<int> quarter = Quarter(12, &halved);
  ASSERT_TRUE(quarter.ok());
  EXPECT_EQ(*quarter, 3);
  EXPECT_EQ(halved, 6);
}

TEST(StatusMacrosTest, TheFirstErrorIsReturned) {
  int halved = 0;
  EXPECT_EQ(Quarter(3, &halved).status(), absl::InvalidArgumentError("odd"));
  EXPECT_EQ(halved, 0);
  EXPECT_EQ(Quarter(6, &halved).status(), absl::InvalidArgumentError("odd"));
  EXPECT_EQ(halved, 3);
}

TEST(StatusMacrosTest, AnErrorEndsTheFunctionAndOkDoesNot) {
  int reached = 0;
  EXPECT_TRUE(Check(absl::OkStatus(), &reached).ok());
  EXPECT_EQ(reached, 1);
  EXPECT_TRUE(absl::IsNotFound(Check(absl::NotFoundError("gone"), &reached)));
  EXPECT_EQ(reached, 1);
}

}  // namespace
}  // namespace seqpoint
