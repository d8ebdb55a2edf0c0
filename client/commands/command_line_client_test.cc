#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "daemon/rpc/server.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/client_fixture.h"

namespace seqpoint::client {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(ClientTest, ExitCodesTellWhatWentWrong) {
  StartServer();
  Result result = Client({"project", "nope"});
  EXPECT_EQ(result.code, 4);
  EXPECT_THAT(result.err, HasSubstr("no job \"nope\""));
  EXPECT_EQ(Client({"run"}).code, 2);
  EXPECT_EQ(Client({"--help"}).code, 0);
  backend_.SetError(absl::FailedPreconditionError("3 of 64 iterations seen; ask again later"));
  result = Client({"project", "1"});
  EXPECT_EQ(result.code, 5);
  EXPECT_EQ(result.err, "seqpoint: 3 of 64 iterations seen; ask again later\n");
  backend_.SetError(absl::DataLossError("the store is damaged"));
  EXPECT_EQ(Client({"project", "1"}).code, 1);
}

TEST_F(ClientTest, AMistakeIsNamedWithTheValueAndTheWayOut) {
  StartServer();
  const std::string huge(309, '9');
  for (const auto& [words, expected] : std::vector<std::pair<std::string, std::string>>{
           {"project", "JOB is missing, or --playlist FILE; see seqpoint project --help"},
           {"project 1 --playlist x --measured y", "give JOB or --playlist FILE, not both"},
           {"project --playlist x", "--playlist FILE needs --measured FILE"},
           {"project --measured x", "--measured FILE needs --playlist FILE"},
           {"project 1 --time-unit ms", "--time and --time-unit are of --measured FILE"},
           {"project --playlist x --measured y --time-unit h", "\"h\" is none of ns, us, ms, s"},
           {"project --playlist x --measured y --iterations 5", "neither --metric nor how long"},
           {"project --playlist /nonexistent --measured y", "cannot read /nonexistent: No such"},
           {"playlist", "JOB is missing; see seqpoint playlist --help"},
           {"playlist 1 --points 0", "\"0\" is not a whole number from 1 to 1,000,000"},
           {"frobnicate", "there is no command \"frobnicate\"; there are run, jobs"},
           {"help frobnicate", "there is no command \"frobnicate\""},
           {"project 1 2 3", "\"2\" is one argument too many"},
           {"project 1 --frob", "there is no option \"--frob\""},
           {"project 1 --confidence 200", "--confidence: \"200\" is not a confidence, such as 95"},
           {"jobs --state crashed", "--state: \"crashed\" is none of ended, failed, interrupted"},
           {"jobs --since monday", "--since: \"monday\" is neither a time"},
           {"jobs 1 --limit 3", "--limit, --live) goes without JOB"},
           {"jobs --limit 0", "--limit: \"0\" is not a whole number from 1"},
           {"tag 1", "TAG is missing"},
           {"tag 1 a,b", "tag \"a,b\" is two: it has a comma"},
           {"rename 1", "NAME is missing"},
           {"rename 1 a@b", "contains \"@\", which parts name and run id"},
           {"delete", "JOB is missing"},
           {"project 1 --iterations " + huge, "...\" is not a whole number from 1 to 1,000,000"},
           {"project 1 --metric " + huge, "...\" is longer than 256 bytes"},
           {"project 1 --metric", "--metric needs a value"},
           {"project 1 --lengths x --order up", "\"up\" is none of shuffle, bucket, sorted, file"},
           {"control 1 level bogus", "LEVEL: \"bogus\" is none of auto, mark, trace"},
           {"jobs ", "JOB: it is empty"},
           {"project 1 --epochs 3", "--epochs needs --lengths FILE or --iterations N"},
           {"control 1 horizon", "say --iterations N or --lengths FILE"},
           {"run --frob -- ls", "there is no option \"--frob\""},
           {"run --lenghts x -- ls", "no option \"--lenghts\" (did you mean --lengths?)"},
           {"jobs --jsn=1", "there is no option \"--jsn\" (did you mean --json?)"},
           {"runn -- ls -l", "there is no command \"runn\" (did you mean run?)"},
           {"job", "there is no command \"job\" (did you mean jobs?)"},
           {"control 1 puase", "there is no command \"puase\" (did you mean pause?)"},
           {"help dcotor", "there is no command \"dcotor\" (did you mean doctor?)"},
           {"run python3 x.py --lr 1",
            "put -- before the command: seqpoint run [OPTIONS] -- python3 x.py --lr 1"},
           {"run --iterations 5 python3 x.py --lengths a.csv --batch 8 --lr 1",
            "run [OPTIONS] -- python3 x.py --lengths a.csv --batch 8 --lr 1"},
           {"run ls -- ls", "\"ls\" stands before the --"},
           {"metrics --chip foo", "chip: \"foo\" is none of "},
           {"run --metrics foo -- ls", "no metric set \"foo\"; there are: utilisation"},
           {"--no-start place f", "--no-start does not belong to seqpoint place"},
           {"--server x place f", "put the command first; see seqpoint place --help"},
           {"export 1", "give either --chrome FILE or --csv FILE"},
           {"export 1 --csv /tmp", "cannot write /tmp: it is a folder"}}) {
    Result result = Client(absl::StrSplit(words, ' '));
    EXPECT_EQ(result.code, 2) << words;
    EXPECT_THAT(result.err, HasSubstr(expected)) << words;
    EXPECT_EQ(result.out, "") << words;
    EXPECT_LT(result.err.size(), 400u) << words;
  }
}

TEST_F(ClientTest, CompletionKnowsCommandsOptionsValuesAndJobs) {
  StartServer();
  for (const auto& [words, expected] : std::vector<std::pair<std::string, std::string>>{
           {"ker", "kernels\tKernels by their share of kernel time\n"},
           {"--socket /x ker", "kernels\tKernels by their share of kernel time\n"},
           {"project 1 --conf",
            "--confidence\tprobability that the interval holds the truth; default 95%\n"},
           {"project 1 --order b", "bucket\n"},
           {"control gnmt@r1 level t", "trace\n"},
           {"run --lengths x", ":files\n"},
           {"run -- x", ":files\n"},
           {"--json project g", "gnmt@r1\n"},
           {"import a.json b", ":files\n"},
           {"whatif 1 --apply amp", "amp\n"},
           {"whatif 1 --apply ./my", ":files\n"},
           {"whatif --show cuda", "cuda-graphs\n"},
           {"whatif gn", "gnmt@r1\n"},
           {"repl", "replay\tReplay a job's traces unchanged: how well they are understood\n"},
           {"watch ", "1\ngnmt@r1\n"}}) {
    std::vector<std::string> arguments = {"complete", "--"};
    for (absl::string_view word : absl::StrSplit(words, ' ')) arguments.emplace_back(word);
    EXPECT_EQ(Client(arguments).out, expected) << words;
  }
}

TEST_F(ClientTest, NoDaemonIsSaidWithTheWayOut) {
  Result result = Client({"jobs", "--no-start"});
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.err, AllOf(HasSubstr(directory_ / "api.sock"), HasSubstr("start seqpointd")));
  setenv("SEQPOINT_DAEMON", "/nonexistent/seqpointd", 1);
  result = Client({"jobs"});
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.err, HasSubstr("SEQPOINT_DAEMON=/nonexistent/seqpointd: No such file"));
  result = Client({"jobs", "--server", "localhost:1"});
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.err, HasSubstr("no daemon answers on localhost:1 over TLS: nothing listens"));
  setenv("SEQPOINT_DAEMON", DAEMON_BINARY, 1);
  setenv("FAKE_FAILURE", "store /x is in use by process 12", 1);
  result = Client({"jobs"});
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.err, HasSubstr("store /x is in use by process 12"));
}

