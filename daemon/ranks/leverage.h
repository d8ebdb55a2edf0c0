// Leverage: how much of the ranks' waiting delays the iteration.
//
// Where collectives block, an iteration is as long as its work and its waiting together. Where they
// overlap with work, a rank that is late is late again at each of the following collectives, and
// its delay is counted as often. The slope of the iteration's time over the mean waiting time, from
// the job's own noise, tells which; it is too small rather than too large, because waiting also has
// causes that delay nothing.
//
// Threading, ownership: values. Times are relative to the expected time of the iteration.
#ifndef SEQPOINT_DAEMON_RANKS_LEVERAGE_H_
#define SEQPOINT_DAEMON_RANKS_LEVERAGE_H_

namespace seqpoint::ranks {

class Leverage {
 public:
  // Of one iteration without a stall.
  void Add(double time, double wait);
  // Between 0 and 1; 1 before there are enough iterations.
  double value() const;

  template <typename Archive>
  void Visit(Archive& archive) {
    archive(count_, wait_, time_, square_, product_);
  }

 private:
  double count_ = 0;
  double wait_ = 0, time_ = 0;       // means
  double square_ = 0, product_ = 0;  // sums of deviations: of the wait; of both
};

}  // namespace seqpoint::ranks

#endif  // SEQPOINT_DAEMON_RANKS_LEVERAGE_H_
