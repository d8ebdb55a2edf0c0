#include "client/commands/whatif.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace seqpoint::client {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(PresetsTest, WhatHasToBeGivenIsSaidWithItsUnit) {
  v1::ListPresetsReply reply;
  v1::Preset& preset = *reply.add_presets();
  preset.set_name("distributed");
  preset.set_title("data parallel");
  preset.set_assumption("that it is so");
  preset.set_source("Daydream");
  for (const auto& [name, value, unit, example] :
       {std::tuple("bucket", "25MB", "bytes", ""), std::tuple("bandwidth", "", "bytes/s", "10GB/s"),
        std::tuple("workers", "", "number", "2")}) {
    v1::PresetParameter& parameter = *preset.add_parameters();
    parameter.set_name(name);
    parameter.set_value(value);
    parameter.set_unit(unit);
    parameter.set_example(example);
    parameter.set_meaning("of each worker");
  }
  EXPECT_THAT(
      PresetsText(reply),
      AllOf(
          HasSubstr("distributed: data parallel\n  bucket=25MB: of each worker\n"),
          HasSubstr("  bandwidth=RATE: of each worker; has to be given: bytes/s, such as 10GB/s\n"),
          HasSubstr("  workers=NUMBER: of each worker; has to be given: number, such as 2\n"),
          HasSubstr("  assumes that it is so\n  source: Daydream\n")));
}

TEST(WhatIfChangeTest, APresetGoesBeforeAFileOfItsName) {
  EXPECT_EQ(ReadChange("amp,compute=4", {"amp"})->preset(), "amp,compute=4");
  EXPECT_THAT(std::string(ReadChange("ampp", {"amp"}).status().message()),
              HasSubstr("neither a preset nor a file \"ampp\" (did you mean amp?)"));
  EXPECT_THAT(std::string(ReadChange("x.whatif", {"amp"}).status().message()),
              HasSubstr("cannot read x.whatif"));
}

}  // namespace
}  // namespace seqpoint::client
