#include "injection/process/own_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>
#include <string_view>

namespace seqpoint::inject {
namespace {

const size_t kPage = static_cast<size_t>(sysconf(_SC_PAGESIZE));

// Pages of the process' own, as in the data of an object.
class OwnMemoryTest : public ::testing::Test {
 protected:
  static constexpr size_t kPages = 1024;
  void SetUp() override {
    void* pages = mmap(nullptr, kPages * kPage, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ASSERT_NE(pages, MAP_FAILED);
    madvise(pages, kPages * kPage, MADV_NOHUGEPAGE);
    pages_ = static_cast<char*>(pages);
  }
  void TearDown() override { munmap(pages_, kPages * kPage); }

  uintptr_t At(size_t page) const { return reinterpret_cast<uintptr_t>(pages_) + page * kPage; }
  void Put(size_t at, std::string_view text) { memcpy(pages_ + at, text.data(), text.size()); }
  static auto Has(std::string_view text) {
    return [text](const char* bytes, size_t count) {
      return std::string_view(bytes, count).find(text) != std::string_view::npos;
    };
  }

  char* pages_ = nullptr;
};

TEST_F(OwnMemoryTest, ReadsPastPagesThatNobodyMayRead) {
  Put(0, "first");
  Put(5 * kPage, "last");
  // Another program's mapping is forbidden for good; a file's end is, too.
  ASSERT_EQ(mprotect(pages_ + kPage, kPage, PROT_NONE), 0);
  ASSERT_EQ(munmap(pages_ + 3 * kPage, kPage), 0);
  OwnMemory memory(kPages * kPage);
  EXPECT_TRUE(memory.Any(At(0), At(8), 16, Has("first")));
  EXPECT_TRUE(memory.Any(At(0), At(8), 16, Has("last")));
  EXPECT_TRUE(memory.AnyWritten(At(0), At(8), Has("last")));
  EXPECT_FALSE(memory.Any(At(0), At(8), 16, Has("between")));
  EXPECT_FALSE(memory.exhausted());
}

TEST_F(OwnMemoryTest, PartsShareWhatLiesAcross) {
  Put(OwnMemory::kPartBytes - 3, "across");
  OwnMemory memory(2 * kPages * kPage);
  EXPECT_TRUE(memory.Any(At(0), At(kPages), 5, Has("across")));
}

TEST_F(OwnMemoryTest, OnlyPagesThatWereWrittenToAreRead) {
  Put(100 * kPage, "one");
  Put(101 * kPage, "two");
  Put(700 * kPage, "three");
  std::string read;
  OwnMemory memory(kPages * kPage);
  EXPECT_FALSE(memory.AnyWritten(At(0) + 8, At(kPages) - 8, [&](const char* bytes, size_t count) {
    for (size_t i = 0; i < count; i += kPage) read += std::string(bytes + i) + ' ';
    return false;
  }));
  EXPECT_EQ(read, "one two three ");
}

TEST_F(OwnMemoryTest, StopsWhereItWouldBeTooMuch) {
  for (size_t page = 0; page < kPages; ++page) Put(page * kPage, "x");
  Put(kPages * kPage - 8, "the end");
  OwnMemory memory(kPages * kPage / 2);
  EXPECT_FALSE(memory.AnyWritten(At(0), At(kPages), Has("the end")));
  EXPECT_TRUE(memory.exhausted());
  EXPECT_FALSE(memory.Any(At(kPages - 1), At(kPages), 0, Has("the end")));
}

}  // namespace
}  // namespace seqpoint::inject
