// `seqpoint delete JOB`, `seqpoint rename JOB NAME` and `seqpoint tag JOB TAG ...`.
#include "absl/strings/str_cat.h"
#include "client/commands/commands.h"
#include "client/commands/jobs.h"
#include "client/commands/options.h"

namespace seqpoint::client {
namespace {

struct DeleteOptions {
  std::string job;
};

int Delete(const Context& context, DeleteOptions& options) {
  v1::DeleteJobRequest request;
  request.set_job(options.job);
  return context.Ask(&v1::Profiler::Stub::DeleteJob, request, [](const v1::DeleteJobReply& reply) {
    return absl::StrCat(reply.name(), "@", reply.run_id(), " (job ", reply.job_id(),
                        ") is deleted\n");
  });
}

struct RenameOptions {
  std::string job, name;
};

int Rename(const Context& context, RenameOptions& options) {
  v1::UpdateJobRequest request;
  request.set_job(options.job);
  request.set_name(options.name);
  return context.Ask(&v1::Profiler::Stub::UpdateJob, request,
                     [](const v1::UpdateJobReply& reply) { return JobTitle(reply.job()) + "\n"; });
}

int Tag(const Context& context, TagOptions& options) {
  return context.Ask(&v1::Profiler::Stub::UpdateJob, options.Request(),
                     [](const v1::UpdateJobReply& reply) { return UpdatedText(reply.job()); });
}

}  // namespace

void AddJobChanges(CLI::App* app, Context* context) {
  auto deletion = AddCommand<DeleteOptions>(
      app, context, "delete", "Delete a job that has ended, with everything that is stored of it.",
      &Delete);
  AddJob(deletion.app, &deletion.options->job)->required();
  auto rename = AddCommand<RenameOptions>(app, context, "rename",
                                          "Give a job that is over another name.", &Rename);
  AddJob(rename.app, &rename.options->job)->required();
  rename.app->add_option("NAME", rename.options->name, "the new name")->required()->check(Name());
  auto tag = AddCommand<TagOptions>(app, context, "tag",
                                    "Tag a job, so that `seqpoint jobs --tag` finds it.", &Tag);
  AddJob(tag.app, &tag.options->job)->required();
  tag.options->AddTo(tag.app);
}

}  // namespace seqpoint::client