TEST_F(ClientTest, WithoutHomeItSaysWhereTheStoreIs) {
  const char* home = getenv("HOME");
  const std::string before = home == nullptr ? "" : home;
  unsetenv("HOME");
  unsetenv("XDG_STATE_HOME");
  Result result = Client({"jobs"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("HOME is not set; jobs are stored in "
                                    "/var/lib/seqpoint/seqpoint.db (XDG_STATE_HOME changes it)"));
  EXPECT_EQ(Client({"jobs"}).err, "");  // said by the one that started it
  setenv("HOME", before.c_str(), 1);
}

TEST_F(ClientTest, ASocketOfAnotherUserIsSaidToBeOne) {
  constexpr uid_t kNobody = 65534;
  const std::string client = directory_ / "seqpoint";
  std::error_code error;
  std::filesystem::copy_file(CLIENT_BINARY, client, error);
  if (getuid() != 0 || error) GTEST_SKIP() << "only root can be another user";
  const std::string theirs = directory_ / "theirs";
  std::filesystem::create_directory(theirs);
  auto server = rpc::Server::Start({.socket_path = theirs + "/api.sock"}, &backend_);
  ASSERT_TRUE(server.ok()) << server.status();
  setenv("SEQPOINT_DIR", theirs.c_str(), 1);
  chmod(theirs.c_str(), 0700);
  chmod(directory_.c_str(), 0755);
  const std::string out = directory_ / "out", err = directory_ / "err";
  const pid_t child = fork();
  if (child == 0) {
    dup2(open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), 1);
    dup2(open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), 2);
    if (setgid(kNobody) != 0 || setuid(kNobody) != 0) _exit(98);
    execl(client.c_str(), "seqpoint", "jobs", nullptr);
    _exit(99);
  }
  const Result result = Wait(child);
  if (result.code == 98 || result.code == 99) GTEST_SKIP() << "cannot become another user";
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.err, AllOf(HasSubstr(theirs + "/api.sock belongs to user root, whose daemon "
                                                   "does not let this user in"),
                                HasSubstr("set SEQPOINT_DIR to a folder of yours"),
                                Not(HasSubstr("ended after its start"))));
}

