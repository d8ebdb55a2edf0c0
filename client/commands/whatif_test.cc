#include "client/commands/whatif.h"

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>

#include <map>

#include "absl/strings/str_cat.h"
#include "daemon/whatif/preset.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace seqpoint::client {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(PresetsTest, ParametersHaveTheirUnits) {
  EXPECT_THAT(PresetsText(),
              AllOf(HasSubstr("\n  bandwidth=12GB/s: of copies"), HasSubstr("\n  bucket=25MB: "),
                    HasSubstr("\n  slice=200KB: "), HasSubstr("\n  packing=50us: "),
                    HasSubstr("\n  left=0: "), HasSubstr("\n  compute=3: "),
                    HasSubstr("\n  kernels=\"(?i)elementwise|pointwise\": names")));
  EXPECT_THAT(PresetsText(), AllOf(HasSubstr("\n  bandwidth=RATE: of each worker; has to be given: "
                                             "bytes/s, such as 10GB/s\n"),
                                   HasSubstr("\n  bytes=BYTES: "),
                                   HasSubstr("has to be given: number, such as 2\n"),
                                   HasSubstr("such as \"gemm|conv\"\n")));
}

// Whoever types what is shown gets what would have been without it.
TEST(PresetsTest, WhatIsShownIsTakenBack) {
  google::protobuf::Struct shown;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(PresetsJson(), &shown).ok());
  const auto& presets = shown.fields().at("presets").list_value().values();
  ASSERT_EQ(static_cast<size_t>(presets.size()), whatif::Presets().size());
  for (const auto& preset : presets) {
    const auto& fields = preset.struct_value().fields();
    std::string given = fields.at("name").string_value(), all = given;
    for (const auto& parameter : fields.at("parameters").list_value().values()) {
      const auto& of = parameter.struct_value().fields();
      const bool has_value = !of.at("value").string_value().empty();
      const std::string typed = absl::StrCat(",", of.at("name").string_value(), "=",
                                             of.at(has_value ? "value" : "example").string_value());
      absl::StrAppend(&all, typed);
      if (!has_value) absl::StrAppend(&given, typed);
    }
    const auto expected = whatif::ParseChange(given), read = whatif::ParseChange(all);
    ASSERT_TRUE(expected.ok()) << expected.status();
    ASSERT_TRUE(read.ok()) << all << ": " << read.status();
    EXPECT_EQ(read->parameters, expected->parameters) << all;
    EXPECT_EQ(read->texts, expected->texts) << all;
    EXPECT_TRUE(ReadChange(all).ok()) << all;
  }
}

}  // namespace
}  // namespace seqpoint::client
