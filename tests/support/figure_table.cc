#include "tests/support/figure_table.h"

#include <math.h>
#include <stdio.h>

#include <utility>

namespace seqpoint {
namespace {

std::string Number(double value) {
  if (!isfinite(value)) return "not known";
  char text[64];
  snprintf(text, sizeof(text), "%.9g", value);
  return text;
}

std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + '"';
}

}  // namespace

void FigureTable::Add(Row row) {
  const std::lock_guard lock(adding_);
  const char* verdict = !row.reached.has_value() ? "" : *row.reached ? "reached" : "MISSED";
  const std::string measured =
      row.measured.has_value() ? Number(*row.measured) + " " + row.unit : "not measured";
  printf("%-62s %20s  %-22s %s\n", row.figure.c_str(), measured.c_str(), row.to_reach.c_str(),
         verdict);
  fflush(stdout);
  if (row.reached.has_value() && !*row.reached) ++missed_;
  rows_.push_back(std::move(row));
}

void FigureTable::Tell(const std::string& figure, double measured, const std::string& unit) {
  Add({figure, unit, "", measured, std::nullopt});
}

void FigureTable::Compare(const std::string& figure, double measured, const std::string& unit,
                          Bound bound, double to_reach) {
  bool reached = false;
  std::string words;
  switch (bound) {
    case Bound::kAtMost:
      reached = measured <= to_reach;
      words = "at most ";
      break;
    case Bound::kAtLeast:
      reached = measured >= to_reach;
      words = "at least ";
      break;
    case Bound::kBelow:
      reached = measured < to_reach;
      words = "below ";
      break;
    case Bound::kEqual:
      reached = fabs(measured - to_reach) <= 1e-6 * fabs(to_reach);
      break;
  }
  Add({figure, unit, words + Number(to_reach), measured, reached});
}

void FigureTable::Leave(const std::string& figure, const std::string& why) {
  {
    const std::lock_guard lock(adding_);
    ++left_;
  }
  Add({figure, "", why, std::nullopt, std::nullopt});
}

bool FigureTable::WriteJson(const std::string& path) const {
  FILE* file = fopen(path.c_str(), "w");
  if (file == nullptr) return false;
  fprintf(file, "[");
  for (size_t i = 0; i < rows_.size(); ++i) {
    const Row& row = rows_[i];
    fprintf(file,
            "%s\n {\"figure\": %s, \"measured\": %s, \"unit\": %s, \"to_reach\": %s, "
            "\"reached\": %s}",
            i == 0 ? "" : ",", Quoted(row.figure).c_str(),
            row.measured && isfinite(*row.measured) ? Number(*row.measured).c_str() : "null",
            Quoted(row.unit).c_str(), row.to_reach.empty() ? "null" : Quoted(row.to_reach).c_str(),
            !row.reached.has_value() ? "null"
            : *row.reached           ? "true"
                                     : "false");
  }
  fprintf(file, "\n]\n");
  const bool written = ferror(file) == 0;
  return fclose(file) == 0 && written;
}

}  // namespace seqpoint