// The daemon of the machine lets others enter its folder and ends what they begin. In a namespace
// of its own, as the test cannot have /run/seqpoint.
TEST_F(ClientTest, AUserWhomTheMachinesDaemonRefusesGetsOneOfHisOwn) {
  if (getuid() != 0) GTEST_SKIP() << "only root can be another user";
  const std::string client = directory_ / "seqpoint", daemon = directory_ / "fake_seqpointd";
  std::filesystem::copy_file(CLIENT_BINARY, client);
  std::filesystem::copy_file(DAEMON_BINARY, daemon);
  chmod(directory_.c_str(), 0755);
  const std::string home = directory_ / "home";
  std::filesystem::create_directory(home);
  const uid_t user = 40'000 + static_cast<uid_t>(getpid());
  ASSERT_EQ(chown(home.c_str(), user, user), 0);
  const std::string out = directory_ / "out", err = directory_ / "err";
  const pid_t child = fork();
  if (child == 0) {
    dup2(open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), 1);
    dup2(open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), 2);
    if (unshare(CLONE_NEWNS) != 0 ||
        mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("none", "/run", "tmpfs", 0, nullptr) != 0 || mkdir("/run/seqpoint", 0755) != 0) {
      _exit(98);
    }
    if (fork() == 0) {  // threads do not go through a fork: the server gets a process of its own
      setenv("SEQPOINT_DIR", "/run/seqpoint", 1);
      execl(daemon.c_str(), "seqpointd", "--allow-users", "1", nullptr);
      _exit(99);
    }
    for (int i = 0; i < 500 && access("/run/seqpoint/api.sock", F_OK) != 0; ++i) usleep(10'000);
    if (setgid(user) != 0 || setuid(user) != 0) _exit(98);
    unsetenv("SEQPOINT_DIR");
    unsetenv("XDG_RUNTIME_DIR");
    setenv("HOME", home.c_str(), 1);
    setenv("SEQPOINT_DAEMON", daemon.c_str(), 1);
    execl(client.c_str(), "seqpoint", "jobs", nullptr);
    _exit(99);
  }
  const Result result = Wait(child);
  const std::string own = absl::StrCat("/tmp/seqpoint-", user);
  std::filesystem::remove_all(own);
  if (result.code == 98) GTEST_SKIP() << "no namespace, or cannot become another user";
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("/run/seqpoint/api.sock belongs to user root, whose daemon does not "
                              "let this user in; a daemon of your own was started in " +
                              own)));
}

