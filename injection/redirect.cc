#include "injection/redirect.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "injection/system.h"

namespace seqpoint::inject {
namespace {

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

// The loader is locked meanwhile. A visit calls nothing that takes its other lock (dlsym, dladdr):
// a thread that loads an object takes that one first, and then waits for this one.
template <typename Visit>
void ForEachObject(const Visit& visit) {
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        Object object;
        if (Describe(info, &object)) (*static_cast<const Visit*>(data))(object);
        return 0;
      },
      const_cast<Visit*>(&visit));
}

// Writes words that the loader has made read-only when it was done with them, past the protection:
// changing it, and back, would race with the loader where another thread loads an object.
class Writer {
 public:
  Writer() : file_(open("/proc/self/mem", O_RDWR | O_CLOEXEC)) {}
  ~Writer() {
    if (file_ >= 0) close(file_);
  }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  void Write(void* place, uintptr_t value) {
    const auto at = static_cast<off_t>(reinterpret_cast<uintptr_t>(place));
    if (file_ >= 0 && pwrite(file_, &value, sizeof(value), at) == sizeof(value)) return;
    failed_ = true;
  }
  bool failed() const { return failed_; }

 private:
  int file_;
  bool failed_ = false;
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
    void** slot = object.Slot(table.entries[i]);
    for (size_t j = 0; j < count; ++j) {
      if (redirections[j].from == nullptr || *slot != redirections[j].from) continue;
      if (strcmp(object.Name(table.entries[i]), redirections[j].name) != 0) continue;
      writer->Write(slot, Address(redirections[j].to));
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

// The program's own text holds the name: it may ask the loader for it.
bool Mentions(const Object& object, const char* name) {
  const size_t length = strlen(name) + 1;
  for (int i = 0; i < object.info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = object.info->dlpi_phdr[i];
    if (part.p_type != PT_LOAD || (part.p_flags & PF_R) == 0) continue;
    const void* begin = reinterpret_cast<const void*>(object.info->dlpi_addr + part.p_vaddr);
    if (memmem(begin, part.p_filesz, name, length) != nullptr) return true;
  }
  return false;
}

// Looks for words in the memory of this process. Reads it through the kernel: an object may have
// forbidden access to a part of its own data.
class WordSearch {
 public:
  WordSearch(const Redirection* functions, size_t count)
      : file_(open("/proc/self/mem", O_RDONLY | O_CLOEXEC)),
        page_bytes_(static_cast<size_t>(sysconf(_SC_PAGESIZE))),
        functions_(functions),
        count_(count) {
    for (size_t i = 0; i < count; ++i) {
      const uintptr_t address = Address(functions[i].from);
      if (address == 0) continue;
      if (address < lowest_) lowest_ = address;
      if (address > highest_) highest_ = address;
    }
  }
  ~WordSearch() {
    if (file_ >= 0) close(file_);
  }
  WordSearch(const WordSearch&) = delete;
  WordSearch& operator=(const WordSearch&) = delete;

  // In what the object may write. Pages that nobody has used yet are left alone.
  bool FindsIn(const Object& object) const {
    for (int i = 0; i < object.info->dlpi_phnum; ++i) {
      const ElfW(Phdr)& part = object.info->dlpi_phdr[i];
      if (part.p_type != PT_LOAD || (part.p_flags & PF_W) == 0) continue;
      const uintptr_t begin = object.info->dlpi_addr + part.p_vaddr;
      const uintptr_t end = begin + part.p_memsz;
      unsigned char used[512];
      for (uintptr_t at = begin & ~(page_bytes_ - 1); at < end; at += sizeof(used) * page_bytes_) {
        const size_t left = (end - at + page_bytes_ - 1) / page_bytes_;
        const size_t pages = left < sizeof(used) ? left : sizeof(used);
        if (mincore(reinterpret_cast<void*>(at), pages * page_bytes_, used) != 0) continue;
        for (size_t j = 0; j < pages; ++j) {
          if ((used[j] & 1) != 0 && FindsIn(at + j * page_bytes_)) return true;
        }
      }
    }
    return false;
  }

 private:
  bool FindsIn(uintptr_t page) const {
    uintptr_t words[512];
    for (uintptr_t at = page; at < page + page_bytes_; at += sizeof(words)) {
      const ssize_t bytes = pread(file_, words, sizeof(words), static_cast<off_t>(at));
      for (ssize_t i = 0; i < bytes / static_cast<ssize_t>(sizeof(words[0])); ++i) {
        if (words[i] < lowest_ || words[i] > highest_) continue;
        for (size_t j = 0; j < count_; ++j) {
          if (words[i] == Address(functions_[j].from)) return true;
        }
      }
    }
    return false;
  }

  int file_;
  uintptr_t page_bytes_;
  const Redirection* functions_;
  size_t count_;
  uintptr_t lowest_ = UINTPTR_MAX, highest_ = 0;
};

const char* FileOf(const Object& object) {
  const char* path = object.info->dlpi_name;
  if (path == nullptr || path[0] == '\0') return "the program";
  const char* slash = strrchr(path, '/');
  return slash == nullptr ? path : slash + 1;
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

bool HeldByAnObject(const Redirection* redirections, size_t count, char* name, size_t name_bytes) {
  const WordSearch search(redirections, count);
  bool found = false;
  ForEachObject([&](const Object& object) {
    if (found || object.Holds(reinterpret_cast<void*>(HeldByAnObject))) return;  // we hold them all
    for (size_t i = 0; i < count; ++i) {
      if (redirections[i].from != nullptr && object.Holds(redirections[i].from)) return;
    }
    found = search.FindsIn(object);
    if (found) snprintf(name, name_bytes, "%s", FileOf(object));
  });
  return found;
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
        if (*slot != nullptr) continue;
        for (size_t j = 0; j < count; ++j) {
          if (strcmp(object.Name(entry), bindings[j].name) != 0) continue;
          writer.Write(slot, Address(bindings[j].function));
        }
      }
    }
  });
}

Called CalledSoFar(const Redirection* redirections, size_t count, size_t* which) {
  Called answer = Called::kNo;
  bool first = true;
  ForEachObject([&](const Object& object) {
    const bool program = first;
    first = false;
    const bool one_by_one = BindsOneByOne(object);
    for (size_t j = 0; j < count && answer != Called::kYes; ++j) {
      const Redirection& function = redirections[j];
      if (function.from == nullptr || object.Holds(function.from)) continue;
      const void* const* slot = one_by_one ? CallSlot(object, function) : nullptr;
      if (slot != nullptr && *slot == function.from) {
        answer = Called::kYes;
        *which = j;
      } else if (slot == nullptr && program && answer == Called::kNo &&
                 Mentions(object, function.name)) {
        answer = Called::kUnknown;
        *which = j;
      }
    }
  });
  return answer;
}

}  // namespace seqpoint::inject
