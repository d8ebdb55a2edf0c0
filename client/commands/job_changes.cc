// `seqpoint delete JOB`, `seqpoint rename JOB NAME` and `seqpoint tag JOB TAG ...`.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/commands/commands.h"
#include "client/commands/options.h"

namespace seqpoint::client {
namespace {

absl::StatusOr<int> Delete(const Context& context, v1::DeleteJobRequest& request) {
  return context.Ask(&v1::Profiler::Stub::DeleteJob, request, [](const v1::DeleteJobReply& reply) {
    return absl::StrCat(reply.name(), "@", reply.run_id(), " (job ", reply.job_id(),
                        ") is deleted\n");
  });
}

absl::StatusOr<int> Rename(const Context& context, v1::UpdateJobRequest& request) {
  return context.Ask(&v1::Profiler::Stub::UpdateJob, request,
                     [](const v1::UpdateJobReply& reply) { return JobTitle(reply.job()) + "\n"; });
}

struct TagOptions {
  std::string job;
  std::vector<std::string> tags;
  bool remove = false;
};

absl::StatusOr<int> Tag(const Context& context, TagOptions& options) {
  v1::UpdateJobRequest request;
  request.set_job(options.job);
  auto& tags = *(options.remove ? request.mutable_remove_tags() : request.mutable_add_tags());
  tags.Assign(options.tags.begin(), options.tags.end());
  return context.Ask(&v1::Profiler::Stub::UpdateJob, request, [](const v1::UpdateJobReply& reply) {
    const auto& kept = reply.job().tags();
    return absl::StrCat(JobTitle(reply.job()), kept.empty() ? ", no tags" : ", tags ",
                        absl::StrJoin(kept, ", "), "\n");
  });
}

}  // namespace

void AddJobChanges(CLI::App* app, Context* context) {
  auto deletion = AddCommand<v1::DeleteJobRequest>(
      app, context, "delete", "Delete a job that has ended, with everything that is stored of it.",
      &Delete);
  AddJob(deletion.app, deletion.options->mutable_job())->required();
  auto rename = AddCommand<v1::UpdateJobRequest>(app, context, "rename",
                                                 "Give a job that is over another name.", &Rename);
  AddJob(rename.app, rename.options->mutable_job())->required();
  rename.app->add_option("NAME", *rename.options->mutable_name(), "the new name")
      ->required()
      ->check(Name());
  auto [tag, options] = AddCommand<TagOptions>(
      app, context, "tag", "Tag a job, so that `seqpoint jobs --tag` finds it.", &Tag);
  AddJob(tag, &options->job)->required();
  tag->add_option("TAG", options->tags, "words to find the job by")->required()->check(Name());
  tag->add_flag("--remove", options->remove, "remove these tags");
}

}  // namespace seqpoint::client