TEST_F(ClientTest, TheFolderOfAHubThatIsDownGetsNoPrivateDaemon) {
  std::ofstream(directory_ / "seqpointd.start")
      << "hub\n/usr/bin/seqpointd --accept-nodes --dir /tmp/hub\n";
  for (const char* command : {"jobs", "project", "fleet", "ranks", "whatif"}) {
    std::vector<std::string> words = {command, "gnmt"};
    if (std::string_view(command) == "fleet") words = {command};
    if (std::string_view(command) == "whatif") words = {command, "gnmt", "--list"};
    const Result result = Client(words);
    EXPECT_EQ(result.code, 3) << command;
    EXPECT_THAT(result.err, AllOf(HasSubstr("the hub at " + directory_.string() +
                                            " does not run; start it "
                                            "(/usr/bin/seqpointd --accept-nodes --dir /tmp/hub)"),
                                  HasSubstr("remove " + (directory_ / "seqpointd.start").string())))
        << command;
    EXPECT_FALSE(std::filesystem::exists(directory_ / "api.sock")) << command;
  }
  std::filesystem::remove(directory_ / "seqpointd.start");
  EXPECT_EQ(Client({"jobs"}).code, 0);
}

TEST_F(ClientTest, APrivateDaemonDoesNotTakeTheSettingsOfAConfiguredOne) {
  setenv("SEQPOINTD_STORE", "/nonexistent/hub.db", 1);
  setenv("SEQPOINTD_HUB", "hub:7443", 1);
  setenv("FAKE_ENVIRONMENT", (directory_ / "environment").c_str(), 1);
  const Result result = Client({"jobs"});
  unsetenv("SEQPOINTD_STORE");
  unsetenv("SEQPOINTD_HUB");
  unsetenv("FAKE_ENVIRONMENT");
  EXPECT_EQ(result.code, 0) << result.err;
  const std::string seen = ReadFile(directory_ / "environment");
  EXPECT_THAT(seen, AllOf(HasSubstr("SEQPOINT_DIR="), HasSubstr("SEQPOINTD_HUB=hub:7443"),
                          Not(HasSubstr("SEQPOINTD_STORE"))));
}

TEST_F(ClientTest, TheServerAndItsFilesMayComeFromVariables) {
  const std::string nothing = directory_ / "nothing";
  setenv("SEQPOINT_CA", nothing.c_str(), 1);
  EXPECT_EQ(Client({"jobs"}).code, 0);  // the daemon here needs none
  setenv("SEQPOINT_SERVER", "localhost:1", 1);
  for (const char* command : {"jobs", "fleet", "nodes"}) {
    EXPECT_THAT(Client({command}).err, HasSubstr("cannot read " + nothing)) << command;
  }
  unsetenv("SEQPOINT_CA");
  EXPECT_THAT(Client({"jobs"}).err, HasSubstr("no daemon answers on localhost:1"));
  EXPECT_THAT(Client({"jobs", "--server", "localhost:2"}).err, HasSubstr("on localhost:2"));
  EXPECT_EQ(Client({"jobs", "--socket", directory_ / "api.sock"}).code, 0);
  EXPECT_EQ(Client({"run", "--quiet", "--", "true"}).code, 0);  // tells the daemon here
  setenv("SEQPOINT_SERVER", "localhost", 1);
  EXPECT_THAT(Client({"jobs"}).err, HasSubstr("\"localhost\" is not HOST:PORT"));
  setenv("SEQPOINT_SERVER", "localhost:1", 1);
  setenv("SEQPOINT_CERT", "c", 1);
  EXPECT_THAT(Client({"jobs"}).err, HasSubstr("--key (SEQPOINT_KEY)"));
  unsetenv("SEQPOINT_CERT");
  unsetenv("SEQPOINT_SERVER");
  EXPECT_THAT(Client({"jobs", "--ca", "x"}).err, HasSubstr("--ca is for a daemon on the network"));
}

TEST_F(ClientTest, DoctorEndsWithOneWhenThereIsAProblem) {
  StartServer();
  Result result = Client({"doctor"});
  EXPECT_EQ(result.code, 1);  // at least: libm is not our library
  EXPECT_THAT(result.out, AllOf(HasSubstr("not SeqPoint's library"), HasSubstr("answers on")));
  EXPECT_THAT(Client({"doctor", "--json"}).out, HasSubstr("\"kind\": \"problem\""));
}

}  // namespace
}  // namespace seqpoint::client
