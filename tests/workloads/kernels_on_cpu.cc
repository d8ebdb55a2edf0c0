// kernels.cu as plain C++, for the tests that run kernels on the CPU.
#include "tests/workloads/kernels.cu"
