#include "daemon/settings/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>

#include "absl/strings/str_cat.h"
#include "tests/support/temp_folder.h"

namespace seqpoint::settings {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class SettingsTest : public ::testing::Test {
 protected:
  SettingsTest() {
    for (const char* key :
         {"config", "log-format", "max-job-age", "measurements", "metrics-listen"}) {
      unsetenv(VariableOf(key).c_str());
    }
  }
  std::string Write(const std::string& text) {
    const std::string path = (folder_.path() / "seqpointd.toml").string();
    std::ofstream(path) << text;
    return path;
  }
  static absl::StatusOr<Settings> Load(std::vector<const char*> arguments) {
    arguments.insert(arguments.begin(), "seqpointd");
    return LoadSettings(static_cast<int>(arguments.size()), arguments.data());
  }
  static std::string Error(std::vector<const char*> arguments) {
    return std::string(Load(std::move(arguments)).status().message());
  }

  TempFolder folder_;
};

TEST_F(SettingsTest, TheCommandLineGoesBeforeAVariableAndThatBeforeTheFile) {
  const std::string file = Write(
      "# a node\nstore = \"/data/a b.db\"\nmax-job-age = 100\nmeasurements = 7\n"
      "accept-nodes = true\n");
  setenv("SEQPOINTD_MAX_JOB_AGE", "200", 1);
  setenv("SEQPOINTD_MEASUREMENTS", "8", 1);
  const auto settings = Load({"--config", file.c_str(), "--measurements=9"});
  ASSERT_TRUE(settings.ok()) << settings.status();
  EXPECT_EQ(settings->daemon.store_path, "/data/a b.db");
  EXPECT_TRUE(settings->daemon.takes_nodes);
  EXPECT_EQ(settings->daemon.retention.max_job_age_s, 200);
  EXPECT_EQ(settings->daemon.job.measurement_budget, 9);
}

TEST_F(SettingsTest, TheFileMayComeFromAVariable) {
  const std::string file = Write("log-level = \"debug\"\n");
  setenv("SEQPOINTD_CONFIG", file.c_str(), 1);
  EXPECT_EQ(Load({})->log_level, "debug");
  setenv("SEQPOINTD_CONFIG", "/nowhere.toml", 1);
  EXPECT_THAT(Error({}), HasSubstr("/nowhere.toml"));
}

TEST_F(SettingsTest, ErrorsNameTheFileTheLineAndTheWayOut) {
  const std::string file = Write("# one\n\nmax-job-agee = 3\n");
  EXPECT_EQ(Error({"--config", file.c_str()}),
            file +
                ":3: \"max-job-agee\" is no setting; seqpointd --check-config prints all of "
                "them; see seqpointd --help");
  Write("[node]\nmax-job-age = 3\n");
  EXPECT_THAT(Error({"--config", file.c_str()}), HasSubstr(file + ":1: [node] is a section"));
  Write("log = \"a\"\nlog = \"b\"\n");
  EXPECT_THAT(Error({"--config", file.c_str()}), HasSubstr(file + ":2: \"log\" is there twice"));
  Write("max-job-age = soon\n");
  EXPECT_EQ(Error({"--config", file.c_str()}),
            "--max-job-age: \"soon\" is not a whole number from 0 to 1000000000000000000 (from " +
                file + "); see seqpointd --help");
  Write("config = \"other\"\n");
  EXPECT_THAT(Error({"--config", file.c_str()}), HasSubstr("is no setting"));
  EXPECT_THAT(Error({"--config", "/nowhere"}), HasSubstr("/nowhere"));
  setenv("SEQPOINTD_LOG_FORMAT", "xml", 1);
  EXPECT_EQ(Error({}),
            "--log-format: \"xml\" is not one of text, json (from SEQPOINTD_LOG_FORMAT); see "
            "seqpointd --help");
}

TEST_F(SettingsTest, CheckConfigPrintsAFileThatIsReadAgainAndNoSecrets) {
  setenv("SEQPOINTD_STORE", "postgresql://user:hunter2@host/db", 1);
  const auto shown = Load({"--check-config", "--accept-nodes"});
  unsetenv("SEQPOINTD_STORE");
  ASSERT_TRUE(shown.ok()) << shown.status();
  EXPECT_THAT(shown->answer, Not(HasSubstr("hunter2")));
  EXPECT_THAT(shown->answer,
              HasSubstr("store = \"postgresql://user:***@host/db\"  # SEQPOINTD_STORE\n"));
  EXPECT_THAT(shown->answer, HasSubstr("measurements = 64  # default\n"));
  const std::string file = Write(shown->answer);
  const auto again = Load({"--config", file.c_str()});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->values, shown->values);
}

