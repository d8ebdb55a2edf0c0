#include "daemon/ranks/verdict.h"

namespace seqpoint::ranks {

std::string_view DoubtText(Doubt doubt) {
  switch (doubt) {
    case Doubt::kNone:
      return "";
    case Doubt::kNoCollectives:
      return "no rank has reported the GPU's times of a collective";
    case Doubt::kOneRank:
      return "only one rank is seen";
    case Doubt::kTooFew:
      return "too few iterations were observed";
    case Doubt::kNoDurations:
      return "the time of iterations is not known";
    case Doubt::kUnlike:
      return "no other rank does the same work, and too few of its own iterations were observed";
    case Doubt::kHidden:
      return "collectives overlap with work, which hides a part of it";
    case Doubt::kRecordsMissing:
      return "most of its collectives have no match on another rank";
    case Doubt::kNoLengths:
      return "the lengths of the ranks' iterations are not known";
    case Doubt::kNoBaseline:
      return "no earlier iteration shows the difference";
    case Doubt::kMostAreSlow:
      return "most stages of the pipeline became slower, so it may be something that they share";
  }
  return "";
}

std::string_view CourseText(Course course) {
  switch (course) {
    case Course::kUnknown:
      return "unknown";
    case Course::kEven:
      return "even";
    case Course::kSlow:
      return "slow";
    case Course::kWasSlow:
      return "was slow";
    case Course::kRotating:
      return "slow in turn";
  }
  return "";
}

}  // namespace seqpoint::ranks
