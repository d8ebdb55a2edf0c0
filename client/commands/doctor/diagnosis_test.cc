#include "client/commands/doctor/diagnosis.h"

#include <filesystem>
#include <fstream>

#include "client/text/nodes_text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/temp_folder.h"

namespace seqpoint::client {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// A machine on which all is well.
DoctorFacts HealthyFacts() {
  DoctorFacts facts;
  facts.driver = {.path = "/lib/libcuda.so.1", .version = "CUDA 13.0", .detail = "NVIDIA H200"};
  facts.cupti = {.path = "/cuda/libcupti.so.13", .version = "130000"};
  facts.inject = {.path = "/lib/libseqpoint_inject.so", .version = "0.1.0"};
  facts.kernel_driver = "NVRM version: 580.65";
  facts.admin_only = false;
  facts.daemon_program = "/bin/seqpointd";
  v1::GetDaemonReply daemon;
  daemon.set_version("0.1.0");
  daemon.set_inject_socket("/tmp");  // can be written
  facts.daemon = daemon;
  return facts;
}

std::vector<Finding> Problems(const DoctorFacts& facts) {
  std::vector<Finding> problems;
  for (const Finding& finding : Diagnose(facts, "0.1.0")) {
    if (finding.kind == Finding::kProblem) problems.push_back(finding);
  }
  return problems;
}

// The one problem there is; its action must not be empty.
Finding OnlyProblem(const DoctorFacts& facts) {
  std::vector<Finding> problems = Problems(facts);
  EXPECT_EQ(problems.size(), 1u) << FindingsText(problems);
  return problems.empty() ? Finding{} : problems[0];
}

TEST(DoctorTest, AHealthyMachineHasNoProblem) {
  EXPECT_EQ(FindingsText(Problems(HealthyFacts())), "");
}

TEST(DoctorTest, EachProblemIsNamedWithItsRemedy) {
  DoctorFacts facts = HealthyFacts();
  facts.driver = {.error = "no such file"};
  EXPECT_THAT(OnlyProblem(facts).action, HasSubstr("install the NVIDIA driver"));

  facts = HealthyFacts();
  facts.driver.error = "libcuda.so.1 crashed (Segmentation fault)";
  EXPECT_THAT(OnlyProblem(facts).message, HasSubstr("crashed"));

  facts = HealthyFacts();
  facts.cupti.detail = "39";
  EXPECT_THAT(OnlyProblem(facts).message, HasSubstr("another tool holds CUPTI"));

  facts = HealthyFacts();
  facts.foreign_injections = {"CUDA_INJECTION64_PATH=/opt/nsys.so"};
  EXPECT_THAT(OnlyProblem(facts).message, HasSubstr("/opt/nsys.so"));

  facts = HealthyFacts();
  facts.admin_only = true;
  EXPECT_THAT(OnlyProblem(facts).action, HasSubstr("NVreg_RestrictProfilingToAdminUsers=0"));
  facts.has_sys_admin = true;
  EXPECT_THAT(Problems(facts), ::testing::IsEmpty());

  facts = HealthyFacts();
  facts.daemon->mutable_hub()->set_address("hub:7443");
  facts.daemon->mutable_hub()->set_error("no answer");
  EXPECT_EQ(OnlyProblem(facts).message, "hub:7443, not connected: no answer");
  facts.daemon->mutable_hub()->set_error("hub:7443 speaks no TLS 1.3");
  EXPECT_EQ(OnlyProblem(facts).message, "not connected: hub:7443 speaks no TLS 1.3");
  facts.daemon->mutable_hub()->set_address("unix:/hub/api.sock");
  facts.daemon->mutable_hub()->set_error("nobody answers on /hub/api.sock");
  EXPECT_EQ(OnlyProblem(facts).message, "not connected: nobody answers on /hub/api.sock");
  facts.daemon->mutable_hub()->set_connected(true);
  EXPECT_THAT(Problems(facts), ::testing::IsEmpty());

  facts = HealthyFacts();
  facts.inject.version = "0.2.0";
  EXPECT_THAT(OnlyProblem(facts).message, AllOf(HasSubstr("0.2.0"), HasSubstr("0.1.0")));

  facts = HealthyFacts();
  facts.daemon->set_inject_socket("/nonexistent/inject.sock");
  EXPECT_THAT(OnlyProblem(facts).message, HasSubstr("/nonexistent/inject.sock"));

  facts = HealthyFacts();
  facts.daemon->set_error("the disk is full");
  EXPECT_THAT(OnlyProblem(facts).message, HasSubstr("the disk is full"));

  facts = HealthyFacts();
  facts.daemon.reset();
  EXPECT_THAT(Problems(facts), ::testing::IsEmpty());  // one can be started
  facts.daemon_program.clear();
  facts.daemon_program_error = "seqpointd was not found; set SEQPOINT_DAEMON";
  EXPECT_THAT(OnlyProblem(facts).message, HasSubstr("SEQPOINT_DAEMON"));
}

TEST(DoctorTest, AHubCountsTheProcessesOfItsNodesAndNamesThoseThatAreGone) {
  DoctorFacts facts = HealthyFacts();
  facts.remote_daemon = true;
  facts.daemon->set_host("head");
  facts.daemon->set_api_socket("/nonexistent/api.sock");
  facts.daemon->set_inject_socket("/nonexistent/inject.sock");
  facts.daemon->set_store_path("/var/hub.db");
  v1::ListNodesReply& nodes = facts.nodes.emplace();
  for (const char* host : {"n1", "n2"}) {
    v1::Node& node = *nodes.add_nodes();
    node.set_host(host);
    node.set_connected(true);
    node.set_live_processes(4);
  }
  EXPECT_THAT(FindingsText(Diagnose(facts, "0.1.0")),
              AllOf(HasSubstr("seqpointd 0.1.0 answers on head; 0 jobs, 8 live processes; a hub of "
                              "2 nodes, 2 connected"),
                    HasSubstr("on head: /var/hub.db, 0 B"), Not(HasSubstr("/nonexistent"))));
  EXPECT_THAT(Problems(facts), ::testing::IsEmpty());
  nodes.mutable_nodes(1)->set_connected(false);
  EXPECT_EQ(OnlyProblem(facts).message,
            "n2 is not connected; it had 4 live processes when it was last heard");
  nodes.mutable_nodes(0)->set_host("n2");
  nodes.mutable_nodes(0)->set_id("11111111aaaa");
  nodes.mutable_nodes(1)->set_id("22222222bbbb");
  EXPECT_THAT(OnlyProblem(facts).message, HasSubstr("n2 (node 22222222) is not connected"));
}

TEST(DoctorTest, OfSeveralHubsTheOneThatLeadsIsNamed) {
  DoctorFacts facts = HealthyFacts();
  EXPECT_THAT(FindingsText(Diagnose(facts, "0.1.0")), Not(HasSubstr("leads")));
  facts.daemon->set_peer_address("hub-1:7443");
  EXPECT_THAT(FindingsText(Diagnose(facts, "0.1.0")),
              AllOf(HasSubstr("ok       leader    hub hub-1:7443 leads; other hubs"),
                    Not(HasSubstr("sockets"))));
  v1::ListNodesReply nodes;
  EXPECT_THAT(NodesText(nodes), Not(HasSubstr("leads")));
  nodes.set_leader("hub-1:7443");
  EXPECT_THAT(NodesText(nodes), StartsWith("hub hub-1:7443 leads; the others pass calls to it\n"));
  nodes.add_nodes()->set_host("n1");
  EXPECT_THAT(NodesText(nodes), StartsWith("hub hub-1:7443 leads; the others pass calls to it\n"));
}

TEST(DoctorTest, WithoutAGpuTimeAloneIsProfiledAndNothingIsAmiss) {
  DoctorFacts facts = HealthyFacts();
  facts.driver = {.error = "no such file"};
  facts.cupti = {.error = "no such file"};
  facts.kernel_driver.clear();
  EXPECT_THAT(Problems(facts), ::testing::IsEmpty());
  EXPECT_THAT(FindingsText(Diagnose(facts, "0.1.0")), HasSubstr("time only"));
  facts.nvidia_gpu = true;
  EXPECT_THAT(FindingsText(Problems(facts)), HasSubstr("install the NVIDIA driver"));

  const TempFolder folder;
  const std::filesystem::path device = folder.path() / "sys/bus/pci/devices/0000:01:00.0";
  std::filesystem::create_directories(device);
  std::ofstream(device / "vendor") << "0x10de\n";
  std::ofstream(device / "class") << "0x040300\n";  // its sound
  EXPECT_FALSE(CollectFacts(folder.path()).nvidia_gpu);
  std::ofstream(device / "class") << "0x030200\n";
  EXPECT_TRUE(CollectFacts(folder.path()).nvidia_gpu);
}

TEST(DoctorTest, ThePythonOfTheTrainingIsTried) {
  const auto text = [](const std::string& python) {
    return FindingsText(Diagnose(CollectFacts("/nonexistent", python), "1"));
  };
  const TempFolder folder;
  const std::string python = folder.path() / "python";
  const auto write = [&](const std::string& said) {
    std::ofstream(python) << "#!/bin/sh\necho path=/env/bin/python; echo version=3.11.2\n" << said;
    std::filesystem::permissions(python, std::filesystem::perms::owner_all);
  };
  write("echo detail=PyTorch 2.1.0 without CUDA\n");
  EXPECT_THAT(text(python), HasSubstr("ok       Python    /env/bin/python (Python 3.11.2) has "
                                      "PyTorch 2.1.0 without CUDA"));
  write("");
  EXPECT_THAT(text(python), HasSubstr("has no PyTorch\n"));
  write("echo error=import torch fails: libmkl\n");
  EXPECT_THAT(text(python), HasSubstr("problem  Python    /env/bin/python (Python 3.11.2): import "
                                      "torch fails: libmkl"));
  EXPECT_THAT(text("/nonexistent/python"), HasSubstr("/nonexistent/python: No such file"));
}

TEST(DoctorTest, FeaturesOfLiveJobsAreTold) {
  DoctorFacts facts = HealthyFacts();
  v1::Job job;
  job.set_name("gnmt");
  v1::Feature* feature = job.add_processes()->add_features();
  feature->set_name("cupti");
  feature->set_state(v1::FEATURE_STATE_FAILED);
  feature->set_message("CUPTI is held by Nsight Systems");
  facts.live_jobs.push_back(job);
  EXPECT_THAT(OnlyProblem(facts).message,
              AllOf(HasSubstr("gnmt"), HasSubstr("CUPTI is held by Nsight Systems")));
  facts.live_jobs[0].mutable_processes(0)->mutable_features(0)->set_state(v1::FEATURE_STATE_READY);
  EXPECT_THAT(Problems(facts), ::testing::IsEmpty());
}

TEST(DoctorTest, SaysHowALoopThatIsNotFoundIsTold) {
  DoctorFacts facts = HealthyFacts();
  v1::Job job;
  job.set_name("by_hand");
  job.set_state(v1::JOB_STATE_LEARNING);
  facts.live_jobs.push_back(job);
  const auto text = [&] { return FindingsText(Diagnose(facts, "0.1.0")); };
  EXPECT_THAT(text(), ContainsRegex("note     job       by_hand.*: it is not found yet where its "
                                    "iterations begin\n +-> a program reports where its iterations "
                                    "begin with two lines: .*seqpoint_iteration_begin"));
  facts.live_jobs[0].mutable_rule();
  facts.live_jobs[0].set_state(v1::JOB_STATE_MARKING);
  EXPECT_THAT(text(), Not(HasSubstr("by_hand")));
  // The program was gone before somebody asked.
  facts.live_jobs.clear();
  job.set_state(v1::JOB_STATE_ENDED);
  job.set_error("no process of this job used CUDA or trained with PyTorch");
  facts.ended_job = job;
  EXPECT_THAT(text(), ContainsRegex("note     job       by_hand.*, the latest: no process of this "
                                    "job used CUDA"));
  EXPECT_THAT(Problems(facts), ::testing::IsEmpty());
  facts.ended_job->mutable_rule();
  EXPECT_THAT(text(), Not(HasSubstr("by_hand")));
}

TEST(DoctorTest, ReadsTheDriversParametersAndRunningTools) {
  const TempFolder folder;
  const std::filesystem::path& root = folder.path();
  std::filesystem::create_directories(root / "proc/driver/nvidia");
  std::filesystem::create_directories(root / "proc/self");
  std::filesystem::create_directories(root / "proc/812");
  std::ofstream(root / "proc/driver/nvidia/version") << "NVRM version: 580.65\nGCC\n";
  std::ofstream(root / "proc/driver/nvidia/params") << "EnableMSI: 1\nRmProfilingAdminOnly: 1\n";
  std::ofstream(root / "proc/self/status") << "Name:\tx\nCapEff:\t0000000000200000\n";
  std::ofstream(root / "proc/812/comm") << "nv-hostengine\n";
  DoctorFacts facts = CollectFacts(root);
  EXPECT_EQ(facts.kernel_driver, "NVRM version: 580.65");
  EXPECT_EQ(facts.admin_only, true);
  EXPECT_TRUE(facts.has_sys_admin);
  EXPECT_THAT(facts.other_tools, ::testing::ElementsAre("nv-hostengine (process 812)"));
  std::ofstream(root / "proc/self/status") << "CapEff:\t00000000a80425fb\n";
  EXPECT_FALSE(CollectFacts(root).has_sys_admin);
}

TEST(DoctorTest, TellsWhetherPyTorchProgramsTellTheirLoop) {
  setenv("SEQPOINT_ADAPTER", "/opt/python", 1);
  DoctorFacts facts = CollectFacts("/nonexistent");
  EXPECT_THAT(FindingsText(Diagnose(facts, "1")), HasSubstr("tell their loop by /opt/python"));
  setenv("SEQPOINT_ADAPTER", "0", 1);
  facts = CollectFacts("/nonexistent");
  EXPECT_THAT(FindingsText(Diagnose(facts, "1")), HasSubstr("no adapter"));
  unsetenv("SEQPOINT_ADAPTER");
}

TEST(DoctorTest, ALibraryThatIsNotOursIsAFinding) {
  // Any library that has no seqpoint_version.
  setenv("SEQPOINT_LIBRARY", "libm.so.6", 1);
  DoctorFacts facts = CollectFacts("/nonexistent");
  EXPECT_THAT(facts.inject.error, HasSubstr("not SeqPoint's library"));
  setenv("SEQPOINT_LIBRARY", "/nonexistent.so", 1);
  EXPECT_THAT(
      CollectFacts("/nonexistent").inject.error,
      AllOf(HasSubstr("SEQPOINT_LIBRARY=/nonexistent.so: No such file"), HasSubstr("or unset it")));
}

TEST(DoctorTest, JsonHasOneEntryPerFinding) {
  std::string json = FindingsJson(
      {{Finding::kProblem, "driver", "none", "install it"}, {Finding::kOk, "CUPTI", "there", ""}});
  EXPECT_THAT(json,
              AllOf(HasSubstr("\"kind\": \"problem\""), HasSubstr("\"kind\": \"ok\""),
                    HasSubstr("\"subject\": \"driver\""), HasSubstr("\"action\": \"install it\"")));
}

}  // namespace
}  // namespace seqpoint::client
