// Functions of CUPTI, which is loaded already, as other objects see them: which ones they have
// called so far, and how their calls go through functions of ours from now on. No code is changed.
// The pointers by which other objects reach the functions are changed, as the loader itself would
// have set them if our functions came first:
//
//   * slots of the relocation tables of all loaded objects that hold a function's address;
//   * a function's entry in its library's symbol table. dlsym, and objects that are loaded later,
//     take the address from there.
//
// A pointer that somebody took by dlsym before stays what it was. HeldByAnObject finds those that
// loaded objects keep.
//
// Threading: one thread at a time. A call of another thread goes to the one function or the other.
#ifndef SEQPOINT_INJECTION_PROCESS_REDIRECT_H_
#define SEQPOINT_INJECTION_PROCESS_REDIRECT_H_

#include <stddef.h>

#include <span>

namespace seqpoint::inject {

struct Redirection {
  const char* name;  // as the library exports it
  void* from;        // the library's function; null: it has none of this name
  void* to;
};
// False: the kernel lets nobody write the pointers, and calls do not reach our functions.
bool RedirectCalls(std::span<const Redirection> redirections);
// An object that asks for a name weakly, and found nobody, has `to` from now on. `from` is null.
void BindWeak(std::span<const Redirection> bindings);

// Does an object keep the address of one of these functions in its data, in another place than a
// slot that RedirectCalls has changed? Then it has looked the function up. `name` gets the object's
// file. Pointers on the heap, on stacks and in memory that nobody may read are not found.
enum class Held { kNo, kYes, kUnknown };  // kUnknown: there is too much data to search
Held HeldByAnObject(std::span<const Redirection> functions, char* name, size_t name_bytes);

// Has an object called one of these functions (at most 64)? `which` gets the first that was called.
enum class Called {
  kNo,         // no object imports them, or those that do have never called them
  kYes,        // an object that binds its calls one by one has bound it
  kMentioned,  // the program itself binds everything at once, or finds functions by their names
  kUnknown,    // the program is too large to search it for their names
};
Called CalledSoFar(std::span<const Redirection> functions, size_t* which);

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_PROCESS_REDIRECT_H_
