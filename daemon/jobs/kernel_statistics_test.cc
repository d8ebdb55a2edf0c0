#include "daemon/jobs/kernel_statistics.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "daemon/base/limits.h"

namespace seqpoint::jobs {
namespace {

TEST(KernelStatisticsTest, NamesBeyondTheirLimitShareOneAndStayApartFromTheOthers) {
  KernelStatistics kernels;
  const std::string long_text(60'000, 'k');
  const auto name_of = [&](int i) { return absl::StrCat(long_text, i); };
  const int most = static_cast<int>(kMaxNamesBytes / long_text.size());
  for (int i = 0; i < most; ++i) kernels.IndexOf(name_of(i));
  const int further = kernels.IndexOf(name_of(most + 1));
  EXPECT_EQ(kernels.IndexOf(name_of(most + 2)), further);
  EXPECT_LE(kernels.names().size(), static_cast<size_t>(most) + 1);
  EXPECT_EQ(kernels.names()[static_cast<size_t>(further)], "(kernels beyond 64 MiB of names)");
  EXPECT_EQ(kernels.IndexOf(name_of(5)), 5);  // it was there before
}

TEST(ProcessNamesTest, TheLargestIdTakesNoMoreThanItsText) {
  ProcessNames names;
  names.Set(1u << 22, "last");
  names.Set(7, "first");
  EXPECT_EQ(names.Ids(), (std::vector<uint32_t>{7, 1u << 22}));
  EXPECT_EQ(names.Find(1u << 22)->text, "last");
  EXPECT_EQ(names.Find(8), nullptr);
}

}  // namespace
}  // namespace seqpoint::jobs
