// Fuzz target of the blocks of iterations in PostgreSQL. Nothing may crash; what is read has
// lengths that a row can have, and is read again once it was written.
//
// Input: an even first byte, then a block as it is stored. An odd one, then what its frame holds.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "daemon/base/zstd_frame.h"
#include "daemon/store/iteration_block.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  std::string_view input(reinterpret_cast<const char*>(bytes), size);
  if (input.empty()) return 0;
  input.remove_prefix(1);
  const auto rows = bytes[0] % 2 == 0 ? seqpoint::UnpackBlock(input, 1, 0)
                                      : seqpoint::UnpackBlock(seqpoint::ToZstdFrame(input), 1, 0);
  if (!rows.ok()) return 0;
  for (const seqpoint::IterationRow& row : *rows) {
    if (row.length_count < 0 || row.length_count > 2) abort();
  }
  const auto again = seqpoint::UnpackBlock(seqpoint::PackBlock(*rows), 1, 0);
  if (!again.ok() || again->size() != rows->size()) abort();
  return 0;
}
