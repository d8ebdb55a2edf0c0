"""A training under `seqpoint run`, with a daemon of its own, and what is asked about it.

    with Session(machine, "gnmt") as watched:
        watched.start([...command...], run_options=[...]); watched.until(0.05, total); watched.wait()
"""
import json
import os
import shutil
import subprocess
import time

from machine import Output, StepFailed, status_text

# How the PyTorch adapter is left out, so that boundaries and lengths are found without it.
WITHOUT_ADAPTER = {"SEQPOINT_ADAPTER": "0"}


def device(machine):
    """What every script of tests/gpu/torch is told."""
    return ["--device", "cpu", "--tiny"] if machine.software else ["--device", "cuda"]


class Session:
    def __init__(self, machine, name):
        self.machine = machine
        self.name = name
        self.folder = machine.folder(name)
        self.process = None
        self.log_path = os.path.join(self.folder, "output.log")
        self.environment = {}

    def __enter__(self):
        for sub in ("run", "state"):
            os.makedirs(os.path.join(self.folder, sub), mode=0o700, exist_ok=True)
        # A folder's path may be too long for a socket.
        self.sockets = os.path.join("/tmp", f"sp-{os.getpid()}-{self.name}"[:60])
        os.makedirs(self.sockets, mode=0o700, exist_ok=True)
        self.environment = {"SEQPOINT_DIR": self.sockets, "XDG_STATE_HOME": os.path.join(self.folder, "state")}
        return self

    def __exit__(self, *_):
        if self.process is not None:
            self.machine.programs.end(self.process)
            self.log.close()
        # The private daemon ends by itself 10 s after the last question; its store goes with the folder.
        shutil.rmtree(os.path.join(self.folder, "run"), ignore_errors=True)
        shutil.rmtree(self.sockets, ignore_errors=True)

    # --- running ------------------------------------------------------------------------------

    def start(self, command, run_options=(), cuda=True, extra=None, pipes=False):
        """`cuda=False`: a PyTorch program, which brings its own CUDA libraries. `pipes`: standard
        input and output are self.process's, for a program that is told what to do."""
        env = self.machine.environment({**self.environment, **(extra or {})}, cuda=cuda)
        full = [self.machine.program("seqpoint"), "run", "--job", self.name, "--run-id", "1", "--no-progress",
                "--quiet", *run_options, "--", *command]
        self.log = open(self.log_path, "w", encoding="utf-8")
        self.process = self.machine.programs.start(
            full, stdin=subprocess.PIPE if pipes else subprocess.DEVNULL,
            stdout=subprocess.PIPE if pipes else self.log, stderr=self.log if pipes else subprocess.STDOUT,
            env=env, cwd=self.folder, text=True, bufsize=1)
        return self

    def train_start(self, script, arguments, run_options=(), extra=None):
        return self.start([self.machine.python, self.machine.torch_script(script), *device(self.machine), *arguments],
                          run_options, cuda=False, extra=extra)

    def train(self, script, arguments, run_options=(), extra=None, limit=None, check=True):
        self.train_start(script, arguments, run_options, extra)
        return self.wait(limit, check)

    def wait(self, limit=None, check=True):
        limit = self.machine.left(limit)
        try:
            status = self.process.wait(timeout=limit)
        except subprocess.TimeoutExpired:
            self.machine.programs.end(self.process)
            raise StepFailed(f"{self.name}: ran past its limit of {limit:.0f} s; {self.tail()}") from None
        finally:
            self.log.close()
        if check and status != 0:
            raise StepFailed(f"{self.name}: ended with {status_text(status)}; {self.tail()}")
        with open(self.log_path, encoding="utf-8", errors="replace") as file:
            return Output(status, file.read())

    def tail(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as file:
            return "its output ends with:\n" + file.read()[-1500:].strip()

    # --- asking -------------------------------------------------------------------------------

    def ask(self, *arguments, check=True):
        """A command of the client, as JSON; {} when there is no answer yet and not `check`."""
        env = self.machine.environment(self.environment)
        out = subprocess.run([self.machine.program("seqpoint"), *arguments, "--json"], capture_output=True, text=True,
                             env=env, timeout=self.machine.left(60), check=False)
        if out.returncode != 0:
            if check:
                raise StepFailed(f"seqpoint {' '.join(arguments)}: {out.stderr.strip()}")
            return {}
        return json.loads(out.stdout)

    def tell(self, *arguments):
        return self.ask("control", self.name, *arguments)

    def job(self):
        """The job without what is large: state, iterations, rule, overhead, error, losses."""
        whole = self.ask("jobs", self.name, check=False).get("job", {})
        out = {key: whole.get(key) for key in ("state", "iterations", "unique_lengths", "error", "clock_kind",
                                               "live_processes", "rule", "overhead", "losses", "seqpoints", "phases")}
        out["iterations"] = int(out["iterations"] or 0)
        return out

    def says(self):
        """{feature: message} of the library in the newest process: what it can do, and why not what it cannot."""
        processes = self.ask("jobs", self.name, check=False).get("job", {}).get("processes") or [{}]
        return {one["name"]: one["message"] for one in processes[-1].get("features", [])}

    def stops(self, what):
        """How often the program was stopped for this: "counters", "traces"."""
        spent = (self.job().get("overhead") or {}).get("spent") or []
        return sum(int(one["count"]) for one in spent if one["activity"] == f"stops for {what}")

    def running(self):
        return self.process.poll() is None

    def until(self, done, limit=None, pause=0.1):
        """Waits until done(job) while the program runs; its answer, or None when the program ended before."""
        end = time.monotonic() + self.machine.left(limit)
        while time.monotonic() < end:
            job = self.job()
            if done(job):
                return job
            if not self.running():
                return None
            time.sleep(pause)
        raise StepFailed(f"{self.name}: waited too long; {self.job().get('error') or ''} {self.tail()}")

    def project(self):
        """{"value", "low", "high", "fraction", "basis"} in ns of the whole run; None: no answer yet."""
        projection = self.ask("project", self.name, check=False).get("projection", {})
        if "total" not in projection:
            return None
        total = int(projection["iterations_total"]) or 1
        return {**projection["total"], "iterations": int(projection["iterations_so_far"]), "of": total,
                "basis": projection["basis"]}

    def iterations(self):
        path = os.path.join(self.folder, "iterations.csv")
        self.ask("export", self.name, "--csv", path)
        return path
