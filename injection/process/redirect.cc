#include "injection/process/redirect.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <initializer_list>
#include <span>

#include "injection/base/system.h"
#include "injection/process/own_memory.h"

namespace seqpoint::inject {
namespace {

// Bytes that one search reads, so that no program waits long. PyTorch 2.11 for CUDA has 330 MB, of
// which 300 MB are in libcublasLt and CUPTI's host libraries (docs/internals/injected-library.md).
constexpr uint64_t kMostSearched = 512 << 20;
// Bytes that the names of CUPTI's functions begin with, and the most that they have.
constexpr char kPrefix[] = "cupti";
constexpr size_t kLongestName = 64;

uintptr_t Address(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

// One loaded object, as its dynamic section describes it.
struct Object {
  const dl_phdr_info* info;
  using Table = std::span<const ElfW(Rela)>;
  Table data;   // relocations that are applied when the object is loaded
  Table calls;  // those of calls, which may wait for the first one
  const ElfW(Sym) * symbols;
  const char* names;

  std::span<const ElfW(Phdr)> parts() const { return {info->dlpi_phdr, info->dlpi_phnum}; }
  bool Holds(const void* address) const {
    for (const ElfW(Phdr) & part : parts()) {
      const uintptr_t at = Address(address) - info->dlpi_addr - part.p_vaddr;
      if (part.p_type == PT_LOAD && at < part.p_memsz) return true;
    }
    return false;
  }
  // One of the functions is its own.
  bool HoldsAny(std::span<const Redirection> functions) const {
    for (const Redirection& function : functions) {
      if (function.from != nullptr && Holds(function.from)) return true;
    }
    return false;
  }
  void** Slot(const ElfW(Rela) & entry) const {
    return reinterpret_cast<void**>(info->dlpi_addr + entry.r_offset);
  }
  const ElfW(Sym) & Symbol(const ElfW(Rela) & entry) const {
    return symbols[ELF64_R_SYM(entry.r_info)];
  }
  const char* Name(const ElfW(Rela) & entry) const { return names + Symbol(entry).st_name; }
};

bool Describe(const dl_phdr_info* info, Object* object) {
  *object = {};
  object->info = info;
  const ElfW(Dyn)* dynamic = nullptr;
  for (const ElfW(Phdr) & part : object->parts()) {
    if (part.p_type != PT_DYNAMIC) continue;
    dynamic = reinterpret_cast<const ElfW(Dyn)*>(info->dlpi_addr + part.p_vaddr);
  }
  if (dynamic == nullptr) return false;
  // By tag. The loader has made addresses of offsets, but for the kernel's own object.
  uintptr_t values[DT_JMPREL + 1] = {};
  size_t relative = 0;
  for (; dynamic->d_tag != DT_NULL; ++dynamic) {
    if (dynamic->d_tag > 0 && dynamic->d_tag <= DT_JMPREL) {
      values[dynamic->d_tag] = dynamic->d_un.d_val;
    } else if (dynamic->d_tag == DT_RELACOUNT) {
      relative = dynamic->d_un.d_val;
    }
  }
  object->symbols = reinterpret_cast<const ElfW(Sym)*>(values[DT_SYMTAB]);
  object->names = reinterpret_cast<const char*>(values[DT_STRTAB]);
  if (!object->Holds(object->symbols) || !object->Holds(object->names)) return false;
  const auto table = [&](uintptr_t address, size_t bytes) -> Object::Table {
    const auto* entries = reinterpret_cast<const ElfW(Rela)*>(address);
    if (!object->Holds(entries)) return {};
    return {entries, bytes / sizeof(ElfW(Rela))};
  };
  object->data = table(values[DT_RELA], values[DT_RELASZ]);
  object->calls = table(values[DT_JMPREL], values[DT_PLTRELSZ]);
  // Relocations without a symbol come first.
  object->data = object->data.subspan(std::min(relative, object->data.size()));
  return true;
}

template <typename Visit>
void ForEachObject(const Visit& visit) {
  AnyLoaded([&](const dl_phdr_info& info) {
    Object object;
    if (Describe(&info, &object)) visit(object);
    return false;
  });
}

// Writes words that the loader has made read-only when it was done with them, past the protection:
// changing it, and back, would race with the loader where another thread loads an object.
class Writer {
 public:
  Writer() : file_(open("/proc/self/mem", O_RDWR | O_CLOEXEC)), failed_(file_ < 0) {}
  ~Writer() {
    if (file_ >= 0) close(file_);
  }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  // The program may have forbidden to read the place.
  bool Holds(const void* place, uintptr_t value) const {
    const auto at = static_cast<off_t>(reinterpret_cast<uintptr_t>(place));
    uintptr_t held = 0;
    return pread(file_, &held, sizeof(held), at) == sizeof(held) && held == value;
  }

  void Write(void* place, uintptr_t value) {
    const auto at = static_cast<off_t>(reinterpret_cast<uintptr_t>(place));
    if (file_ >= 0 && pwrite(file_, &value, sizeof(value), at) == sizeof(value)) return;
    failed_ = true;
  }
  bool failed() const { return failed_; }

 private:
  const int file_;
  bool failed_;
};

// The slot that a relocation is about holds the address of its symbol.
bool HoldsAddress(const ElfW(Rela) & entry) {
  if (ELF64_R_SYM(entry.r_info) == 0) return false;
  switch (ELF64_R_TYPE(entry.r_info)) {
#if defined(__x86_64__)
    case R_X86_64_64:
    case R_X86_64_GLOB_DAT:
    case R_X86_64_JUMP_SLOT:
#elif defined(__aarch64__)
    case R_AARCH64_ABS64:
    case R_AARCH64_GLOB_DAT:
    case R_AARCH64_JUMP_SLOT:
#endif
      return true;
    default:
      return false;
  }
}

// Slots for one of the names that hold `from` get `to`. `weak`: only those that are asked for
// weakly.
void RedirectSlots(const Object& object, std::span<const Redirection> redirections, bool weak,
                   Writer* writer) {
  for (const Object::Table table : {object.data, object.calls}) {
    for (const ElfW(Rela) & entry : table) {
      if (!HoldsAddress(entry)) continue;
      const ElfW(Sym)& symbol = object.Symbol(entry);
      if (symbol.st_shndx != SHN_UNDEF) continue;  // the object's own
      if (weak && ELF64_ST_BIND(symbol.st_info) != STB_WEAK) continue;
      const char* name = object.Name(entry);
      for (const Redirection& one : redirections) {
        if (name[0] != one.name[0] || strcmp(name, one.name) != 0) continue;
        if ((one.from != nullptr || weak) && writer->Holds(object.Slot(entry), Address(one.from))) {
          writer->Write(object.Slot(entry), Address(one.to));
        }
        break;
      }
    }
  }
}

void RedirectLookups(const Redirection& redirection, Writer* writer) {
  Dl_info info;
  ElfW(Sym)* symbol = nullptr;
  if (redirection.from == nullptr ||
      dladdr1(redirection.from, &info, reinterpret_cast<void**>(&symbol), RTLD_DL_SYMENT) == 0) {
    return;
  }
  // Another name of the same function would be another entry.
  if (symbol == nullptr || strcmp(info.dli_sname, redirection.name) != 0) return;
  const uintptr_t base = Address(redirection.from) - symbol->st_value;
  writer->Write(&symbol->st_value, Address(redirection.to) - base);
}

// An object that binds its calls one by one has calls that never were made, whose slots lead into
// the object itself.
bool BindsOneByOne(const Object& object) {
  for (const ElfW(Rela) & entry : object.calls) {
    if (object.Symbol(entry).st_shndx != SHN_UNDEF) continue;  // the object's own function
    if (object.Holds(*object.Slot(entry))) return true;
  }
  return false;
}

// The slot of the object's calls of a function; null: it has none.
const void* const* CallSlot(const Object& object, const Redirection& function) {
  for (const ElfW(Rela) & entry : object.calls) {
    // A slot that leads elsewhere than to the function or into the object is another function's.
    const void* const* slot = object.Slot(entry);
    if (*slot != function.from && !object.Holds(*slot)) continue;
    if (strcmp(object.Name(entry), function.name) == 0) return slot;
  }
  return nullptr;
}

// Some of the functions, by their numbers: enough for those of other_users.cc.
using Functions = uint64_t;

// The program's own text holds the name of one of these functions: it may ask the loader for it.
bool Mentions(const Object& program, std::span<const Redirection> functions, Functions wanted,
              OwnMemory* memory) {
  if (wanted == 0) return false;
  // Looks for the prefix first, and compares names where it is.
  const auto found = [&](const char* text, size_t bytes) {
    for (const char* const end = text + bytes; text < end; ++text) {
      text = static_cast<const char*>(
          memmem(text, static_cast<size_t>(end - text), kPrefix, strlen(kPrefix)));
      if (text == nullptr) return false;
      for (size_t j = 0; j < functions.size(); ++j) {
        const size_t length = strlen(functions[j].name) + 1;
        if ((wanted >> j & 1) != 0 && static_cast<size_t>(end - text) >= length &&
            memcmp(text, functions[j].name, length) == 0) {
          return true;
        }
      }
    }
    return false;
  };
  for (const ElfW(Phdr) & part : program.parts()) {
    if (part.p_type != PT_LOAD || (part.p_flags & PF_R) == 0) continue;
    const uintptr_t begin = program.info->dlpi_addr + part.p_vaddr;
    if (memory->Any(begin, begin + part.p_filesz, kLongestName, found)) return true;
  }
  return false;
}

// The object keeps the address of one of the functions in what it may write.
bool Keeps(const Object& object, std::span<const Redirection> functions, OwnMemory* memory) {
  uintptr_t lowest = UINTPTR_MAX, highest = 0;
  for (const Redirection& function : functions) {
    if (function.from == nullptr) continue;
    lowest = std::min(lowest, Address(function.from));
    highest = std::max(highest, Address(function.from));
  }
  const auto found = [&](const char* bytes, size_t size) {
    for (size_t i = 0; i + sizeof(uintptr_t) <= size; i += sizeof(uintptr_t)) {
      uintptr_t word;
      memcpy(&word, bytes + i, sizeof(word));
      if (word < lowest || word > highest) continue;
      for (const Redirection& function : functions) {
        if (word == Address(function.from)) return true;
      }
    }
    return false;
  };
  for (const ElfW(Phdr) & part : object.parts()) {
    if (part.p_type != PT_LOAD || (part.p_flags & PF_W) == 0) continue;
    const uintptr_t begin = object.info->dlpi_addr + part.p_vaddr;
    if (memory->AnyWritten(begin, begin + part.p_memsz, found)) return true;
  }
  return false;
}

const char* FileOf(const Object& object) {
  const char* path = object.info->dlpi_name;
  return path[0] == '\0' ? "the program" : Basename(path);
}

}  // namespace

bool RedirectCalls(std::span<const Redirection> redirections) {
  Writer writer;
  for (const Redirection& one : redirections) RedirectLookups(one, &writer);
  ForEachObject([&](const Object& object) {
    // The library itself: what it calls of its own is no news.
    if (!object.HoldsAny(redirections)) RedirectSlots(object, redirections, false, &writer);
  });
  return !writer.failed();
}

void BindWeak(std::span<const Redirection> bindings) {
  Writer writer;
  ForEachObject([&](const Object& object) { RedirectSlots(object, bindings, true, &writer); });
}

Held HeldByAnObject(std::span<const Redirection> functions, char* name, size_t name_bytes) {
  OwnMemory memory(kMostSearched);
  bool found = false;
  ForEachObject([&](const Object& object) {
    if (found || object.Holds(reinterpret_cast<void*>(HeldByAnObject))) return;  // we hold them all
    found = !object.HoldsAny(functions) && Keeps(object, functions, &memory);
    if (found) snprintf(name, name_bytes, "%s", FileOf(object));
  });
  if (found) return Held::kYes;
  return memory.exhausted() ? Held::kUnknown : Held::kNo;
}

Called CalledSoFar(std::span<const Redirection> functions, size_t* which) {
  OwnMemory memory(kMostSearched);
  Called answer = Called::kNo;
  bool first = true;
  ForEachObject([&](const Object& object) {
    const bool program = first;
    first = false;
    const bool one_by_one = BindsOneByOne(object);
    Functions by_name = 0;
    for (size_t j = 0; j < functions.size() && answer != Called::kYes; ++j) {
      const Redirection& function = functions[j];
      if (function.from == nullptr || object.Holds(function.from)) continue;
      const void* const* slot = one_by_one ? CallSlot(object, function) : nullptr;
      if (slot != nullptr && *slot == function.from) {
        answer = Called::kYes;
        *which = j;
      } else if (slot == nullptr) {
        by_name |= Functions{1} << j;
      }
    }
    if (!program || answer == Called::kYes) return;
    if (Mentions(object, functions, by_name, &memory)) {
      answer = Called::kMentioned;
    } else if (memory.exhausted()) {
      answer = Called::kUnknown;
    }
  });
  return answer;
}

}  // namespace seqpoint::inject