TEST_F(SettingsTest, APasswordOnTheCommandLineIsRefusedAndNotRepeated) {
  const std::string error = Error({"--store", "postgresql://user:hunter2@host/db"});
  EXPECT_THAT(error, HasSubstr("other users see a password on the command line"));
  EXPECT_THAT(error, Not(HasSubstr("hunter2")));
  EXPECT_TRUE(Load({"--store", "postgresql://user@host/db"}).ok());
}

TEST_F(SettingsTest, AQuoteThatIsNotClosedIsNamedWithItsLine) {
  for (const char* line : {"store = \"/data/a.db", "store = '/data/a.db", "store = \"a\\\""}) {
    const std::string file = Write(absl::StrCat("# one\n", line, "\nmeasurements = 3\n"));
    EXPECT_THAT(Error({"--config", file.c_str()}), HasSubstr(file + ":2: the quote")) << line;
  }
  std::string file = Write("store = \"/data/#1.db\"\n");
  EXPECT_THAT(Error({"--config", file.c_str()}), HasSubstr(":1: a value in the file cannot have"));
  file = Write("store = \"/data/1.db\"  # \"a\n");
  EXPECT_EQ(Load({"--config", file.c_str()})->daemon.store_path, "/data/1.db");
}

TEST_F(SettingsTest, AFlagThatIsNoneIsNamedWithItsPlace) {
  setenv("SEQPOINTD_ACCEPT_NODES", "maybe", 1);
  EXPECT_THAT(Error({}), HasSubstr("--accept-nodes: \"maybe\" is neither true nor false (from "
                                   "SEQPOINTD_ACCEPT_NODES)"));
  unsetenv("SEQPOINTD_ACCEPT_NODES");
}

// As libpq takes it, in an address that is none, and where CLI11 repeats what it did not expect.
TEST_F(SettingsTest, NoFormOfAPasswordIsRepeated) {
  for (const char* store : {"host=db user=me password=hunter2", "host = db password = 'hun ter2'",
                            "password=hunter2", "postgresql://me:hunt/er2@db/x"}) {
    setenv("SEQPOINTD_STORE", store, 1);
    const auto shown = Load({"--check-config"});
    EXPECT_THAT(shown.ok() ? shown->answer : std::string(shown.status().message()),
                Not(AnyOf(HasSubstr("ter2"), HasSubstr("er2@"), HasSubstr("hunt"))))
        << store;
  }
  unsetenv("SEQPOINTD_STORE");
  EXPECT_THAT(Error({"--store", "host=db password=hunter2"}),
              AllOf(HasSubstr("write PostgreSQL's address as"), Not(HasSubstr("hunter2"))));
  EXPECT_THAT(Error({"postgresql://me:hunter2@db/x"}), Not(HasSubstr("hunter2")));
  EXPECT_TRUE(Load({"--store", "./a=b"}).ok());
}

TEST_F(SettingsTest, CheckConfigLooksAtTheFiles) {
  const std::vector<const char*> hub = {
      "--listen=a:1", "--accept-nodes", "--tls-certificate=/nowhere/hub.pem",
      "--tls-key=/nowhere/hub.key", "--tls-client-ca=/nowhere/ca.pem"};
  EXPECT_TRUE(Load(hub).ok());  // the start says it
  auto checked = hub;
  checked.push_back("--check-config");
  EXPECT_THAT(Error(checked), AllOf(HasSubstr("/nowhere/hub.pem"), HasSubstr("No such file")));
  const std::string no_pem = Write("nothing");
  const std::string certificate = "--tls-certificate=" + no_pem, key = "--tls-key=" + no_pem,
                    authority = "--hub-ca=" + no_pem;
  EXPECT_THAT(
      Error({"--check-config", "--hub=a:1", certificate.c_str(), key.c_str(), authority.c_str()}),
      HasSubstr("no certificate in PEM"));
}

