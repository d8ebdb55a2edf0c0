#include "tests/support/patroni_cluster.h"

#include <libpq-fe.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/support/free_port.h"
#include "tests/support/private_postgres.h"

namespace seqpoint {
namespace {

constexpr const char* kEtcd = "/usr/bin/etcd";
constexpr const char* kPatroni = "/usr/bin/patroni";

std::string LocalPort(int port) { return absl::StrCat("127.0.0.1:", port); }

}  // namespace

std::string PatroniCluster::Missing() {
  if (access(kEtcd, X_OK) == 0 && access(kPatroni, X_OK) == 0) return PrivatePostgres::Missing();
  return "Patroni or etcd is not installed (apt-get install --no-install-recommends patroni "
         "etcd-server python3-etcd)";
}

PatroniCluster::PatroniCluster() {
  if (!GiveToServerUser(folder_.path())) return;
  etcd_port_ = FreePort();
  const std::string clients = absl::StrCat("http://", LocalPort(etcd_port_));
  const std::string peers = absl::StrCat("http://", LocalPort(FreePort()));
  etcd_ = SpawnAsServerUser(
      {kEtcd, "--data-dir", "etcd", "--listen-client-urls", clients, "--advertise-client-urls",
       clients, "--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers,
       "--initial-cluster", absl::StrCat("default=", peers)},
      folder_.path(), "etcd.log");
  for (int machine = 0; machine < kMachines; ++machine) {
    machines_[static_cast<size_t>(machine)] = {.postgres_port = FreePort(),
                                               .rest_port = FreePort()};
    Configure(machine);
    Start(machine);
  }
}

PatroniCluster::~PatroniCluster() {
  for (int machine = 0; machine < kMachines; ++machine) Kill(machine);
  if (etcd_ == 0) return;
  kill(etcd_, SIGKILL);
  waitpid(etcd_, nullptr, 0);
}

void PatroniCluster::Configure(int machine) const {
  const Machine& of = machines_[static_cast<size_t>(machine)];
  const std::string name = NameOf(machine), folder = folder_.path();
  std::ofstream(folder_.path() / (name + ".yml"))
      << "scope: seqpoint\n"
      << "name: " << name << "\n"
      << "restapi: {listen: '" << LocalPort(of.rest_port) << "', connect_address: '"
      << LocalPort(of.rest_port) << "'}\n"
      << "etcd3: {host: '" << LocalPort(etcd_port_) << "'}\n"
      << "bootstrap:\n"
      << "  dcs:\n"
      << "    ttl: " << absl::ToInt64Seconds(kTimeToLive)
      << "\n"
      // The leader writes its key several times in its life.
      << "    loop_wait: 2\n"
      << "    retry_timeout: 5\n"
      << "    synchronous_mode: true\n"
      << "    synchronous_mode_strict: true\n"
      << "    postgresql: {use_pg_rewind: true}\n"
      << "  initdb: [{encoding: UTF8}, {locale: C}]\n"
      << "  pg_hba: ['host all all 127.0.0.1/32 trust', 'host replication all 127.0.0.1/32 "
         "trust']\n"
      << "postgresql:\n"
      << "  listen: " << LocalPort(of.postgres_port) << "\n"
      << "  connect_address: " << LocalPort(of.postgres_port) << "\n"
      << "  data_dir: " << folder << "/" << name << "\n"
      << "  bin_dir: " << kPostgresPrograms << "\n"
      << "  pgpass: " << folder << "/" << name << ".pgpass\n"
      << "  authentication: {superuser: {username: seqpoint}, replication: {username: "
         "replicator}}\n"
      << "  parameters: {unix_socket_directories: " << folder << "}\n";
}

void PatroniCluster::Start(int machine) {
  pid_t& patroni = machines_[static_cast<size_t>(machine)].patroni;
  if (patroni != 0) return;
  patroni = SpawnAsServerUser({kPatroni, NameOf(machine) + ".yml"}, folder_.path(),
                              NameOf(machine) + ".log");
}

std::vector<pid_t> PatroniCluster::Processes(int machine) const {
  const pid_t patroni = machines_[static_cast<size_t>(machine)].patroni;
  if (patroni == 0) return {};
  std::vector<pid_t> processes = {patroni};
  pid_t server = 0;
  std::ifstream(folder_.path() / NameOf(machine) / "postmaster.pid") >> server;
  // The file of a killed server names a process that may be another's by now.
  std::error_code error;
  const auto at = std::filesystem::read_symlink(absl::StrCat("/proc/", server, "/cwd"), error);
  if (server == 0 || at != folder_.path() / NameOf(machine)) return processes;
  const std::vector<pid_t> of_server = ServerProcesses(server);
  processes.insert(processes.end(), of_server.begin(), of_server.end());
  return processes;
}

void PatroniCluster::Signal(int machine, int signal) const {
  for (const pid_t process : Processes(machine)) kill(process, signal);
}

void PatroniCluster::Pause(int machine) const {
  Signal(machine, SIGSTOP);
  Signal(machine, SIGSTOP);  // what the server forked meanwhile
}

void PatroniCluster::Kill(int machine) {
  pid_t& patroni = machines_[static_cast<size_t>(machine)].patroni;
  if (patroni == 0) return;
  // None sees another die.
  Pause(machine);
  Signal(machine, SIGKILL);
  waitpid(patroni, nullptr, 0);
  patroni = 0;
}

std::string PatroniCluster::Address() const {
  std::string hosts;
  for (const Machine& machine : machines_) {
    absl::StrAppend(&hosts, hosts.empty() ? "" : ",", LocalPort(machine.postgres_port));
  }
  return absl::StrCat("postgresql://seqpoint@", hosts,
                      "/postgres?target_session_attrs=read-write&connect_timeout=2");
}

bool PatroniCluster::IsWhole(int machine) const {
  const std::unique_ptr<PGconn, decltype(&PQfinish)> connection(
      PQconnectdb(absl::StrCat("host=127.0.0.1 user=seqpoint dbname=postgres connect_timeout=2 "
                               "target_session_attrs=read-write port=",
                               machines_[static_cast<size_t>(machine)].postgres_port)
                      .c_str()),
      &PQfinish);
  if (PQstatus(connection.get()) != CONNECTION_OK) return false;
  const std::unique_ptr<PGresult, decltype(&PQclear)> result(
      PQexec(connection.get(),
             "SELECT count(*) = 2 AND bool_or(sync_state = 'sync') FROM pg_stat_replication "
             "WHERE state = 'streaming'"),
      &PQclear);
  return PQntuples(result.get()) == 1 && *PQgetvalue(result.get(), 0, 0) == 't';
}

int PatroniCluster::AwaitWhole(absl::Duration timeout) const {
  for (const absl::Time deadline = absl::Now() + timeout; absl::Now() < deadline;) {
    for (int machine = 0; machine < kMachines; ++machine) {
      if (IsWhole(machine)) return machine;
    }
    absl::SleepFor(absl::Milliseconds(200));
  }
  return -1;
}

std::string PatroniCluster::Log(int machine) const {
  std::ifstream in(folder_.path() / (NameOf(machine) + ".log"));
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

}  // namespace seqpoint
