// The function that the module libseqpoint_sgd_cusparse.so exports. The module alone links CUDA, so
// that seqpoint-sgd starts where there is none.
//
// Threading: one thread. Ownership: the caller's.
#ifndef CLIENT_SGD_CUSPARSE_PRODUCT_H_
#define CLIENT_SGD_CUSPARSE_PRODUCT_H_

#include "client/sgd/local_product.h"

inline constexpr const char* kCusparseModule = "libseqpoint_sgd_cusparse.so";

extern "C" {

// Takes a GPU for this process, the ranks of a machine in turns. Null, or why there is none; valid
// until the process ends. Before the first product.
const char* seqpoint_sgd_open_gpu(int rank_of_machine);

// A later error of CUDA or cuSPARSE ends the program with a sentence and exit code 1.
seqpoint::sgd::LocalProduct* seqpoint_sgd_cusparse_product(seqpoint::sgd::Weights* weights);
}

#endif  // CLIENT_SGD_CUSPARSE_PRODUCT_H_
