// `seqpoint doctor`: what stands in the way of a profile, a line each: ok, problem or note, what
// was found, and what to do. The facts are judged by a pure function.
// Threading: pure functions.
#ifndef CLIENT_COMMANDS_DOCTOR_DIAGNOSIS_H_
#define CLIENT_COMMANDS_DOCTOR_DIAGNOSIS_H_

#include <string>
#include <vector>

#include "client/commands/doctor/facts.h"

namespace seqpoint::client {

struct Finding {
  enum Kind { kOk, kNote, kProblem };
  Kind kind = kOk;
  std::string subject;  // "driver"
  std::string message;  // what was found
  std::string action;   // what to do; empty: nothing
};

std::vector<Finding> Diagnose(const DoctorFacts& facts, const std::string& client_version);

std::string FindingsText(const std::vector<Finding>& findings);
// {"findings": [{"kind": "ok|note|problem", "subject", "message", "action"}, ...]}
std::string FindingsJson(const std::vector<Finding>& findings);

}  // namespace seqpoint::client

#endif  // CLIENT_COMMANDS_DOCTOR_DIAGNOSIS_H_
