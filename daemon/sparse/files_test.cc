// The files of sparse networks: what is read, what is refused and with which words.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "daemon/sparse/matrix_text.h"
#include "daemon/sparse/npz.h"
#include "daemon/sparse/owners_text.h"
#include "daemon/sparse/radixnet.h"
#include "tests/support/shared_traces.h"

namespace seqpoint::sparse {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kMarket =
    "%%MatrixMarket matrix coordinate real general\n% a comment\n3 2 4\n1 1 0.5\n2 1 0.25\n"
    "2 2 -1\n3 2 0.125\n";
constexpr const char* kTsv = "1\t1\t5.000000e-01\n1\t2\t2.5e-1\n2\t2\t-1\n2\t3\t0.125\n";

absl::StatusOr<Network> OneLayer(absl::StatusOr<MatrixEntries> matrix, int32_t neurons = 0) {
  if (!matrix.ok()) return matrix.status();
  std::vector<MatrixEntries> matrices;
  matrices.push_back(*std::move(matrix));
  return MakeNetwork(std::move(matrices), neurons);
}

void ExpectSmallLayer(const Layer& layer) {
  EXPECT_EQ(layer.rows, 3);
  EXPECT_EQ(layer.columns, 2);
  EXPECT_THAT(layer.row_begin, ElementsAre(0, 1, 3, 4));
  EXPECT_THAT(layer.column, ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(layer.weight, ElementsAre(0.5, 0.25, -1, 0.125));
}

TEST(MatrixTextTest, BothFormsOfALayerAreTheSame) {
  const auto market = OneLayer(ReadMatrixMarket(kMarket, "a.mtx"));
  ASSERT_TRUE(market.ok()) << market.status();
  ExpectSmallLayer(market->layers[0]);
  const auto tsv = OneLayer(ReadTsv(kTsv, "a.tsv"));
  ASSERT_TRUE(tsv.ok()) << tsv.status();
  ExpectSmallLayer(tsv->layers[0]);
}

TEST(MatrixTextTest, SymmetricAndPatternFiles) {
  const auto network = OneLayer(ReadMatrixMarket(
      "%%MatrixMarket MATRIX Coordinate Pattern Symmetric\r\n2 2 2\r\n1 1\r\n2 1\r\n", "a"));
  ASSERT_TRUE(network.ok()) << network.status();
  EXPECT_THAT(network->layers[0].column, ElementsAre(0, 1, 0));
  EXPECT_THAT(network->layers[0].weight, ElementsAre(1, 1, 1));
}

TEST(MatrixTextTest, TsvHasTheSizeOfItsNeighbourOrTheOneThatIsSaid) {
  std::vector<MatrixEntries> matrices = {
      *ReadTsv("1 2 1\n4 1 1\n", "l1.tsv"),
      *ReadMatrixMarket("%%MatrixMarket matrix coordinate real general\n"
                        "2 5 1\n1 5 1\n",
                        "l2.mtx")};
  const auto network = MakeNetwork(matrices, 7);
  ASSERT_TRUE(network.ok()) << network.status();
  EXPECT_EQ(network->layers[0].columns, 7);
  EXPECT_EQ(network->layers[0].rows, 5);
  const auto largest = MakeNetwork(matrices);
  ASSERT_TRUE(largest.ok());
  EXPECT_EQ(largest->layers[0].columns, 4);
}

TEST(MatrixTextTest, BadFilesAreRefusedWithFileAndLine) {
  const auto tsv = [](const std::string& text) {
    return std::string(OneLayer(ReadTsv(text, "w.tsv"), 4).status().message());
  };
  EXPECT_EQ(tsv("1 1 1\n2 5 1\n"), "w.tsv:2: neuron 5 of a layer with 4 neurons");
  EXPECT_EQ(tsv("1 1 1\n5 2 1\n"), "w.tsv:2: input 5 of a layer with 4 inputs");
  EXPECT_THAT(tsv("0 1 1\n"), StartsWith("w.tsv:1: the source is 0; it is from 1 to "));
  EXPECT_EQ(tsv("1 1.5 1\n"), "w.tsv:1: the target is \"1.5\", not a whole number");
  EXPECT_EQ(tsv("1 1 1\n1 1\n"), "w.tsv:2: the weight is \"\", not a number");
  EXPECT_EQ(tsv("1 1 nan\n"), "w.tsv:1: the weight is \"nan\", not a finite number of 32 bits");
  EXPECT_EQ(tsv("1 1 1e99\n"), "w.tsv:1: the weight is \"1e99\", not a finite number of 32 bits");
  EXPECT_EQ(tsv("1 1 1 4\n"), "w.tsv:1: there is \"4\" behind the last column");
  EXPECT_THAT(tsv("1 1 1\n2 2 1"), StartsWith("w.tsv:2: the last line has no line end"));
  EXPECT_EQ(tsv("1 1 1\n\n1 2 1\n1 1 2\n"),
            "w.tsv:4: the nonzero from input 1 to neuron 1 is there twice, first in line 1");
  EXPECT_EQ(tsv(""), "w.tsv: the layer has no nonzeros");
  EXPECT_EQ(tsv(std::string("\x00\x7fGIF", 5)),
            "w.tsv:1: the source is \"\\x00\\x7fGIF\", not a whole number");

  const auto market = [](const std::string& text) {
    return std::string(OneLayer(ReadMatrixMarket(text, "w.mtx")).status().message());
  };
  const std::string banner = "%%MatrixMarket matrix coordinate real general\n";
  EXPECT_THAT(market("%%MatrixMarket matrix array real general\n"),
              StartsWith("w.mtx:1: the first line is "));
  EXPECT_EQ(market(banner + "2 2 2\n1 1 1\n"),
            "w.mtx: the file was cut off: it has 1 of the 2 nonzeros that its size line says");
  EXPECT_EQ(market(banner + "2 2 1\n1 1 1\n1 2 1\n"),
            "w.mtx:4: there are more nonzeros than the 1 of the size line");
  EXPECT_EQ(market(banner + "2 2 1\n3 1 1\n"), "w.mtx:3: the row is 3; it is from 1 to 2");
  EXPECT_THAT(market(banner), StartsWith("w.mtx:1: the number of rows is"));
}

TEST(MatrixTextTest, ShapesThatDoNotChainNameBothFiles) {
  std::vector<MatrixEntries> matrices = {*ReadMatrixMarket(kMarket, "a.mtx"),
                                         *ReadMatrixMarket(kMarket, "b.mtx")};
  EXPECT_EQ(MakeNetwork(matrices).status().message(),
            "b.mtx: the layer has 2 inputs (columns), and the one before, a.mtx, has 3 neurons "
            "(rows)");
}

// Archives as numpy.savez and savez_compressed make them.
class Archive {
 public:
  void Add(const std::string& name, const std::string& data, bool packed = false) {
    std::string content = data;
    if (packed) {
      content.resize(compressBound(data.size()));
      z_stream stream = {};
      deflateInit2(&stream, 9, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(data.data()));
      stream.avail_in = static_cast<uInt>(data.size());
      stream.next_out = reinterpret_cast<Bytef*>(content.data());
      stream.avail_out = static_cast<uInt>(content.size());
      deflate(&stream, Z_FINISH);
      content.resize(stream.total_out);
      deflateEnd(&stream);
    }
    const auto u16 = [](int v) {
      return std::string{static_cast<char>(v), static_cast<char>(v >> 8)};
    };
    const auto u32 = [&](size_t v) {
      return u16(static_cast<int>(v & 0xffff)) + u16(static_cast<int>(v >> 16));
    };
    const std::string sizes = u32(0) + u32(content.size()) + u32(data.size());
    const std::string method = u16(packed ? 8 : 0);
    directory_ += "PK\x01\x02" + u16(20) + u16(20) + u16(0) + method + u32(0) + sizes +
                  u16(static_cast<int>(name.size())) + u16(0) + u16(0) + u16(0) + u16(0) + u32(0) +
                  u32(bytes_.size()) + name;
    bytes_ += "PK\x03\x04" + u16(20) + u16(0) + method + u32(0) + sizes +
              u16(static_cast<int>(name.size())) + u16(0) + name + content;
    ++count_;
    end_ = "PK\x05\x06" + u16(0) + u16(0) + u16(count_) + u16(count_) + u32(directory_.size()) +
           u32(bytes_.size()) + u16(0);
  }
  std::string bytes() const { return bytes_ + directory_ + end_; }

 private:
  std::string bytes_, directory_, end_;
  int count_ = 0;
};

template <typename T>
std::string Npy(const std::string& type, const std::string& shape, const std::vector<T>& values,
                bool by_columns = false) {
  std::string header =
      absl::StrCat("{'descr': '", type, "', 'fortran_order': ", by_columns ? "True" : "False",
                   ", 'shape': (", shape, "), }\n");
  std::string bytes("\x93NUMPY\x01\x00", 8);
  bytes += static_cast<char>(header.size());
  bytes += '\0';
  bytes += header;
  const size_t at = bytes.size();
  bytes.resize(at + values.size() * sizeof(T));
  if (!values.empty()) memcpy(bytes.data() + at, values.data(), values.size() * sizeof(T));
  return bytes;
}

TEST(NpzTest, ALayerOfScipy) {
  for (const bool by_columns : {false, true}) {
    Archive archive;
    const std::vector<int32_t> by_rows = {0, 0, 1, 1}, rows = {0, 1, 1, 2};
    archive.Add("indices.npy", Npy<int32_t>("<i4", "4,", by_columns ? rows : by_rows));
    archive.Add("indptr.npy", by_columns ? Npy<int32_t>("<i4", "3,", {0, 2, 4})
                                         : Npy<int32_t>("<i4", "4,", {0, 1, 3, 4}));
    archive.Add("format.npy", Npy<char>("|S3", "",
                                        by_columns ? std::vector<char>{'c', 's', 'c'}
                                                   : std::vector<char>{'c', 's', 'r'}));
    archive.Add("shape.npy", Npy<int64_t>("<i8", "2,", {3, 2}));
    archive.Add("data.npy", Npy<double>("<f8", "4,", {0.5, 0.25, -1, 0.125}), /*packed=*/true);
    auto matrices = ReadNpz(archive.bytes(), "a.npz");
    ASSERT_TRUE(matrices.ok()) << matrices.status();
    const auto network = MakeNetwork(*std::move(matrices));
    ASSERT_TRUE(network.ok()) << network.status();
    ExpectSmallLayer(network->layers[0]);
  }
}

TEST(NpzTest, TheTensorsOfAPrunedModel) {
  Archive archive;
  archive.Add("0.weight.npy", Npy<float>("<f4", "3, 2", {0.5, 0, 0.25, -1, 0, 0.125}), true);
  archive.Add("0.bias.npy", Npy<float>("<f4", "3,", {1, 2, 3}));
  archive.Add("2.weight.npy",
              Npy<uint16_t>("<f2", "2, 3", {0x3c00, 0, 0, 0, 0xb800, 0x0001}, true));
  auto matrices = ReadNpz(archive.bytes(), "a.npz");
  ASSERT_TRUE(matrices.ok()) << matrices.status();
  const auto network = MakeNetwork(*std::move(matrices));
  ASSERT_TRUE(network.ok()) << network.status();
  ASSERT_EQ(network->layers.size(), 2);
  ExpectSmallLayer(network->layers[0]);
  // Column by column: (1, 0), (0, 0), (-0.5, 2^-24).
  EXPECT_EQ(network->layers[1].rows, 2);
  EXPECT_THAT(network->layers[1].column, ElementsAre(0, 2, 2));
  EXPECT_THAT(network->layers[1].weight, ElementsAre(1, -0.5, std::ldexp(1.0F, -24)));
}

TEST(NpzTest, BadArchivesAreRefusedWithFileAndArray) {
  const auto read = [](const std::string& name, const std::string& array) {
    Archive archive;
    archive.Add(name, array);
    return std::string(ReadNpz(archive.bytes(), "a.npz").status().message());
  };
  EXPECT_THAT(read("w.npy", Npy<float>("<f4", "2, 2", {1, NAN, 0, 1})),
              HasSubstr("a.npz, array \"w\": the weight in row 0, column 1 is nan"));
  EXPECT_THAT(read("w.npy", Npy<float>("<f4", "2, 2", {1, 2})), HasSubstr("4 elements"));
  EXPECT_THAT(read("w.npy", Npy<float>(">f4", "1, 2", {1, 2})), HasSubstr("\">f4\""));
  EXPECT_THAT(read("w.npy", Npy<float>("<f4", "1, 1, 2", {1, 2})), HasSubstr("3 dimensions"));
  EXPECT_THAT(read("w.npy", "rubbish that is no array"), HasSubstr("no NumPy array"));
  EXPECT_THAT(read("b.npy", Npy<float>("<f4", "2,", {1, 2})),
              HasSubstr("no two-dimensional array"));
  EXPECT_EQ(ReadNpz("rubbish", "a.npz").status().message(), "a.npz: no .npz archive, or cut off");
  Archive archive;
  archive.Add("w.npy", Npy<float>("<f4", "64, 64", std::vector<float>(4096, 1)), true);
  const std::string whole = archive.bytes();
  ASSERT_TRUE(ReadNpz(whole, "a").ok());
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(ReadNpz(whole.substr(0, size), "a").ok());
  }
}

TEST(OwnersTextTest, ReadsWhatItWrites) {
  const Owners owners = {{0, 1}, {0, 1, 1}, {1}};
  EXPECT_EQ(WriteOwners(owners), "0 1\n0 1 1\n1\n");
  const auto read = ReadOwners(WriteOwners(owners), "owners.txt");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, owners);
  EXPECT_EQ(WriteSendLists({{0, 0, 1, {0, 5}}}), "1 0 1 0 5\n");
}

