#include "injection/iterations/step_account.h"

namespace seqpoint::inject {

void StepAccount::Report() {
  uint64_t count = 0, first = 0, last = 0;
  {
    LockGuard lock(&state_->lock);
    if (doubtful_until_ == 0) return;
    count = watch_.unseen();
    first = watch_.first_unseen();
    last = doubtful_until_;
  }
  features_->Report(
      abi::Feature::kEvaluation, abi::FeatureState::kFailed, 0,
      "the program has iterations without an optimiser step, as of evaluation, in ranges of the "
      "same name as training, which was seen late: %llu of the iterations %llu to %llu may be "
      "such, too, and counts are upper bounds; give evaluation's ranges another name (where mixed "
      "precision leaves out the steps whose gradients overflow, it may be no more than that)",
      static_cast<unsigned long long>(count), static_cast<unsigned long long>(first),
      static_cast<unsigned long long>(last));
}

}  // namespace seqpoint::inject
