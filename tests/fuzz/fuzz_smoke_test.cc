// Runs a fuzz target's entry point over 1,500 random inputs with a fixed seed, so that it
// is exercised in every build, not only where libFuzzer is.
#include <gtest/gtest.h>
#include <stddef.h>
#include <stdint.h>

#include <random>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size);

namespace {

TEST(FuzzSmokeTest, RandomBytes) {
  std::mt19937 random(1);
  for (int i = 0; i < 1500; ++i) {
    std::vector<uint8_t> input(random() % (i % 50 == 0 ? 65'537 : 1500));
    // Runs of small values: they get past more checks than noise.
    const uint32_t mask = 0xFFu >> (random() % 6);
    for (uint8_t& byte : input)
      byte = static_cast<uint8_t>(random() & (random() % 4 ? mask : 0xFF));
    LLVMFuzzerTestOneInput(input.data(), input.size());
  }
}

TEST(FuzzSmokeTest, NothingAtAll) { LLVMFuzzerTestOneInput(nullptr, 0); }

}  // namespace
