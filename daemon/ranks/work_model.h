// WorkModel: the time that one iteration's lengths explain, fitted on the job itself.
//
// A quadratic in both lengths, by least squares of the relative deviation: the sum of
// (1 - model / time)² is smallest. An iteration that is much too long (a stall) deviates by 1 at
// most. Among few iterations it still matters: Start() leaves out those that stand out.
//
// Threading, ownership: values. Units: ns.
#ifndef SEQPOINT_DAEMON_RANKS_WORK_MODEL_H_
#define SEQPOINT_DAEMON_RANKS_WORK_MODEL_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

namespace seqpoint::ranks {

using Lengths = std::array<int64_t, 2>;

// 1, a, a², b, b², ab of both lengths.
using LengthTerms = std::array<double, 6>;
LengthTerms TermsOf(const Lengths& lengths);

// What a fit needs of a set of times. Sums can be added up: those of iterations that may turn out
// to be slow wait until it is known that they are not.
struct WorkSums {
  static constexpr size_t kTerms = std::tuple_size_v<LengthTerms>;
  std::array<double, kTerms* kTerms> products = {};
  LengthTerms targets = {};
  double count = 0;

  void Add(const Lengths& lengths, double time_ns);
  void Add(const WorkSums& other);

  template <typename Archive>
  void Visit(Archive& archive) {
    archive(products, targets, count);
  }
};

struct WorkSample {
  Lengths lengths = {};
  double time_ns = 0;

  template <typename Archive>
  void Visit(Archive& archive) {
    archive(lengths, time_ns);
  }
};

class WorkModel {
 public:
  // Learns the first samples, without those beyond kClip deviations. The relative deviation of one
  // of the others.
  double Start(const std::vector<WorkSample>& samples);
  void Learn(const WorkSums& sums);
  // What was learned so far counts as one time from now on.
  void Forget();
  // ns; 0 before anything was learned, and where the fit says less than a tenth of the mean.
  double Expect(const Lengths& lengths) const { return Expect(TermsOf(lengths)); }
  // The same of a mean over iterations, by the means of their terms.
  double Expect(const LengthTerms& terms) const;
  // The variance of a weighted sum of the fit's terms (of Expect, for `terms`), for a variance of 1
  // of the relative deviations. ns².
  double Variance(const LengthTerms& terms) const;
  double count() const { return sums_.count; }

  template <typename Archive>
  void Visit(Archive& archive) {
    archive(sums_, weights_, fitted_at_);
  }

 private:
  void Keep(double count);
  void Fit();
  std::vector<double> Factor() const;

  WorkSums sums_;
  LengthTerms weights_ = {};
  double fitted_at_ = 0;  // count
};

}  // namespace seqpoint::ranks

#endif  // SEQPOINT_DAEMON_RANKS_WORK_MODEL_H_
