// Reads the lines of the truth file, for tests.
#ifndef SEQPOINT_TESTS_WORKLOADS_TRUTH_LINES_H_
#define SEQPOINT_TESTS_WORKLOADS_TRUTH_LINES_H_

#include <gtest/gtest.h>

#include <regex>
#include <string>
#include <vector>

namespace seqpoint::workload {

// Enough of JSON for lines that we write ourselves: the first `"key":value` after `after`.
inline std::string Field(const std::string& line, const std::string& key,
                         const std::string& after = "") {
  const size_t from = after.empty() ? 0 : line.find("\"" + after + "\":");
  const size_t at = from == std::string::npos ? from : line.find("\"" + key + "\":", from);
  if (at == std::string::npos) {
    ADD_FAILURE() << "no " << after << "." << key << " in " << line;
    return "0";
  }
  const size_t begin = at + key.size() + 3;
  const char* const ends = line[begin] == '[' ? "]" : (line[begin] == '"' ? "\"" : ",}");
  const size_t end = line.find_first_of(ends, begin + 1);
  return line.substr(begin, end - begin);
}

inline double Number(const std::string& line, const std::string& key,
                     const std::string& after = "") {
  return std::stod(Field(line, key, after));
}

inline std::vector<int> Lengths(const std::string& line) {
  std::vector<int> lengths;
  const std::string list = Field(line, "lengths");
  const std::regex number("[0-9]+");
  for (std::sregex_iterator it(list.begin(), list.end(), number), end; it != end; ++it) {
    lengths.push_back(std::stoi(it->str()));
  }
  return lengths;
}

}  // namespace seqpoint::workload

#endif  // SEQPOINT_TESTS_WORKLOADS_TRUTH_LINES_H_
