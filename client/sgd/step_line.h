// How far a run is, on the terminal: a line that is written over.
//
// The line moves with what else is written, and no part of the terminal is set aside: mpirun may
// kill a rank at any time, and nobody would give it back.
//
// Threading: one thread. Ownership: closes what it opened.
#ifndef CLIENT_SGD_STEP_LINE_H_
#define CLIENT_SGD_STEP_LINE_H_

#include <chrono>
#include <string>

namespace seqpoint::sgd {

class StepLine {
 public:
  // `wanted` false: never shows anything.
  explicit StepLine(bool wanted);
  ~StepLine();
  StepLine(const StepLine&) = delete;
  StepLine& operator=(const StepLine&) = delete;

  // True when Say() would print.
  bool Due() const { return terminal_ >= 0 && Clock::now() >= next_; }
  void Say(const std::string& text);

 private:
  using Clock = std::chrono::steady_clock;

  int terminal_ = -1;  // a file descriptor; below 0: there is none
  bool opened_ = false;
  bool shown_ = false;
  Clock::time_point next_;
};

}  // namespace seqpoint::sgd

#endif  // CLIENT_SGD_STEP_LINE_H_
