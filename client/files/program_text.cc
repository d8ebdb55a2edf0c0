#include "client/files/program_text.h"

#include <elf.h>
#include <string.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <vector>

#include "absl/strings/match.h"

namespace seqpoint::client {
namespace {

struct Range {
  uint64_t begin, bytes;
};

bool ReadAt(std::ifstream* file, uint64_t at, void* to, size_t bytes) {
  file->clear();
  file->seekg(static_cast<std::streamoff>(at));
  return file->read(static_cast<char*>(to), static_cast<std::streamsize>(bytes)).good();
}

// Empty: it has none, or is no program of this machine's kind.
std::vector<Range> SectionsOfNames(std::ifstream* file) {
  Elf64_Ehdr header;
  if (!ReadAt(file, 0, &header, sizeof(header)) || memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_shentsize != sizeof(Elf64_Shdr) ||
      header.e_shstrndx >= header.e_shnum) {
    return {};
  }
  std::vector<Elf64_Shdr> sections(header.e_shnum);
  if (!ReadAt(file, header.e_shoff, sections.data(), sections.size() * sizeof(sections[0]))) {
    return {};
  }
  std::vector<Range> ranges;
  for (const Elf64_Shdr& section : sections) {
    char name[8] = {};  // its begin
    const uint64_t at = sections[header.e_shstrndx].sh_offset + section.sh_name;
    if (section.sh_type == SHT_NOBITS || !ReadAt(file, at, name, sizeof(name) - 1)) continue;
    if (absl::StartsWith(name, ".dynstr") || absl::StartsWith(name, ".rodata")) {
      ranges.push_back({section.sh_offset, section.sh_size});
    }
  }
  return ranges;
}

bool Holds(std::ifstream* file, Range range, absl::string_view name) {
  file->clear();
  file->seekg(static_cast<std::streamoff>(range.begin));
  std::string text(name.size() - 1, '\0');  // the end of the part before
  std::vector<char> part(1 << 20);
  for (uint64_t left = std::min<uint64_t>(range.bytes, kMostSearched); left > 0;) {
    file->read(part.data(), static_cast<std::streamsize>(std::min<uint64_t>(left, part.size())));
    const auto read = static_cast<size_t>(file->gcount());
    if (read == 0) return false;
    text.append(part.data(), read);
    if (memmem(text.data(), text.size(), name.data(), name.size()) != nullptr) return true;
    text.erase(0, text.size() - (name.size() - 1));
    left -= read;
  }
  return false;
}

}  // namespace

bool ProgramHolds(const std::string& path, absl::string_view name) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return false;
  const auto end = static_cast<uint64_t>(file.tellg());
  std::vector<Range> ranges;
  if (end > kMostSearched) ranges = SectionsOfNames(&file);
  if (ranges.empty()) {
    const uint64_t last = std::max<uint64_t>(end, kMostSearched) - kMostSearched;
    ranges = {{0, end}, {last, last > 0 ? end - last : 0}};
  }
  return std::any_of(ranges.begin(), ranges.end(),
                     [&](const Range& range) { return Holds(&file, range, name); });
}

bool IsProgram(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  char begin[SELFMAG] = {};
  return file.read(begin, SELFMAG).good() && memcmp(begin, ELFMAG, SELFMAG) == 0;
}

}  // namespace seqpoint::client
