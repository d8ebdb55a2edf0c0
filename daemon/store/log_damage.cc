#include "daemon/store/log_damage.h"

#include <string.h>

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <vector>

namespace seqpoint {
namespace {

constexpr size_t kHeaderBytes = 32;
constexpr size_t kFrameHeaderBytes = 24;
constexpr uint32_t kMagic = 0x377f0682;  // the lowest bit: checksums of big-endian words

uint32_t BigEndian(const uint8_t* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
}

struct Checksum {
  uint32_t first = 0, second = 0;
  bool operator==(const Checksum&) const = default;

  static Checksum Stored(const uint8_t* bytes) { return {BigEndian(bytes), BigEndian(bytes + 4)}; }

  void Add(const uint8_t* bytes, size_t size, bool big_endian) {
    const auto word = [&](size_t i) {
      const uint32_t value = BigEndian(bytes + i);
      return big_endian ? value : __builtin_bswap32(value);
    };
    for (size_t i = 0; i + 8 <= size; i += 8) {
      first += word(i) + second;
      second += word(i + 4) + first;
    }
  }
};

bool IsPageSize(uint32_t size) { return size >= 512 && size <= 65536 && (size & (size - 1)) == 0; }

// As the database has it; SQLite's default where that is empty yet.
uint32_t DatabasePageBytes(const std::string& path) {
  uint8_t header[18] = {};
  std::ifstream(path, std::ios::binary).read(reinterpret_cast<char*>(header), sizeof header);
  uint32_t size = uint32_t{header[16]} << 8 | header[17];
  if (size == 1) size = 65536;
  return IsPageSize(size) ? size : 4096;
}

// How many frames of the log were committed, as the log's index says, which outlives a killed
// daemon; 0 where there is none, or one of another log.
uint32_t CommittedFrames(const std::string& path, const uint8_t* salts) {
  // sqlite.org/walformat.html, section 2: version, 0, change, initialised, order, page size,
  // frames, pages, checksum, salts, checksum; then the same again.
  constexpr size_t kIndexHeaderBytes = 48;
  uint8_t header[2 * kIndexHeaderBytes];
  std::ifstream index(path + "-shm", std::ios::binary);
  if (!index.read(reinterpret_cast<char*>(header), sizeof header) || header[12] != 1 ||
      memcmp(header, header + kIndexHeaderBytes, kIndexHeaderBytes) != 0 ||
      memcmp(header + 32, salts, 8) != 0) {
    return 0;
  }
  uint32_t frames;
  memcpy(&frames, header + 16, sizeof frames);  // of this machine's byte order
  return frames;
}

}  // namespace

std::optional<LogDamage> FindLogDamage(const std::string& store_path) {
  std::ifstream log(store_path + "-wal", std::ios::binary);
  uint8_t header[kHeaderBytes];
  if (!log.read(reinterpret_cast<char*>(header), sizeof header)) return std::nullopt;
  const bool big_endian = (header[3] & 1) != 0;
  Checksum sum;
  sum.Add(header, 24, big_endian);
  Checksum before = Checksum::Stored(header + 24);
  const bool header_holds =
      (BigEndian(header) & ~1u) == kMagic && sum == before && IsPageSize(BigEndian(header + 8));
  const uint32_t page_bytes = header_holds ? BigEndian(header + 8) : DatabasePageBytes(store_path);
  const uint8_t* salts = header_holds ? header + 16 : nullptr;

  LogDamage damage;
  bool whole = header_holds;    // so far: SQLite reads up to here
  bool damaged_commit = false;  // of the frame before, if that is what it was
  std::vector<uint8_t> frame(kFrameHeaderBytes + page_bytes);
  std::vector<uint8_t> first_frame;
  uint32_t frames = 0, read_frames = 0;  // all so far; those that SQLite reads
  int64_t offset = kHeaderBytes;
  for (;
       log.read(reinterpret_cast<char*>(frame.data()), static_cast<std::streamsize>(frame.size()));
       offset += static_cast<int64_t>(frame.size())) {
    if (salts == nullptr) {  // a damaged header does not tell them
      first_frame.assign(frame.begin(), frame.end());
      salts = first_frame.data() + 8;
    }
    sum = before;
    sum.Add(frame.data(), 8, big_endian);
    sum.Add(frame.data() + kFrameHeaderBytes, page_bytes, big_endian);
    before = Checksum::Stored(frame.data() + 16);
    // Other frames are left from before the log was started again.
    const bool current = std::equal(salts, salts + 8, frame.data() + 8);
    const bool holds = current && sum == before;
    const bool commits = BigEndian(frame.data() + 4) != 0;
    ++frames;
    if (whole && holds && commits) read_frames = frames;
    if (whole && !holds) {
      whole = false;
      damage.offset = offset;
      damaged_commit = commits;
      continue;
    }
    if (whole) continue;
    // A frame that goes on from the damaged one shows that this was whole when it was written.
    if (holds) damage.transactions += int{commits} + int{damaged_commit};
    damaged_commit = false;
  }
  if (damage.transactions == 0 && salts != nullptr &&
      CommittedFrames(store_path, salts) > read_frames) {
    damage.transactions = 1;  // at least
    if (whole) damage.offset = offset;
  }
  if (damage.transactions == 0) return std::nullopt;
  return damage;
}

}  // namespace seqpoint
