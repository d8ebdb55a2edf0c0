// Three PostgreSQL servers under Patroni, each as if on a machine of its own, and the etcd that
// they agree by: Debian's programs, in a temporary folder, on ports of 127.0.0.1, without
// passwords. A commit is on the primary and on one synchronous standby, or it waits
// (synchronous_mode_strict).
//
// etcd never dies here: what happens to a majority of an etcd is not ours to measure.
//
// Threading: a value of one thread. Ownership: ends all servers and removes the folder.
#ifndef TESTS_SUPPORT_PATRONI_CLUSTER_H_
#define TESTS_SUPPORT_PATRONI_CLUSTER_H_

#include <sys/types.h>

#include <array>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tests/support/temp_folder.h"

namespace seqpoint {

class PatroniCluster {
 public:
  static constexpr int kMachines = 3;
  // A primary that is silent for so long is replaced: the least that Patroni 3.0 takes. Its own
  // default is 30 s.
  static constexpr absl::Duration kTimeToLive = absl::Seconds(20);

  // Why there can be no cluster here. Empty: there can.
  static std::string Missing();

  PatroniCluster();
  ~PatroniCluster();
  PatroniCluster(const PatroniCluster&) = delete;
  PatroniCluster& operator=(const PatroniCluster&) = delete;

  // Waits for a primary with two standbys, one of them synchronous. -1: not within `timeout`; else
  // the machine of the primary.
  int AwaitWhole(absl::Duration timeout) const;
  // All servers, in the words of libpq, for the one that writes.
  std::string Address() const;

  // kill -9 of Patroni, PostgreSQL and all its processes at once.
  void Kill(int machine);
  void Start(int machine);
  // The same processes stop. The machine's kernel still takes connections.
  void Pause(int machine) const;

  std::string Log(int machine) const;

 private:
  struct Machine {
    pid_t patroni = 0;
    int postgres_port = 0, rest_port = 0;
  };
  std::string NameOf(int machine) const { return "machine" + std::to_string(machine + 1); }
  void Configure(int machine) const;
  std::vector<pid_t> Processes(int machine) const;
  void Signal(int machine, int signal) const;
  bool IsWhole(int machine) const;

  const TempFolder folder_;
  int etcd_port_ = 0;
  pid_t etcd_ = 0;
  std::array<Machine, kMachines> machines_;
};

}  // namespace seqpoint

#endif  // TESTS_SUPPORT_PATRONI_CLUSTER_H_
