"""The files of deploy/slurm under Debian's Slurm: two nodes on this machine. usage: as deploy_test.py"""

import getpass
import json
import os
import signal
import socket
import subprocess
import sys
import unittest

from deploy_test import BIN, BUILD, DEPLOY, Case, need, until

SLURM = os.path.join(DEPLOY, "slurm")
NODES = ("n1", "n2")
TRAINING = [f"{BIN}/seqpoint_workload", "--quiet", "--model", "gnmt", "--hidden", "64", "--layers", "2",
            "--vocabulary", "256", "--batch", "8", "--max-iterations", "300"]


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Variables(Case):
    """The TaskProlog sets what `seqpoint run` sets."""

    def exported(self, environment):
        done = subprocess.run([f"{SLURM}/task_prolog.sh"], capture_output=True, text=True, check=True,
                              env={"PATH": os.environ["PATH"], "SEQPOINT_PREFIX": BUILD, **environment})
        self.assertTrue(all(line.startswith("export ") for line in done.stdout.splitlines()), done.stdout)
        return dict(line[len("export "):].split("=", 1) for line in done.stdout.splitlines())

    def runTest(self):
        self.start_daemon()
        theirs = {"PYTHONPATH": "/theirs", "NCCL_PROFILER_PLUGIN": "inspector", "SLURM_JOB_ID": "7"}
        done = subprocess.run([f"{BIN}/seqpoint", "run", "--quiet", "--", "env"], check=True, text=True,
                              capture_output=True, env={"PATH": os.environ["PATH"], **theirs,
                                                        "SEQPOINT_DIR": f"{self.folder}/run"})
        by_run = dict(line.split("=", 1) for line in done.stdout.splitlines())
        ours = self.exported({"SEQPOINT": "1", "SEQPOINT_DIR": f"{self.folder}/run", **theirs})
        # `seqpoint run` alone knows the program, its start and its end; LD_PRELOAD is for programs that
        # call the library.
        of_run = {"SEQPOINT_JOB", "SEQPOINT_LAUNCH", "SEQPOINT_ADAPTER_TOLD", "LD_PRELOAD"}
        wanted = {name: value for name, value in by_run.items()
                  if name not in of_run and ("SEQPOINT" in name or "libseqpoint" in value or name == "PYTHONPATH")}
        self.assertGreaterEqual(len(wanted), 8)
        self.assertEqual(ours, wanted)
        self.assertEqual(self.exported({**theirs}), {})  # nobody asked
        taken = self.exported({"SEQPOINT": "1", "SLURM_JOB_ID": "7", "CUDA_INJECTION64_PATH": "/nsight.so",
                               "NCCL_PROFILER_PLUGIN": "none"})
        self.assertEqual(taken["CUDA_INJECTION64_PATH"], "/nsight.so")
        self.assertNotIn("NCCL_PROFILER_PLUGIN", taken)


