#include "daemon/base/zstd_frame.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace seqpoint {
namespace {

using testing::HasSubstr;

TEST(ZstdFrame, BytesComeBack) {
  for (const std::string& bytes : {std::string(), std::string("a"), std::string(100'000, 'x')}) {
    EXPECT_EQ(*FromZstdFrame(ToZstdFrame(bytes), 100'000), bytes);
  }
}

TEST(ZstdFrame, WhatIsTooLargeIsRefusedBeforeItIsUnpacked) {
  const std::string frame = ToZstdFrame(std::string(1 << 20, 'x'));
  EXPECT_THAT(std::string(FromZstdFrame(frame, 1000).status().message()),
              HasSubstr("1048576 bytes is larger than 1000"));
}

TEST(ZstdFrame, DamageIsRefused) {
  const std::string frame = ToZstdFrame("a batch of reports, a batch of reports");
  EXPECT_FALSE(FromZstdFrame("", 1000).ok());
  EXPECT_FALSE(FromZstdFrame("no frame at all", 1000).ok());
  for (size_t size = 0; size < frame.size(); ++size) {
    EXPECT_FALSE(FromZstdFrame(frame.substr(0, size), 1000).ok()) << size;
  }
}

}  // namespace
}  // namespace seqpoint
