// Questions about a job's figures (project, counters, kernels, whatif): their common options, and
// one call for the figures and the job that they belong to.
// Threading: one thread. Ownership: the options outlive the app that reads them.
#ifndef CLIENT_COMMANDS_FIGURES_H_
#define CLIENT_COMMANDS_FIGURES_H_

#include <CLI/CLI.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "client/commands/context.h"
#include "client/commands/horizon.h"
#include "client/commands/part.h"

namespace seqpoint::client {

struct FigureOptions {
  std::string job;
  double confidence = 0;
  HorizonOptions horizon;
  PartOptions part;

  // All but the job and the part.
  void AddTo(CLI::App* command);
};

// The error of AskFigures when there is nothing to show: why, and the obstacle that the job names.
absl::Status NothingToShow(const std::string& why, const v1::Job& job);

// Asks for figures and prints them. `to_text` gets the reply and the job. The job is empty where
// the question was about another run, or about a part: its notes belong to the run as it is.
template <typename Request, typename Reply, typename ToText>
absl::StatusOr<int> AskFigures(const Context& context, const FigureOptions& options,
                               grpc::Status (v1::Profiler::Stub::*call)(grpc::ClientContext*,
                                                                        const Request&, Reply*),
                               Request request, ToText to_text) {
  request.set_job(options.job);
  request.set_confidence(options.confidence);
  SEQPOINT_ASSIGN_OR_RETURN(v1::Horizon horizon, options.horizon.Read());
  if (options.horizon.given() && options.part.given()) {
    return context.UsageError(
        "--from, --to and --epoch ask about this run, --lengths and --iterations "
        "about another one; give one of the two");
  }
  if (options.horizon.given()) *request.mutable_horizon() = std::move(horizon);
  if constexpr (requires { request.has_part(); }) options.part.SetIn(&request);
  SEQPOINT_ASSIGN_OR_RETURN(Reply reply, context.Call(call, request));
  if (std::string why = NothingIn(reply); !why.empty()) return NothingToShow(why, reply.job());
  const bool is_the_run = !options.horizon.given() && !options.part.given();
  return context.PrintReply(&reply, [&](const Reply& shown) {
    return to_text(shown, is_the_run ? shown.job() : v1::Job());
  });
}

}  // namespace seqpoint::client

#endif  // CLIENT_COMMANDS_FIGURES_H_
