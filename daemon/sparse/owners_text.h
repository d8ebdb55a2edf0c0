// The files that `seqpoint partition -o DIR` writes: docs/formats/partition-files.md, "What is
// written".
//
// Threading: free functions. Ownership: values.
#ifndef SEQPOINT_DAEMON_SPARSE_OWNERS_TEXT_H_
#define SEQPOINT_DAEMON_SPARSE_OWNERS_TEXT_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/sparse/network.h"
#include "daemon/sparse/volume.h"

namespace seqpoint::sparse {

// Row L: the parts of the neurons of layer L, the inputs first, separated by blanks.
std::string WriteOwners(const Owners& owners);

// InvalidArgument names `file` and the line. CheckOwners says whether the owners are those of a
// network.
absl::StatusOr<Owners> ReadOwners(std::string_view text, const std::string& file);

// A row for each message: layer (from 1 on), sender, receiver, then the neurons of the layer before
// (from 0 on).
std::string WriteSendLists(const std::vector<Message>& messages);

}  // namespace seqpoint::sparse

#endif  // SEQPOINT_DAEMON_SPARSE_OWNERS_TEXT_H_
