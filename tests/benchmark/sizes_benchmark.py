#!/usr/bin/env python3
"""What the daemon of a node and the hub need for a training of N ranks: CPU, memory, bytes.

    ./dev bench sizes [--ranks 1,2,4,8] [--seconds 20] [--iterations 20000]

Three measurements for each number of ranks, all on the software GPU:
  pace    GNMT at the pace of a GPU (speed_cap=1, about 100 iterations/s) for some seconds: CPU
          and memory of the node's daemon and of the hub, while iterations are marked and while the
          ranks learn
  store   ended runs without pace: bytes in the files of node and hub, by table, with traces of SeqPoints
  wire    the same without a hub: what waits in the outbox is what would cross the network, compressed
"""

import argparse
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time

BUILD = os.environ["SEQPOINT_BUILD"]
BIN = os.path.join(BUILD, "bin")
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_s(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def memory(pid, name):
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith(name))


class Site:
    """A hub and a node in a folder; the hub may be one that never answers."""

    def __init__(self, with_hub):
        self.folder = tempfile.mkdtemp(prefix="seqpoint-sizes.")
        self.daemons = {}
        if with_hub:
            self.start("hub", "--accept-nodes")
        self.start("node", "--hub", f"unix:{self.folder}/hub/api.sock")

    def start(self, name, *options):
        os.mkdir(f"{self.folder}/{name}", mode=0o700)
        with open(f"{self.folder}/{name}.log", "wb") as log:
            self.daemons[name] = subprocess.Popen(
                [f"{BIN}/seqpointd", "--dir", f"{self.folder}/{name}", "--store", self.store(name), *options],
                stdout=log, stderr=log)
        while not os.path.exists(f"{self.folder}/{name}/api.sock"):
            time.sleep(0.05)

    def store(self, name):
        return f"{self.folder}/{name}/store.db"

    def ask(self, name, *command):
        done = subprocess.run([f"{BIN}/seqpoint", "--json", *command], check=True, capture_output=True,
                              env={**os.environ, "SEQPOINT_DIR": f"{self.folder}/{name}"})
        return json.loads(done.stdout)

    def train(self, count, iterations, settings):
        """GNMT in data parallel, whose ranks meet in collectives; iterations told by NVTX."""
        environment = {**os.environ, "SEQPOINT_DIR": f"{self.folder}/node", "LD_LIBRARY_PATH": f"{BUILD}/softgpu",
                       **settings}
        parallel = ["--parallel", "data"] if count > 1 else []
        return subprocess.Popen(
            [f"{BIN}/seqpoint", "run", "--quiet", "--job", "sizes", "--run-id", "1", "--",
             f"{BIN}/seqpoint_launch", "-n", str(count), f"{BIN}/seqpoint_workload", "--quiet", "--model", "gnmt",
             *parallel, "--epochs", "1000", "--max-iterations", str(iterations)], env=environment)

    def end(self):
        for daemon in self.daemons.values():
            daemon.send_signal(signal.SIGTERM)
            daemon.wait()

    def remove(self):
        shutil.rmtree(self.folder)


def iterations_of(site, name):
    jobs = site.ask(name, "jobs").get("jobs", [])
    return int(jobs[0]["iterations"]) if jobs else 0


def level_of(site):
    job = site.ask("node", "jobs", "1")["job"]
    return {process["level"] for process in job["processes"]}


def pace(count, seconds):
    site = Site(with_hub=True)
    training = site.train(count, 10**9, {"SWGPU_SET": "clock.speed_cap=1"})
    try:
        began = time.monotonic()
        learning = {name: cpu_s(one.pid) for name, one in site.daemons.items()}
        while time.monotonic() - began < 120:
            time.sleep(0.5)
            if iterations_of(site, "node") > 0 and level_of(site) == {"LEVEL_MARK"}:
                break
        time.sleep(5)  # measurements come first
        settled_after = time.monotonic() - began
        for name, one in site.daemons.items():
            learning[name] = cpu_s(one.pid) - learning[name]
        first = {name: cpu_s(one.pid) for name, one in site.daemons.items()}
        before, began = iterations_of(site, "node"), time.monotonic()
        time.sleep(seconds)
        after, took = iterations_of(site, "node"), time.monotonic() - began
        if after == before:
            print(f"pace   ranks={count}: not measured, as no iteration came in {took:.0f} s "
                  f"({settled_after:.0f} s after the start); this machine is too busy for so many ranks", flush=True)
            return
        for name, one in site.daemons.items():
            used = cpu_s(one.pid) - first[name]
            rows = (after - before) * count
            print(f"pace   ranks={count} {name:4} iterations/s={(after - before) / took:6.1f} "
                  f"CPU={100 * used / took:6.2f} % of a core, {1e6 * used / rows:6.1f} us an iteration and rank; "
                  f"start: {learning[name]:.2f} s of CPU in {settled_after:.0f} s; "
                  f"memory now {memory(one.pid, 'VmRSS'):.0f} MiB, most {memory(one.pid, 'VmHWM'):.0f} MiB",
                  flush=True)
    finally:
        training.terminate()
        training.wait()
        site.end()
        site.remove()


def tables(path):
    database = sqlite3.connect(path)
    sizes = dict(database.execute("SELECT name, SUM(pgsize) FROM dbstat GROUP BY name"))
    segments = database.execute("SELECT COUNT(DISTINCT job_id || '.' || rank || '.' || number) FROM trace_segment"
                                ).fetchone()[0]
    outbox = database.execute("SELECT COUNT(*), SUM(LENGTH(bytes)) FROM outbox").fetchone()
    database.close()
    return sizes, segments, outbox


def store(count, iterations, with_hub):
    site = Site(with_hub)
    try:
        site.train(count, iterations, {}).wait()
        time.sleep(2)
        if with_hub:
            while int(site.ask("node", "version")["daemon"]["hub"].get("waiting_batches", 0)) > 0:
                time.sleep(0.2)
        site.end()
        rows = count * iterations  # and the steps of the job, where it has several ranks
        for name in site.daemons:
            sizes, traced, (batches, wire) = tables(site.store(name))
            if with_hub:
                traces = sizes["trace_segment"] / traced / 1000 if traced else 0
                print(f"store  ranks={count} {name:4} iterations={iterations}: "
                      f"table iteration {sizes['iteration'] / rows:5.1f} B an iteration and rank, "
                      f"state {sizes['state'] / 1000:.0f} KB a job, traces {traced}, {traces:.1f} KB each, "
                      f"file {os.path.getsize(site.store(name)) / 1e6:.2f} MB", flush=True)
            else:
                print(f"wire   ranks={count} {name:4} iterations={iterations}: {batches} batches, "
                      f"{(wire or 0) / rows:5.1f} B an iteration and rank", flush=True)
    finally:
        site.end()
        site.remove()


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--ranks", default="1,2,4,8")
    options.add_argument("--seconds", type=int, default=20)
    options.add_argument("--iterations", type=int, default=20000)
    given = options.parse_args()
    for count in (int(one) for one in given.ranks.split(",")):
        pace(count, given.seconds)
        store(count, given.iterations, with_hub=True)
        store(count, given.iterations, with_hub=False)


if __name__ == "__main__":
    sys.exit(main())
