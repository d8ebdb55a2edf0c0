#include "daemon/queries/presets.h"

#include "absl/strings/str_cat.h"
#include "daemon/whatif/preset.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace seqpoint::queries {
namespace {

using ::testing::HasSubstr;

v1::ListPresetsReply AllPresets() { return *ListPresets({}); }

const v1::PresetParameter* Find(const v1::ListPresetsReply& reply, const std::string& name,
                                const std::string& value) {
  for (const v1::Preset& preset : reply.presets()) {
    for (const v1::PresetParameter& parameter : preset.parameters()) {
      if (parameter.name() == name && parameter.value() == value) return &parameter;
    }
  }
  return nullptr;
}

TEST(PresetsTest, ParametersHaveTheirUnits) {
  const v1::ListPresetsReply reply = AllPresets();
  for (const auto& [name, value] : std::vector<std::pair<std::string, std::string>>{
           {"bandwidth", "12GB/s"},
           {"bucket", "25MB"},
           {"slice", "200KB"},
           {"packing", "50us"},
           {"left", "0"},
           {"compute", "3"},
           {"kernels", "\"(?i)elementwise|pointwise\""}}) {
    EXPECT_NE(Find(reply, name, value), nullptr) << name;
  }
  const v1::PresetParameter* required = Find(reply, "bandwidth", "");
  ASSERT_NE(required, nullptr);
  EXPECT_EQ(required->unit(), "bytes/s");
  EXPECT_EQ(required->example(), "10GB/s");
}

// Whoever types what is shown gets what would have been without it.
TEST(PresetsTest, WhatIsShownIsTakenBack) {
  const v1::ListPresetsReply shown = AllPresets();
  ASSERT_EQ(static_cast<size_t>(shown.presets_size()), whatif::Presets().size());
  for (const v1::Preset& preset : shown.presets()) {
    std::string given = preset.name(), all = given;
    for (const v1::PresetParameter& parameter : preset.parameters()) {
      const bool has_value = !parameter.value().empty();
      const std::string typed = absl::StrCat(",", parameter.name(), "=",
                                             has_value ? parameter.value() : parameter.example());
      absl::StrAppend(&all, typed);
      if (!has_value) absl::StrAppend(&given, typed);
    }
    const auto expected = whatif::ParseChange(given), read = whatif::ParseChange(all);
    ASSERT_TRUE(expected.ok()) << expected.status();
    ASSERT_TRUE(read.ok()) << all << ": " << read.status();
    EXPECT_EQ(read->parameters, expected->parameters) << all;
    EXPECT_EQ(read->texts, expected->texts) << all;
  }
}

TEST(PresetsTest, OneIsFoundByItsName) {
  v1::ListPresetsRequest request;
  request.set_name("amp");
  const auto one = ListPresets(request);
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_THAT(one->presets(0).text(), HasSubstr("\nsteps:\nscale kernels"));
  request.set_name("ampp");
  const absl::Status status = ListPresets(request).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("no preset \"ampp\"; there are: amp"));
}

TEST(PresetsTest, AParameterThatAPresetDoesNotHaveIsRefused) {
  v1::WhatIfRequest request;
  request.add_changes()->set_preset("amp,compute=4");
  EXPECT_TRUE(CheckPresets(request).ok());
  request.add_changes()->set_preset("amp,speed=4");
  EXPECT_THAT(std::string(CheckPresets(request).message()),
              HasSubstr("amp has no parameter \"speed\"; it has compute, memory"));
}

}  // namespace
}  // namespace seqpoint::queries