TEST(OwnersTextTest, BadRowsAreRefusedWithFileAndLine) {
  const auto read = [](const std::string& text) {
    return std::string(ReadOwners(text, "o.txt").status().message());
  };
  EXPECT_EQ(read("0 1\n0 x\n"), "o.txt:2: part 2 is \"x\", not a whole number from 0 on");
  EXPECT_EQ(read("0 1\n-1\n"), "o.txt:2: part 1 is \"-1\", not a whole number from 0 on");
  EXPECT_EQ(read("0 1\n\n1\n"), "o.txt:2: a layer without neurons");
  EXPECT_EQ(read("0 1\n1"), "o.txt: the last line has no line end: the file was cut off");
}

TEST(RadixNetTest, SizesThatAreNone) {
  const auto message = [](const std::string& text) {
    return std::string(ParseRadixNetSize(text).status().message());
  };
  EXPECT_TRUE(ParseRadixNetSize("65536x120").ok());
  EXPECT_THAT(message("1024"), HasSubstr("is not NEURONSxLAYERS"));
  EXPECT_THAT(message("1024x2x3"), HasSubstr("is not NEURONSxLAYERS"));
  EXPECT_THAT(message("1000x6"), HasSubstr("16 times a power of two"));
  EXPECT_THAT(message("1024x0"), HasSubstr("at least one layer"));
  EXPECT_THAT(message("16777216x120"), HasSubstr("at most 2^31 nonzeros"));
}

