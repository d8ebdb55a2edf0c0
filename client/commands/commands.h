// The commands of `seqpoint`: each is a file of its own, with its options and a function that adds
// it to the command line, in the order of --help.
// Threading: one thread. Ownership: app and context belong to main.
#ifndef CLIENT_COMMANDS_COMMANDS_H_
#define CLIENT_COMMANDS_COMMANDS_H_

#include <CLI/CLI.hpp>

#include "client/commands/context.h"

namespace seqpoint::client {

void AddRun(CLI::App* app, Context* context);
void AddJobs(CLI::App* app, Context* context);
void AddJobChanges(CLI::App* app, Context* context);  // delete, rename, tag
void AddWatch(CLI::App* app, Context* context);
void AddSeqPoints(CLI::App* app, Context* context);
void AddProject(CLI::App* app, Context* context);
void AddPlaylist(CLI::App* app, Context* context);
void AddMetrics(CLI::App* app, Context* context);
void AddCounters(CLI::App* app, Context* context);
void AddKernels(CLI::App* app, Context* context);
void AddRoofline(CLI::App* app, Context* context);
void AddRanks(CLI::App* app, Context* context);
void AddCompare(CLI::App* app, Context* context);
void AddIterations(CLI::App* app, Context* context);
void AddExport(CLI::App* app, Context* context);
void AddAnalyze(CLI::App* app, Context* context);
void AddImport(CLI::App* app, Context* context);
void AddReplay(CLI::App* app, Context* context);
void AddWhatIf(CLI::App* app, Context* context);
void AddPlanners(CLI::App* app, Context* context);  // place, partition
void AddFleet(CLI::App* app, Context* context);
void AddNodes(CLI::App* app, Context* context);
void AddControl(CLI::App* app, Context* context);
void AddDoctor(CLI::App* app, Context* context);
void AddCompletion(CLI::App* app, Context* context);
void AddVersion(CLI::App* app, Context* context);

}  // namespace seqpoint::client

#endif  // CLIENT_COMMANDS_COMMANDS_H_
