// Functions of a library that is loaded already, seen by whoever calls them: which of them were
// called so far, and calls from now on that go through functions of ours. Nothing of the library's
// code is changed. What is changed are the pointers by which other objects reach it, as the loader
// itself would have set them had our function come first:
//
//   * slots of the relocation tables of all loaded objects that hold the function's address;
//   * the function's entry in its library's symbol table, from which dlsym and objects that are
//     loaded later take the address.
//
// A pointer that somebody took by dlsym before stays what it was; HeldByAnObject finds those that
// loaded objects keep.
//
// Threading: one thread at a time. Calls of other threads go to the one or the other function.
#ifndef SEQPOINT_INJECTION_PROCESS_REDIRECT_H_
#define SEQPOINT_INJECTION_PROCESS_REDIRECT_H_

#include <stddef.h>

namespace seqpoint::inject {

struct Redirection {
  const char* name;  // as the library exports it
  void* from;        // the library's function; null: it has none of this name
  void* to;
};
// False: the kernel lets nobody write the pointers, and calls go past our functions.
bool RedirectCalls(const Redirection* redirections, size_t count);

// Does an object keep the address of one of these functions in its data, other than in a slot that
// RedirectCalls has changed? It has looked the function up. `name`: the object's file. Pointers on
// the heap and on stacks, and in memory that nobody may read, are not found.
enum class Held { kNo, kYes, kUnknown };  // kUnknown: there is too much data to search
Held HeldByAnObject(const Redirection* redirections, size_t count, char* name, size_t name_bytes);

// Where an object asks for `name` weakly and found nobody, it has `function` afterwards.
struct Binding {
  const char* name;
  void* function;
};
void BindWeak(const Binding* bindings, size_t count);

// Did an object call one of these functions so far (at most 64)? `which`: the first that was.
enum class Called {
  kNo,         // nobody imports them, or those that do never called them
  kYes,        // an object that binds its calls one by one has bound it
  kMentioned,  // the program itself binds everything at once, or finds functions by their names
  kUnknown,    // the program is too large to search it for their names
};
Called CalledSoFar(const Redirection* redirections, size_t count, size_t* which);

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_PROCESS_REDIRECT_H_