TEST(RadixNetTest, TablesThatAreNone) {
  const RadixNetSize size{.neurons = 32, .layers = 2};  // two blocks of one layer
  const auto read = [&](const std::string& text) {
    return std::string(ReadPermutations(text, "p.txt", size).status().message());
  };
  std::string row;
  for (int i = 0; i < 16; ++i) row += "0 1 ";
  EXPECT_TRUE(ReadPermutations(row + "\n" + row + "\n", "p.txt", size).ok());
  EXPECT_THAT(read(row + "\n"), HasSubstr("1 rows are enough for 1 layers, not for 2"));
  EXPECT_THAT(read(row + "\n0 1 0\n"), HasSubstr("p.txt:2: 3 numbers in a row"));
  EXPECT_THAT(read(row + "\n2" + row.substr(1)),
              HasSubstr("p.txt:2: number 1 of the row is \"2\""));
  EXPECT_THAT(read("1" + row.substr(1)), HasSubstr("p.txt:1: the number 1 is there more than 16"));
}

TEST(RadixNetTest, EveryNeuronHasThirtyTwoInputsAndConsumers) {
  const RadixNetSize size{.neurons = 4096, .layers = 10};
  const Network network = MakeRadixNet(size, DrawPermutations(size, 1));
  for (const Layer& layer : network.layers) {
    EXPECT_EQ(layer.nonzeros(), 32 * 4096);
    std::vector<int> consumers(4096, 0);
    for (const int32_t column : layer.column) ++consumers[column];
    EXPECT_THAT(consumers, testing::Each(32));
  }
}

// The published files, byte for byte: the data folder has their sums, not the files.
TEST(RadixNetTest, WritesThePublishedFiles) {
  const std::string data = SharedData() + "/radixnet/";
  std::ifstream file(data + "n1024_block_residues_00_09.txt");
  if (!file.is_open()) GTEST_SKIP() << data << " is not there";
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const RadixNetSize size{.neurons = 1024, .layers = 60};
  const auto permutations = ReadPermutations(text, "table", size);
  ASSERT_TRUE(permutations.ok()) << permutations.status();
  const Network network = MakeRadixNet(size, *permutations);
  const std::filesystem::path folder = testing::TempDir() + "seqpoint_radixnet";
  std::filesystem::create_directories(folder);
  for (size_t l = 0; l < network.layers.size(); ++l) {
    std::ofstream(folder / absl::StrCat("n1024-l", l + 1, ".tsv")) << WriteTsv(network.layers[l]);
  }
  const std::string command =
      "cd '" + folder.string() + "' && sha256sum --check --quiet '" + data + "SHA256SUMS_l1_60'";
  EXPECT_EQ(system(command.c_str()), 0);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace seqpoint::sparse
