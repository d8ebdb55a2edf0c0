// The buffered reader, and the histogram made of what it reads, beside plain ones that keep the
// whole file: whatever a file holds, both say the same.
#include <algorithm>
#include <fstream>
#include <map>
#include <random>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "client/files/csv.h"
#include "client/files/lengths.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/temp_folder.h"

namespace seqpoint::client {
namespace {

constexpr uint64_t kSeeds = 200;

using Rows = std::vector<std::vector<std::string>>;

// As CsvReader promises, a character at a time and without its buffer.
Rows PlainRows(const std::string& text, char delimiter) {
  Rows rows;
  for (size_t begin = 0; begin < text.size();) {
    const size_t newline = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, newline - begin);
    begin = newline + 1;
    while (!line.empty() && line.back() == '\r') line.pop_back();
    if (absl::StripAsciiWhitespace(line).empty()) continue;
    std::vector<std::string> fields(1);
    bool quoted = false;
    for (size_t i = 0; i < line.size(); ++i) {
      if (line[i] == '"' && quoted && line[i + 1] == '"') {
        fields.back() += line[++i];
      } else if (line[i] == '"') {
        quoted = !quoted;
      } else if (line[i] == delimiter && !quoted) {
        fields.emplace_back();
      } else {
        fields.back() += line[i];
      }
    }
    for (std::string& field : fields) absl::StripAsciiWhitespace(&field);
    rows.push_back(fields);
  }
  return rows;
}

TEST(CsvProperty, WhateverAFileHoldsItsRowsAreThoseOfAPlainReader) {
  const TempFolder folder;
  const std::string path = folder.path() / "any.csv";
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    std::mt19937_64 random(seed);
    const char delimiter = ",;\t"[random() % 3];
    const std::string pieces[] = {
        "5",  "1.5",  "text", "\"", "\"\"", "\"a\nb\"", "\n",
        "\n", "\r\n", " ",    "\t", ",",    ";",        std::string(1, '\0')};
    std::string text = absl::StrCat("a", std::string(1, delimiter), "b", "\n");
    const size_t count = random() % 300;
    for (size_t i = 0; i < count; ++i) {
      if (random() % 3 == 0) text += delimiter;
      text += pieces[random() % std::size(pieces)];
      // Lines that are longer than a block of the file, and blocks that end anywhere in a line.
      if (random() % 200 == 0) text += std::string(random() % 600'000, 'x');
    }
    std::ofstream(path, std::ios::binary) << text;
    absl::StatusOr<CsvReader> csv = CsvReader::Open(path);
    ASSERT_TRUE(csv.ok()) << csv.status();
    Rows rows = {csv->header()};
    std::vector<std::string> fields;
    while (csv->Next(&fields)) rows.push_back(fields);
    EXPECT_TRUE(csv->status().ok()) << csv->status();
    ASSERT_EQ(rows, PlainRows(text, delimiter)) << "seed " << seed;
  }
}

TEST(CsvProperty, RowsOfWholeNumbersThatAreReadTogetherAreThoseOfAPlainReader) {
  const TempFolder folder;
  const std::string path = folder.path() / "whole.csv";
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    std::mt19937_64 random(seed);
    const size_t columns = 1 + random() % 3;
    const char delimiter = columns == 1 ? ',' : ",;\t"[random() % 3];
    const std::string comma(1, delimiter);
    const std::string others[] = {"",     " 5",   "-5",  "+5",   "5.0", "\"5\"",         "5e3",
                                  "5\r6", "text", "5,5", "5;5 ", "0x5", "1234567890123", "5\n"};
    std::string text = "a";
    for (size_t column = 1; column < columns; ++column) text += comma + "b";
    for (size_t count = random() % 400; count > 0; --count) {
      text += random() % 20 == 0 ? "\r\n" : "\n";
      if (random() % 50 == 0) continue;  // blank
      const size_t here = random() % 50 == 0 ? 1 + random() % 4 : columns;
      for (size_t column = 0; column < here; ++column) {
        text += column == 0 ? "" : comma;
        text += random() % 40 == 0
                    ? others[random() % std::size(others)]
                    : std::to_string(random() % (random() % 2 ? 100 : 1000000000000));
      }
      // Blocks that end anywhere in a row.
      if (random() % 200 == 0) text += "\n" + std::string(262'144 - random() % 40, '\r');
    }
    std::ofstream(path, std::ios::binary) << text;
    absl::StatusOr<CsvReader> csv = CsvReader::Open(path);
    ASSERT_TRUE(csv.ok()) << csv.status();
    Rows rows = {csv->header()};
    std::vector<int64_t> values(columns * (1 + random() % 9));
    std::vector<std::string> fields;
    for (bool more = true; more;) {
      const size_t whole = csv->NextWhole(absl::MakeSpan(values));
      for (size_t row = 0; row < whole; ++row) {
        rows.emplace_back();
        for (size_t column = 0; column < columns; ++column) {
          rows.back().push_back(std::to_string(values[row * columns + column]));
        }
      }
      if (whole > 0) continue;
      more = csv->Next(&fields);
      if (more) rows.push_back(fields);
    }
    const int64_t newlines = std::count(text.begin(), text.end(), '\n');
    EXPECT_EQ(csv->number(), newlines + (text.back() == '\n' ? 0 : 1)) << "seed " << seed;
    ASSERT_EQ(rows, PlainRows(text, delimiter)) << "seed " << seed;
  }
}

using Lengths = std::vector<int64_t>;
using Histogram = std::map<Lengths, int64_t>;

Histogram HistogramOf(const v1::Horizon& horizon) {
  Histogram histogram;
  for (const v1::LengthCount& entry : horizon.histogram()) {
    histogram[{entry.lengths().begin(), entry.lengths().end()}] += entry.count();
  }
  return histogram;
}

// Batches of `rows` as they stand there.
Histogram PlainBatches(const std::vector<Lengths>& rows, size_t batch, bool drop_last) {
  Histogram histogram;
  for (size_t begin = 0; begin < rows.size(); begin += batch) {
    const size_t end = std::min(rows.size(), begin + batch);
    if (end - begin < batch && drop_last) break;
    Lengths longest = rows[begin];
    for (size_t i = begin; i < end; ++i) {
      for (size_t d = 0; d < longest.size(); ++d) longest[d] = std::max(longest[d], rows[i][d]);
    }
    ++histogram[longest];
  }
  return histogram;
}

double MeanOf(const Histogram& histogram) {
  double sum = 0, count = 0;
  for (const auto& [lengths, n] : histogram) {
    for (const int64_t length : lengths) sum += static_cast<double>(length * n);
    count += static_cast<double>(n);
  }
  return sum / count;
}

TEST(CsvProperty, TheHistogramIsThatOfAllRowsKept) {
  const TempFolder folder;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    std::mt19937_64 random(seed);
    const size_t dimensions = 1 + random() % 2;
    std::vector<Lengths> rows(1 + random() % 3'000);
    LengthsOptions options;
    options.path = folder.path() / "lengths.csv";
    options.pad_to = random() % 3 == 0 ? 8 : 1;
    options.drop_last = random() % 2 == 0;
    const auto batch = 1 + random() % 40;
    const int64_t longest = random() % 2 == 0 ? 20 : 2'000;
    {
      std::ofstream file(options.path);
      file << (dimensions == 1 ? "len\n" : "len;len2\n");
      for (Lengths& row : rows) {
        for (size_t d = 0; d < dimensions; ++d) {
          row.push_back(static_cast<int64_t>(random() % longest));
          file << (d == 0 ? "" : ";") << row[d]
               << (dimensions == 2 && random() % 50 == 0 ? ",0" : "");
          row[d] = (row[d] + options.pad_to - 1) / options.pad_to * options.pad_to;
        }
        file << "\n";
      }
    }
    const auto read = [&](int64_t batch_size, ExampleOrder order) {
      options.batch = batch_size;
      options.order = order;
      const absl::StatusOr<v1::Horizon> horizon = ReadLengths(options);
      EXPECT_TRUE(horizon.ok()) << horizon.status();
      return horizon.ok() ? HistogramOf(*horizon) : Histogram();
    };
    ASSERT_EQ(read(0, ExampleOrder::kShuffle), PlainBatches(rows, 1, false)) << "seed " << seed;
    if (rows.size() < batch) continue;
    ASSERT_EQ(read(batch, ExampleOrder::kFile), PlainBatches(rows, batch, options.drop_last))
        << "seed " << seed;
    std::vector<Lengths> sorted = rows;
    const auto sum = [](const Lengths& row) { return row[0] + (row.size() > 1 ? row[1] : 0); };
    std::stable_sort(sorted.begin(), sorted.end(),
                     [&](const Lengths& a, const Lengths& b) { return sum(a) < sum(b); });
    const Histogram plain = PlainBatches(sorted, batch, options.drop_last);
    const Histogram read_sorted = read(batch, ExampleOrder::kSorted);
    if (dimensions == 1) {
      ASSERT_EQ(read_sorted, plain) << "seed " << seed;
    } else if (rows.size() > 1'000) {
      // Rows of one sum have an order in the file that the histogram does not keep.
      EXPECT_NEAR(MeanOf(read_sorted) / MeanOf(plain), 1, 0.03) << "seed " << seed;
    }
    if (rows.size() < 1'000) continue;
    options.epochs = 20;
    Histogram shuffled;
    for (int epoch = 0; epoch < 20; ++epoch) {
      std::shuffle(rows.begin(), rows.end(), random);
      for (const auto& [lengths, n] : PlainBatches(rows, batch, options.drop_last)) {
        shuffled[lengths] += n;
      }
    }
    EXPECT_NEAR(MeanOf(read(batch, ExampleOrder::kShuffle)) / MeanOf(shuffled), 1, 0.03)
        << "seed " << seed;
    options.epochs = 1;
  }
}

}  // namespace
}  // namespace seqpoint::client
