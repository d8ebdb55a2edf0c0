// Which GEMM kernel a shape gets, as cuBLAS picks by shape: small problems run on the fp32 pipes,
// long inner dimensions with few output tiles are split, the rest goes to tensor-core tiles.
// Pure; any thread.
#ifndef SEQPOINT_TESTS_WORKLOADS_GEMM_VARIANT_H_
#define SEQPOINT_TESTS_WORKLOADS_GEMM_VARIANT_H_

namespace seqpoint::workload {

enum class GemmTile { k32x32, k64x64, k128x64, k128x128, kSplitK };

struct GemmVariant {
  GemmTile tile;
  int splits;  // of the inner dimension; 1 unless tile is kSplitK
};

// C is m x n, the inner dimension k. At most `max_splits` partial results fit the workspace.
inline GemmVariant PickGemm(int m, int n, int k, int batch, int max_splits) {
  auto tiles = [&](int rows, int columns) {
    return static_cast<long long>((m + rows - 1) / rows) * ((n + columns - 1) / columns) * batch;
  };
  if (m <= 32 || n <= 32) return {GemmTile::k32x32, 1};
  // 128: about one wave of a large GPU.
  if (batch == 1 && k >= 1024 && tiles(64, 64) < 128 && max_splits >= 2) {
    int splits = k / 512;
    if (splits > 8) splits = 8;
    return {GemmTile::kSplitK, splits < max_splits ? splits : max_splits};
  }
  if (tiles(128, 128) >= 128) return {GemmTile::k128x128, 1};
  if (m >= 128 && tiles(128, 64) >= 128) return {GemmTile::k128x64, 1};
  return {GemmTile::k64x64, 1};
}

}  // namespace seqpoint::workload

#endif  // SEQPOINT_TESTS_WORKLOADS_GEMM_VARIANT_H_
