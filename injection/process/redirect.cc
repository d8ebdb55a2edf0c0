#include "injection/process/redirect.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <initializer_list>

#include "injection/base/system.h"
#include "injection/process/own_memory.h"

namespace seqpoint::inject {
namespace {

// Bytes that one search reads, so that no program waits long: this many take 0.16 s, once. That is
// 16 times what PyTorch's objects have (docs/internals/injected-library.md).
constexpr uint64_t kMostSearched = 256 << 20;

// One loaded object, as its dynamic section describes it.
struct Object {
  const dl_phdr_info* info;
  struct Table {
    const ElfW(Rela) * entries;
    size_t count;
  };
  Table data;   // relocations that are applied when the object is loaded
  Table calls;  // those of calls, which may wait for the first one
  const ElfW(Sym) * symbols;
  const char* names;

  bool Holds(const void* address) const {
    const uintptr_t at = reinterpret_cast<uintptr_t>(address) - info->dlpi_addr;
    for (int i = 0; i < info->dlpi_phnum; ++i) {
      const ElfW(Phdr)& part = info->dlpi_phdr[i];
      if (part.p_type == PT_LOAD && at - part.p_vaddr < part.p_memsz) return true;
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
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    if (info->dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
    dynamic = reinterpret_cast<const ElfW(Dyn)*>(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
  }
  if (dynamic == nullptr) return false;
  uintptr_t data = 0, calls = 0;
  size_t relative = 0;
  for (; dynamic->d_tag != DT_NULL; ++dynamic) {
    // The loader has made addresses of these, but for the kernel's own object.
    const uintptr_t value = dynamic->d_un.d_ptr;
    switch (dynamic->d_tag) {
      case DT_RELA:
        data = value;
        break;
      case DT_RELASZ:
        object->data.count = dynamic->d_un.d_val / sizeof(ElfW(Rela));
        break;
      case DT_RELACOUNT:
        relative = dynamic->d_un.d_val;
        break;
      case DT_JMPREL:
        calls = value;
        break;
      case DT_PLTRELSZ:
        object->calls.count = dynamic->d_un.d_val / sizeof(ElfW(Rela));
        break;
      case DT_SYMTAB:
        object->symbols = reinterpret_cast<const ElfW(Sym)*>(value);
        break;
      case DT_STRTAB:
        object->names = reinterpret_cast<const char*>(value);
        break;
      default:
        break;
    }
  }
  if (!object->Holds(object->symbols) || !object->Holds(object->names)) return false;
  object->data.entries = reinterpret_cast<const ElfW(Rela)*>(data);
  object->calls.entries = reinterpret_cast<const ElfW(Rela)*>(calls);
  if (!object->Holds(object->data.entries)) object->data = {};
  if (!object->Holds(object->calls.entries)) object->calls = {};
  // Relocations without a symbol come first.
  if (relative > object->data.count) relative = object->data.count;
  object->data.entries += relative;
  object->data.count -= relative;
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

uintptr_t Address(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

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

void RedirectSlots(const Object& object, const Object::Table& table,
                   const Redirection* redirections, size_t count, Writer* writer) {
  for (size_t i = 0; i < table.count; ++i) {
    if (!HoldsAddress(table.entries[i])) continue;
    if (object.Symbol(table.entries[i]).st_shndx != SHN_UNDEF) continue;  // the object's own
    const char* name = object.Name(table.entries[i]);
    for (size_t j = 0; j < count; ++j) {
      if (name[0] != redirections[j].name[0] || strcmp(name, redirections[j].name) != 0) continue;
      void** slot = object.Slot(table.entries[i]);
      if (redirections[j].from != nullptr && writer->Holds(slot, Address(redirections[j].from))) {
        writer->Write(slot, Address(redirections[j].to));
      }
      break;
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
  for (size_t i = 0; i < object.calls.count; ++i) {
    const ElfW(Rela)& entry = object.calls.entries[i];
    if (object.Symbol(entry).st_shndx != SHN_UNDEF) continue;  // the object's own function
    if (object.Holds(*object.Slot(entry))) return true;
  }
  return false;
}

// The slot of the object's calls of a function; null: it has none.
const void* const* CallSlot(const Object& object, const Redirection& function) {
  for (size_t i = 0; i < object.calls.count; ++i) {
    const ElfW(Rela)& entry = object.calls.entries[i];
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
bool Mentions(const Object& program, const Redirection* functions, Functions wanted,
              OwnMemory* memory) {
  // What all names begin with is looked for, and then which it is.
  const char* first = nullptr;
  size_t common = 0, longest = 0;
  for (size_t j = 0; wanted >> j != 0; ++j) {
    if ((wanted >> j & 1) == 0) continue;
    const char* name = functions[j].name;
    const size_t length = strlen(name) + 1;
    if (first == nullptr) common = length;
    if (first == nullptr) first = name;
    while (strncmp(name, first, common) != 0) --common;
    if (length > longest) longest = length;
  }
  if (first == nullptr) return false;
  const auto found = [&](const char* text, size_t bytes) {
    const char* const end = text + bytes;
    for (; text < end; ++text) {
      text = static_cast<const char*>(memmem(text, static_cast<size_t>(end - text), first, common));
      if (text == nullptr) return false;
      for (size_t j = 0; wanted >> j != 0; ++j) {
        if ((wanted >> j & 1) == 0) continue;
        const size_t length = strlen(functions[j].name) + 1;
        if (static_cast<size_t>(end - text) < length) continue;
        if (memcmp(text, functions[j].name, length) == 0) return true;
      }
    }
    return false;
  };
  for (int i = 0; i < program.info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = program.info->dlpi_phdr[i];
    if (part.p_type != PT_LOAD || (part.p_flags & PF_R) == 0) continue;
    const uintptr_t begin = program.info->dlpi_addr + part.p_vaddr;
    if (memory->Any(begin, begin + part.p_filesz, longest - 1, found)) return true;
  }
  return false;
}

// The object keeps the address of one of the functions in what it may write.
bool Keeps(const Object& object, const Redirection* functions, size_t count, OwnMemory* memory) {
  uintptr_t lowest = UINTPTR_MAX, highest = 0;
  for (size_t j = 0; j < count; ++j) {
    const uintptr_t address = Address(functions[j].from);
    if (address != 0 && address < lowest) lowest = address;
    if (address > highest) highest = address;
  }
  const auto found = [&](const char* bytes, size_t size) {
    for (size_t i = 0; i + sizeof(uintptr_t) <= size; i += sizeof(uintptr_t)) {
      uintptr_t word;
      memcpy(&word, bytes + i, sizeof(word));
      if (word < lowest || word > highest) continue;
      for (size_t j = 0; j < count; ++j) {
        if (word == Address(functions[j].from)) return true;
      }
    }
    return false;
  };
  for (int i = 0; i < object.info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = object.info->dlpi_phdr[i];
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

bool RedirectCalls(const Redirection* redirections, size_t count) {
  Writer writer;
  for (size_t i = 0; i < count; ++i) RedirectLookups(redirections[i], &writer);
  ForEachObject([&](const Object& object) {
    for (size_t i = 0; i < count; ++i) {
      // The library itself: what it calls of its own is no news.
      if (redirections[i].from != nullptr && object.Holds(redirections[i].from)) return;
    }
    RedirectSlots(object, object.data, redirections, count, &writer);
    RedirectSlots(object, object.calls, redirections, count, &writer);
  });
  return !writer.failed();
}

Held HeldByAnObject(const Redirection* redirections, size_t count, char* name, size_t name_bytes) {
  OwnMemory memory(kMostSearched);
  bool found = false;
  ForEachObject([&](const Object& object) {
    if (found || object.Holds(reinterpret_cast<void*>(HeldByAnObject))) return;  // we hold them all
    for (size_t i = 0; i < count; ++i) {
      if (redirections[i].from != nullptr && object.Holds(redirections[i].from)) return;
    }
    found = Keeps(object, redirections, count, &memory);
    if (found) snprintf(name, name_bytes, "%s", FileOf(object));
  });
  if (found) return Held::kYes;
  return memory.exhausted() ? Held::kUnknown : Held::kNo;
}

void BindWeak(const Binding* bindings, size_t count) {
  Writer writer;
  ForEachObject([&](const Object& object) {
    for (const Object::Table* table : {&object.data, &object.calls}) {
      for (size_t i = 0; i < table->count; ++i) {
        const ElfW(Rela)& entry = table->entries[i];
        const ElfW(Sym)& symbol = object.Symbol(entry);
        if (!HoldsAddress(entry)) continue;
        if (symbol.st_shndx != SHN_UNDEF || ELF64_ST_BIND(symbol.st_info) != STB_WEAK) continue;
        void** slot = object.Slot(entry);
        for (size_t j = 0; j < count; ++j) {
          if (strcmp(object.Name(entry), bindings[j].name) != 0 || !writer.Holds(slot, 0)) continue;
          writer.Write(slot, Address(bindings[j].function));
        }
      }
    }
  });
}

Called CalledSoFar(const Redirection* redirections, size_t count, size_t* which) {
  OwnMemory memory(kMostSearched);
  Called answer = Called::kNo;
  bool first = true;
  ForEachObject([&](const Object& object) {
    const bool program = first;
    first = false;
    const bool one_by_one = BindsOneByOne(object);
    Functions by_name = 0;
    for (size_t j = 0; j < count && answer != Called::kYes; ++j) {
      const Redirection& function = redirections[j];
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
    if (Mentions(object, redirections, by_name, &memory)) {
      answer = Called::kMentioned;
    } else if (memory.exhausted()) {
      answer = Called::kUnknown;
    }
  });
  return answer;
}

}  // namespace seqpoint::inject