TEST_F(SettingsTest, UsersAreNamesOrNumbersAndThereAreSuch) {
  const auto settings = Load({"--allow-users", "root, 1234"});
  ASSERT_TRUE(settings.ok()) << settings.status();
  EXPECT_THAT(settings->server.allowed_users, ElementsAre(0, 1234));
  EXPECT_EQ(settings->daemon.ingest.allowed_users, settings->server.allowed_users);
  EXPECT_THAT(Error({"--allow-users", "no-such-user"}),
              HasSubstr("\"no-such-user\" is no user of this machine"));
}

TEST_F(SettingsTest, OptionsThatDoNotGoTogetherAreRefusedBeforeTheStart) {
  EXPECT_THAT(Error({"--check-config", "--listen=a:1"}), HasSubstr("needs --tls-certificate"));
  EXPECT_THAT(Error({"--listen=a:1", "--tls-certificate=c", "--tls-key=k"}),
              HasSubstr("add --tls-client-ca or --tokens"));
  EXPECT_TRUE(Load({"--listen=a:1", "--tls-certificate=c", "--tls-key=k", "--tokens=t"}).ok());
  EXPECT_THAT(Error({"--tokens=t"}), HasSubstr("--tokens is for clients on the network"));
  EXPECT_THAT(Error({"--node-names=n"}), HasSubstr("--node-names is for clients on the network"));
  EXPECT_THAT(Error({"--hub=unix:/a, unix:"}), HasSubstr("has no path"));
  EXPECT_THAT(Error({"--accept-nodes", "--private"}), HasSubstr("leave out --private"));
  EXPECT_THAT(Error({"--hub=a:1,hub.example"}), HasSubstr("\"hub.example\" is not HOST:PORT"));
  EXPECT_THAT(Error({"--hub=a:0"}), HasSubstr("is not HOST:PORT"));
  EXPECT_TRUE(Load({"--hub=a:1, [::1]:7443,unix:/a"}).ok());
}

TEST_F(SettingsTest, HubsThatShareAStoreNeedOneThatCanBeSharedAndWhatTheyShowEachOther) {
  EXPECT_THAT(std::string(Load({"--peer-address=unix:/a", "--accept-nodes"}).status().message()),
              HasSubstr("--store postgresql://"));
  EXPECT_THAT(std::string(Load({"--peer-address=hub:7443", "--accept-nodes", "--store",
                                "postgresql://host/db"})
                              .status()
                              .message()),
              HasSubstr("--hub-ca"));
  const auto settings =
      Load({"--peer-address=unix:/a", "--accept-nodes", "--store", "postgresql://host/db"});
  ASSERT_TRUE(settings.ok()) << settings.status();
  EXPECT_EQ(settings->daemon.store.holder, "unix:/a");
}

TEST_F(SettingsTest, SecretsInAddresses) {
  EXPECT_EQ(WithoutSecrets("/var/lib/a.db"), "/var/lib/a.db");
  EXPECT_EQ(WithoutSecrets("postgresql://host:5432/db"), "postgresql://host:5432/db");
  EXPECT_EQ(WithoutSecrets("postgresql://u@host:5432/db"), "postgresql://u@host:5432/db");
  EXPECT_EQ(WithoutSecrets("postgresql://u:p@s@host/db"), "postgresql://u:***@host/db");
  EXPECT_EQ(WithoutSecrets("postgresql://u:p/w@host/db"), "postgresql://u:***@host/db");
  EXPECT_EQ(WithoutSecrets("host=db password = 'p w' user=u"), "host=db password = *** user=u");
  EXPECT_EQ(WithoutSecrets("password=p"), "password=***");
  EXPECT_EQ(WithoutSecrets("postgresql://host/db?password=p&user=u"),
            "postgresql://host/db?password=***&user=u");
}

TEST_F(SettingsTest, WhatAReloadChanges) {
  const auto before = Load({"--store", "/a", "--log-level", "info"});
  const auto after = Load({"--store", "/b", "--log-level", "debug", "--max-job-age", "5"});
  const Difference difference = Compare(*before, *after);
  EXPECT_THAT(difference.reloaded, ElementsAre("log-level", "max-job-age"));
  EXPECT_THAT(difference.at_next_start, ElementsAre("store"));
}

TEST_F(SettingsTest, APrivateDaemonHasNoMetrics) {
  setenv("SEQPOINTD_METRICS_LISTEN", "localhost:9464", 1);
  EXPECT_EQ(Load({})->metrics_address, "localhost:9464");
  EXPECT_EQ(Load({"--private"})->metrics_address, "");
}

}  // namespace
}  // namespace seqpoint::settings
