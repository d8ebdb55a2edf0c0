// Matrices from NumPy's .npz: what scipy.sparse.save_npz wrote of one layer, or numpy.savez of the
// tensors of a pruned PyTorch model. Format: docs/formats/partition-files.md, "Networks".
//
// Sources: numpy.lib.format (the .npy header), APPNOTE.TXT of PKWARE (the archive),
// scipy/sparse/_matrix_io.py (names of the arrays). Threading: free functions. Ownership: values.
#ifndef SEQPOINT_DAEMON_SPARSE_NPZ_H_
#define SEQPOINT_DAEMON_SPARSE_NPZ_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/sparse/matrix_text.h"

namespace seqpoint::sparse {

// One matrix of a file that scipy wrote; else one for each two-dimensional array, in the order of
// the archive; arrays with fewer dimensions (biases) are no layers. Rows are neurons, columns
// inputs, as in torch.nn.Linear.weight. InvalidArgument: one sentence with the file and the array.
absl::StatusOr<std::vector<MatrixEntries>> ReadNpz(std::string_view bytes, const std::string& file);

}  // namespace seqpoint::sparse

#endif  // SEQPOINT_DAEMON_SPARSE_NPZ_H_
