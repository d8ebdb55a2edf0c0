#include "injection/base/graph_names.h"

namespace seqpoint::inject {

const char* GraphNames::Name(CUgraphExec graph) {
  LockGuard guard(&lock_);
  Entry* free = nullptr;
  for (uint32_t i = 0; i < used_; ++i) {
    if (entries_[i].graph == graph) return entries_[i].name;
    if (entries_[i].graph == nullptr && free == nullptr) free = &entries_[i];
  }
  if (count_ == kMaxNames) return nullptr;
  if (free == nullptr) {
    if (used_ == kCapacity) return nullptr;
    free = &entries_[used_++];
  }
  Text<24> text;
  text.Append("graph#%u", ++count_);
  *free = {graph, names_->Intern(text.c_str()).text};
  return free->name;
}

void GraphNames::Forget(CUgraphExec graph) {
  LockGuard guard(&lock_);
  for (uint32_t i = 0; i < used_; ++i) {
    if (entries_[i].graph == graph) entries_[i].graph = nullptr;
  }
}

}  // namespace seqpoint::inject