class Slurm(Case):
    """One job of two nodes with two tasks each, by the TaskProlog and by the wrapper."""

    def setUp(self):
        super().setUp()
        for program, package in (("slurmctld", "slurmctld"), ("slurmd", "slurmd"), ("srun", "slurm-client"),
                                 ("munged", "munge")):
            need(program, package)
        if os.getuid() != 0:
            self.skipTest("slurmd needs root")
        self.addCleanup(self.end_private_daemons)
        self.start_munge()
        self.start_hub()
        self.start_slurm()

    def start_munge(self):
        folder = f"{self.folder}/munge"
        os.makedirs(folder, mode=0o700)
        with open(f"{folder}/key", "wb") as file:
            file.write(os.urandom(128))
        os.chmod(f"{folder}/key", 0o600)
        self.munge = f"{folder}/socket"
        self.start(["munged", "--force", "--foreground", f"--socket={self.munge}", f"--key-file={folder}/key",
                    f"--pid-file={folder}/pid", f"--log-file={folder}/log", f"--seed-file={folder}/seed"],
                   log=f"{self.folder}/munged.log")
        until(lambda: os.path.exists(self.munge), "munged")

    def start_hub(self):
        os.makedirs(f"{self.folder}/hub", mode=0o700)
        self.start([f"{BIN}/seqpointd", "--dir", f"{self.folder}/hub", "--store", f"{self.folder}/hub/hub.db",
                    "--accept-nodes"])
        self.hub = f"unix:{self.folder}/hub/api.sock"
        until(lambda: os.path.exists(f"{self.folder}/hub/api.sock"), "the hub")

    def start_slurm(self):
        for name in ("ctld", *NODES):
            os.makedirs(f"{self.folder}/{name}")
        # The site's TaskProlog: the folder of a node's daemon is another on each of our "nodes".
        prolog = f"{self.folder}/prolog.sh"
        with open(prolog, "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\nexport SEQPOINT_DIR={self.folder}/$SLURMD_NODENAME/run SEQPOINT_PREFIX={BUILD}\n"
                       f"exec {SLURM}/task_prolog.sh\n")
        os.chmod(prolog, 0o755)
        ports = free_ports(3)
        self.config = f"{self.folder}/slurm.conf"
        with open(self.config, "w", encoding="utf-8") as file:
            file.write(f"""ClusterName=tried
SlurmctldHost={socket.gethostname()}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={getpass.getuser()}
SlurmdUser={getpass.getuser()}
AuthType=auth/munge
AuthInfo=socket={self.munge}
CredType=cred/munge
StateSaveLocation={self.folder}/ctld
SlurmctldPidFile={self.folder}/ctld/pid
SlurmctldLogFile={self.folder}/ctld/log
SlurmdSpoolDir={self.folder}/%n
SlurmdPidFile={self.folder}/%n/pid
SlurmdLogFile={self.folder}/%n/log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
TaskProlog={prolog}
""" + "".join(f"NodeName={node} NodeHostname={socket.gethostname()} NodeAddr=127.0.0.1 Port={port} CPUs=2\n"
              for node, port in zip(NODES, ports[1:])) +
                       f"PartitionName=all Nodes={','.join(NODES)} Default=YES State=UP\n")
        self.slurm = {"SLURM_CONF": self.config}
        self.start(["slurmctld", "-D", "-f", self.config], self.slurm, log=f"{self.folder}/slurm.log")
        for node in NODES:
            self.start(["slurmd", "-D", "-N", node, "-f", self.config], self.slurm, log=f"{self.folder}/slurm.log")
        until(lambda: subprocess.run(["sinfo", "-h", "-o", "%D", "-t", "idle"], capture_output=True, text=True,
                                     env={**os.environ, **self.slurm}, check=False).stdout.strip() == "2",
              "two idle nodes")

    def srun(self, *command, **environment):
        done = subprocess.run(["srun", "-N", "2", "--ntasks-per-node", "2", "--job-name", "bert", *command],
                              capture_output=True, text=True, check=False, timeout=100,
                              env={**os.environ, **self.slurm, "LD_LIBRARY_PATH": f"{BUILD}/softgpu",
                                   "PATH": f"{BIN}:{os.environ['PATH']}", **environment})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def asked(self, folder, *command):
        done = subprocess.run([f"{BIN}/seqpoint", "--json", *command], capture_output=True, text=True,
                              env={**os.environ, "SEQPOINT_DIR": folder}, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return json.loads(done.stdout)

    def end_private_daemons(self):
        """As Slurm ends what a step leaves."""
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/environ", "rb") as file:
                    if f"SEQPOINT_DIR={self.folder}/seqpoint-".encode() in file.read():
                        os.kill(int(pid), signal.SIGKILL)
            except OSError:  # it ended meanwhile
                pass

    def check_job(self, name, run_id):
        """The hub has one job of four ranks on two nodes, whole."""
        def job():
            found = [job for job in self.asked(f"{self.folder}/hub", "jobs").get("jobs", [])
                     if job["name"] == name and job["run_id"] == run_id]
            return found[0] if found and found[0]["state"] == "JOB_STATE_ENDED" else None
        job = until(job, f"the end of {name}@{run_id} on the hub")
        processes = self.asked(f"{self.folder}/hub", "jobs", job["id"])["job"]["processes"]
        self.assertEqual(sorted(int(one["rank"]) for one in processes), [0, 1, 2, 3], processes)
        self.assertEqual({int(one["iterations"]) for one in processes}, {300}, processes)

    def runTest(self):
        for node in NODES:
            os.makedirs(f"{self.folder}/{node}/run", mode=0o700)
            self.start([f"{BIN}/seqpointd", "--dir", f"{self.folder}/{node}/run",
                        "--store", f"{self.folder}/{node}/node.db", "--hub", self.hub])
            until(lambda path=f"{self.folder}/{node}/run/inject.sock": os.path.exists(path), "the node's daemon")
        self.srun(*TRAINING, SEQPOINT="1")
        self.check_job("seqpoint_workload", "slurm-1")
        self.assertEqual(len(self.asked(f"{self.folder}/hub", "nodes")["nodes"]), 2)
        self.srun(*TRAINING)  # nobody asked
        told = self.srun(f"{SLURM}/seqpoint-task", *TRAINING, SEQPOINTD_HUB=self.hub, TMPDIR=self.folder,
                         SEQPOINT_STATE=f"{self.folder}/state", SEQPOINT_RUN="--job wrapped --quiet")
        self.assertNotIn("seqpoint-task:", told)  # it waited, and the hub has everything
        self.end_private_daemons()
        self.check_job("wrapped", "slurm-3")
        self.assertEqual(len(self.asked(f"{self.folder}/hub", "jobs", "--all")["jobs"]), 2)


if __name__ == "__main__":
    suite = unittest.defaultTestLoader.loadTestsFromName(sys.argv[3], sys.modules[__name__])
    result = unittest.TextTestRunner(verbosity=2).run(suite)
    sys.exit(77 if result.skipped else not result.wasSuccessful())
