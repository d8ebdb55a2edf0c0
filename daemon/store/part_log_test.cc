#include "daemon/store/part_log.h"

#include <map>
#include <random>

#include "gtest/gtest.h"

namespace seqpoint {
namespace {

// The state table, of one job.
class Table {
 public:
  void Take(const std::vector<StateRow>& rows) {
    for (const StateRow& row : rows) {
      if (row.bytes.empty()) {
        rows_.erase(row.part);
      } else {
        rows_[row.part] = row;
      }
      written += row.bytes.size();
    }
  }
  std::vector<StateRow> Rows() const {
    std::vector<StateRow> rows;
    for (const auto& [part, row] : rows_) rows.push_back(row);
    return rows;
  }
  size_t written = 0;

 private:
  std::map<std::string, StateRow> rows_;
};

TEST(PartLog, BaseAndLogAreTheWholeAtEveryMoment) {
  std::mt19937 random(1);
  PartLog log("engine");
  Table table;
  std::string whole;
  size_t commits = 0;
  for (; whole.size() < 2'000'000; ++commits) {
    const std::string added(random() % 3000, static_cast<char>('a' + commits % 26));
    whole += added;
    std::vector<StateRow> rows;
    log.Write(
        1, 4, added, [&] { return whole; }, rows);
    rows.push_back({.job_id = 1, .part = "engine-000000", .bytes = "another part"});
    table.Take(rows);
    if (commits % 50 == 0) {
      log = PartLog("engine");  // a restart
      const PartLog::Content content = log.Load(table.Rows());
      ASSERT_EQ(content.base + content.added, whole);
    }
  }
  // Twice for base and log, and again for the piece that is not full; never the whole each time.
  EXPECT_LT(table.written, 5 * whole.size());
}

TEST(PartLog, RestartForgetsWhatWas) {
  PartLog log("engine");
  Table table;
  std::vector<StateRow> rows;
  for (int i = 0; i < 10; ++i) {
    log.Write(
        1, 4, std::string(2000, 'x'), [] { return std::string("unused"); }, rows);
  }
  log.Restart();
  log.Write(
      1, 4, "y", [] { return std::string("new"); }, rows);
  log.Write(
      1, 4, "z", [] { return std::string("unused"); }, rows);
  table.Take(rows);
  const PartLog::Content content = PartLog("engine").Load(table.Rows());
  EXPECT_EQ(content.base, "new");
  EXPECT_EQ(content.added, "z");
  EXPECT_EQ(table.Rows().size(), 2u);
}

TEST(PartLog, NothingAddedIsNothingWritten) {
  PartLog log("engine");
  std::vector<StateRow> rows;
  log.Write(
      1, 4, "", [] { return std::string("unused"); }, rows);
  EXPECT_TRUE(rows.empty());
}

}  // namespace
}  // namespace seqpoint
