// The figures of a benchmark, beside what was to be reached: a table on standard output, and with
// --json a list of {figure, measured, unit, to_reach, reached}.
//
// Threading: rows may be added by several threads at once; nothing else. Ownership: a value.
#ifndef TESTS_SUPPORT_FIGURE_TABLE_H_
#define TESTS_SUPPORT_FIGURE_TABLE_H_

#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace seqpoint {

class FigureTable {
 public:
  enum class Bound { kAtMost, kAtLeast, kBelow, kEqual };  // equal: to a relative 1e-6

  // A figure that is only told.
  void Tell(const std::string& figure, double measured, const std::string& unit);
  // A figure with a target. Prints its row at once, as a long benchmark goes on. NAN: it is not
  // known, and the target is missed.
  void Compare(const std::string& figure, double measured, const std::string& unit, Bound bound,
               double to_reach);
  // Not measured, and why.
  void Leave(const std::string& figure, const std::string& why);

  // Figures with a target that was missed.
  int missed() const { return missed_; }
  int left() const { return left_; }  // were not measured
  // False: the file cannot be written; errno says why.
  bool WriteJson(const std::string& path) const;

 private:
  struct Row {
    std::string figure, unit, to_reach;
    std::optional<double> measured;
    std::optional<bool> reached;
  };
  void Add(Row row);

  std::mutex adding_;
  std::vector<Row> rows_;
  int missed_ = 0, left_ = 0;
};

}  // namespace seqpoint

#endif  // TESTS_SUPPORT_FIGURE_TABLE_H_
