#include "client/files/program_text.h"

#include <elf.h>
#include <string.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/temp_folder.h"

namespace seqpoint::client {
namespace {

constexpr char kName[] = "seqpoint_iteration_begin";
constexpr uint64_t kBehind = 3 * uint64_t{kMostSearched} / 2;  // of both ends of `kBytes`
constexpr uint64_t kBytes = 3 * uint64_t{kMostSearched};

void Put(std::fstream* file, uint64_t at, const void* bytes, size_t count) {
  file->seekp(static_cast<std::streamoff>(at));
  file->write(static_cast<const char*>(bytes), static_cast<std::streamsize>(count));
}

// A file of kBytes, nearly all of which are holes.
std::string Sparse(const TempFolder& folder, uint64_t name_at) {
  const std::string path = folder.path() / "program";
  std::ofstream(path).close();
  std::filesystem::resize_file(path, kBytes);
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  Put(&file, name_at, kName, sizeof(kName));
  return path;
}

// A program with the name in this section, and the headers at the end.
std::string WithSection(const TempFolder& folder, const std::string& name, uint64_t at) {
  const std::string path = Sparse(folder, at);
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  const std::string names = std::string(1, '\0') + name + std::string(8, '\0');
  Elf64_Shdr sections[3] = {};
  sections[1].sh_name = 1;
  sections[1].sh_type = SHT_PROGBITS;
  sections[1].sh_offset = at - 100;
  sections[1].sh_size = 200;
  sections[2].sh_type = SHT_STRTAB;
  sections[2].sh_offset = kBytes - 1000;
  sections[2].sh_size = names.size();
  Elf64_Ehdr header = {};
  memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_shoff = kBytes - 500;
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = 3;
  header.e_shstrndx = 2;
  Put(&file, 0, &header, sizeof(header));
  Put(&file, kBytes - 1000, names.data(), names.size());
  Put(&file, kBytes - 500, sections, sizeof(sections));
  return path;
}

TEST(ProgramTextTest, NamesAreFoundWhereverTheSectionLies) {
  const TempFolder folder;
  EXPECT_TRUE(ProgramHolds(WithSection(folder, ".rodata", kBehind), "seqpoint_"));
  EXPECT_TRUE(ProgramHolds(WithSection(folder, ".rodata.str1.1", kBehind), "seqpoint_"));
  EXPECT_TRUE(ProgramHolds(WithSection(folder, ".dynstr", 4096), "seqpoint_"));
  EXPECT_FALSE(ProgramHolds(WithSection(folder, ".dynstr", kBehind), "cupti"));
}

TEST(ProgramTextTest, AFileWithoutSectionsIsSearchedAtBothEnds) {
  const TempFolder folder;
  EXPECT_TRUE(ProgramHolds(Sparse(folder, 0), "seqpoint_"));
  EXPECT_TRUE(ProgramHolds(Sparse(folder, (1 << 20) - 4), "seqpoint_"));  // across two parts
  EXPECT_TRUE(ProgramHolds(Sparse(folder, kBytes - sizeof(kName)), "seqpoint_"));
  EXPECT_FALSE(ProgramHolds(Sparse(folder, kBehind), "seqpoint_"));
  EXPECT_FALSE(ProgramHolds(folder.path() / "none", "seqpoint_"));
}

TEST(ProgramTextTest, ProgramsAreToldFromScripts) {
  const TempFolder folder;
  EXPECT_TRUE(IsProgram("/proc/self/exe"));
  std::ofstream(folder.path() / "script") << "#!/bin/sh\n";
  EXPECT_FALSE(IsProgram(folder.path() / "script"));
  EXPECT_FALSE(IsProgram(folder.path() / "none"));
  EXPECT_FALSE(IsProgram(folder.path()));
}

TEST(ProgramTextTest, HeadersThatLieAreNotFollowed) {
  const TempFolder folder;
  const std::string path = WithSection(folder, ".rodata", kBehind);
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    const uint64_t beyond = ~uint64_t{0} / 2;
    Put(&file, offsetof(Elf64_Ehdr, e_shoff), &beyond, sizeof(beyond));
  }
  EXPECT_FALSE(ProgramHolds(path, "seqpoint_"));
}

// This program is one.
TEST(ProgramTextTest, ARealProgram) {
  EXPECT_TRUE(ProgramHolds("/proc/self/exe", kName));
  EXPECT_FALSE(ProgramHolds("/proc/self/exe", std::string("seqpoint_") + "no_such_name"));
}

}  // namespace
}  // namespace seqpoint::client
