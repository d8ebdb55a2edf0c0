"""The machine that is measured: its GPU, its CUDA libraries, its PyTorch, and how programs run there.

A Machine is made once by gpu.py and handed to every step. Standard library only.
"""
import glob
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))


MOST_OUTPUT = 64 << 20  # bytes of a program's output that are read, the last ones


class StepFailed(Exception):
    """A step could not be answered; the text goes into the results as it is."""


class Skipped(Exception):
    """A step has no meaning on this machine; the text says what is missing."""


class Programs:
    """Everything that is started, each in a session of its own. Any thread.

    Such a session outlives this program when it is killed hard, and would run beside what is measured
    next: so a guard, told of each, ends them once this program is gone."""

    GUARD = """
import os, signal, sys
running = set()
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGINT, signal.SIG_IGN)
for line in sys.stdin:
    (running.add if line[0] == "+" else running.discard)(int(line[1:]))
for group in running:
    try:
        os.killpg(group, signal.SIGKILL)
    except OSError:
        pass
"""

    def __init__(self):
        self._lock = threading.Lock()
        self._running = {}
        self._guard = None
        self._over = False

    def start(self, command, **options):
        """subprocess.Popen; the caller ends it by end()."""
        with self._lock:
            if self._over:
                raise StepFailed("this program is being ended")
            if self._guard is None:
                self._guard = subprocess.Popen([sys.executable, "-c", self.GUARD], stdin=subprocess.PIPE, text=True,
                                               bufsize=1, start_new_session=True)
            process = subprocess.Popen(command, start_new_session=True, **options)
            self._running[process.pid] = process
            self._tell("+", process)
            return process

    def end(self, process):
        """Ends it, if it still runs, and everything in its session."""
        end_group(process)
        with self._lock:
            if self._running.pop(process.pid, None) is not None:
                self._tell("-", process)

    def end_all(self):
        """Nothing is started any more. Also called within a signal handler: takes no lock."""
        self._over = True
        for process in list(self._running.values()):
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except OSError:
                pass

    def _tell(self, sign, process):
        try:
            self._guard.stdin.write(f"{sign}{process.pid}\n")
        except OSError:
            pass  # without it only a hard end leaves programs behind


def find_tool(name, *patterns):
    """A tool of the toolkit, which is often installed and not on the PATH; else None."""
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    places = [f"{home}/bin/{name}", f"/usr/local/cuda*/bin/{name}", *patterns]
    return shutil.which(name) or next((path for place in places for path in sorted(glob.glob(place), reverse=True)
                                       if os.access(path, os.X_OK)), None)


def _folders_of(pattern_list):
    found = []
    for pattern in pattern_list:
        for path in sorted(glob.glob(pattern)):
            folder = os.path.dirname(os.path.realpath(path)) if os.path.isfile(path) else path
            if folder not in found:
                found.append(folder)
    return found


class Machine:
    """`software`: the software GPU instead of a real one, and PyTorch on the CPU, at a tiny size."""

    def __init__(self, bundle, work, software):
        self.bundle = bundle
        self.work = work
        self.software = software
        self.python = sys.executable
        self.deadline = None  # of the running step, time.monotonic()
        self.parts = {}  # letter -> results.Part, for steps that build on another
        self.programs = Programs()
        self._torch = None
        self._no_torch = ""
        os.makedirs(work, exist_ok=True)

    # --- what is there ------------------------------------------------------------------------

    def program(self, name):
        path = os.path.join(self.bundle, "bin", name)
        if not os.access(path, os.X_OK):
            raise Skipped(f"{path} is not in this bundle")
        return path

    def library(self):
        return os.path.join(self.bundle, "lib", "libseqpoint_inject.so")

    def torch_script(self, name):
        return os.path.join(HERE, "torch", name)

    def cuda_folders(self):
        """Folders that hold libcudart.so.13 and libcupti.so.13: the toolkit's, else PyTorch's."""
        if self.software:
            return [self._softgpu()]
        home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
        places = [f"{home}/lib64/libcudart.so.13", f"{home}/extras/CUPTI/lib64/libcupti.so.13",
                  f"{home}/lib64/libcupti.so.13"]
        site = self.torch().get("folder")
        if site:
            nvidia = os.path.join(os.path.dirname(site), "nvidia")
            places += [f"{nvidia}/cu13/lib/libcudart.so.13", f"{nvidia}/*/lib/libcudart.so.13",
                       f"{nvidia}/*/lib/libcupti.so.13"]
        return _folders_of(places)

    def _softgpu(self):
        for folder in ("softgpu", "../softgpu"):
            path = os.path.realpath(os.path.join(self.bundle, folder))
            if os.path.exists(os.path.join(path, "libcuda.so.1")):
                return path
        raise Skipped(f"the software GPU is not in {self.bundle}")

    def torch(self):
        """version, cuda, folder of PyTorch; {} where there is none. Asked once, in its own process."""
        if self._torch is None:
            code = ("import json, os, torch; print(json.dumps({'version': torch.__version__, "
                    "'cuda': torch.version.cuda, 'folder': os.path.dirname(torch.__file__), "
                    "'sees_gpu': torch.cuda.is_available()}))")
            try:
                out = subprocess.run([self.python, "-c", code], capture_output=True, text=True,
                                     timeout=120, check=False)
                self._torch = json.loads(out.stdout.strip().splitlines()[-1])
            except subprocess.TimeoutExpired:
                self._torch, self._no_torch = {}, "has no PyTorch that can be imported within 120 s"
            except (ValueError, IndexError):
                last = (out.stderr.strip().splitlines() or [status_text(out.returncode)])[-1]
                self._torch, self._no_torch = {}, f"has no PyTorch: {last}"
        return self._torch

    def need_torch(self):
        facts = self.torch()
        if not facts:
            raise Skipped(f"{self.python} {self._no_torch}; SEQPOINT_PYTHON names another one")
        if not self.software and not facts["sees_gpu"]:
            raise Skipped(f"PyTorch {facts['version']} sees no GPU")
        return facts

    def has_gpu(self):
        if self.software:
            return True
        return os.path.exists("/dev/nvidiactl") or shutil.which("nvidia-smi") is not None

    def describe(self):
        facts = {"software_gpu": self.software, "python": platform.python_version(),
                 "kernel": platform.release(), "cpus": os.cpu_count(), "user_id": os.getuid()}
        if not self.software:  # who tries the programs need not wait for an import
            facts["torch"] = {k: v for k, v in self.torch().items() if k != "folder"}
        try:
            facts["glibc"] = platform.libc_ver()[1]
            with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
                facts["cpu"] = next((line.split(":")[1].strip() for line in file
                                     if line.startswith("model name")), "")
        except OSError:
            pass
        if self.software:
            facts["gpu"] = "software GPU"
            return facts
        smi = self._ask(["nvidia-smi", "--query-gpu=name,driver_version,memory.total,clocks.sm,"
                         "clocks.mem,mig.mode.current", "--format=csv,noheader"])
        facts["gpu"] = smi.splitlines()[0] if smi else "nvidia-smi does not answer"
        facts["nvcc"] = (self._ask([self.nvcc() or "nvcc", "--version"]).splitlines() or [""])[-1]
        facts["ncu"] = (self._ask([self.ncu() or "ncu", "--version"]).splitlines() or ["not here"])[-1]
        facts["cuda_folders"] = [os.path.basename(os.path.dirname(f)) + "/" + os.path.basename(f)
                                 for f in self.cuda_folders()]
        return facts

    @staticmethod
    def nvcc():
        return find_tool("nvcc")

    @staticmethod
    def ncu():
        return find_tool("ncu", "/opt/nvidia/nsight-compute/*/ncu")

    @staticmethod
    def nsys():
        return find_tool("nsys", "/opt/nvidia/nsight-systems/*/bin/nsys")

    @staticmethod
    def _ask(command):
        try:
            return subprocess.run(command, capture_output=True, text=True, timeout=30,
                                  check=False).stdout.strip()
        except (OSError, subprocess.TimeoutExpired):
            return ""

    # --- running programs ---------------------------------------------------------------------

    def environment(self, extra=None, cuda=True):
        """For CUDA programs of the bundle. `cuda=False`: for PyTorch, which brings its libraries."""
        env = dict(os.environ)
        env["PYTHONUNBUFFERED"] = "1"
        env.pop("SEQPOINT_JOB", None)
        # A daemon that a command starts has a store and sockets of its own.
        env.update({"SEQPOINT_DIR": os.path.join(self.work, "daemon"), "XDG_STATE_HOME": os.path.join(self.work, "state")})
        if cuda or self.software:
            folders = self.cuda_folders()
            env["LD_LIBRARY_PATH"] = ":".join(folders + [env.get("LD_LIBRARY_PATH", "")]).strip(":")
        env.update(extra or {})
        return env

    def left(self, at_most=None):
        """Seconds that the running step still has."""
        seconds = 600.0 if self.deadline is None else self.deadline - time.monotonic()
        return max(0.1, seconds if at_most is None else min(seconds, at_most))

    def run(self, command, limit=None, env=None, check=True, user=None, log=None):
        """Runs to the end; output as text. Everything it started ends with it, also at the limit.

        Raises StepFailed with the end of the output when it fails or runs past its limit."""
        limit = self.left(limit)

        def become():
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
        # A file and no pipe: whoever keeps a pipe open (a daemon of the program's) would hold us, too.
        late = False
        with tempfile.TemporaryFile() as out:
            process = self.programs.start(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                                          env=env or self.environment(), cwd=self.work,
                                          preexec_fn=become if user is not None else None)
            try:
                process.wait(timeout=limit)
            except subprocess.TimeoutExpired:
                late = True
            finally:
                self.programs.end(process)
            out.seek(max(0, out.seek(0, os.SEEK_END) - MOST_OUTPUT))
            output = out.read().decode(errors="replace")
        if log:
            with open(os.path.join(self.work, log), "w", encoding="utf-8") as file:
                file.write(output)
        tail = output[-1500:].strip()
        what = os.path.basename(command[0]) + " " + " ".join(command[1:])[:200]
        if late:
            raise StepFailed(f"{what}: ran past its limit of {limit:.0f} s; its output ends with:\n{tail}")
        if check and process.returncode != 0:
            raise StepFailed(f"{what}: ended with {status_text(process.returncode)}; its output ends "
                             f"with:\n{tail}")
        return Output(process.returncode, output)

    def probe(self, *arguments, limit=60, env=None, user=None, check=True):
        """What seqpoint_gpu_probe answers: its last line is one JSON object."""
        output = self.run([self.program("seqpoint_gpu_probe"), *map(str, arguments)], limit=limit,
                          env=self.environment(env), user=user, check=check)
        return output.last_json()

    def result(self, letter, step):
        """What another step found; it must be done."""
        entry = self.parts[letter].data["steps"].get(step, {})
        if entry.get("status") != "done":
            raise Skipped(f"it needs {letter}.{step}, which is {entry.get('status', 'not measured')}")
        return entry["result"]

    def folder(self, name):
        path = os.path.join(self.work, name)
        os.makedirs(path, exist_ok=True)
        return path


class Output:
    def __init__(self, status, text):
        self.status = status
        self.text = text

    def last_json(self):
        for line in reversed(self.text.strip().splitlines()):
            if line.startswith("{"):
                try:
                    return json.loads(line)
                except ValueError:
                    break
        raise StepFailed(f"no answer ({status_text(self.status)}); the output ends with:\n{self.text[-1500:].strip()}")


def status_text(code):
    if code < 0:
        try:
            return f"signal {signal.Signals(-code).name}"
        except ValueError:
            return f"signal {-code}"
    return f"status {code}"


def end_group(process):
    """Ends the process and everything in its session. What cannot be ended is left after a while."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except OSError:  # nobody is left, or nobody of ours
            break
        try:
            process.wait(timeout=3)
        except subprocess.TimeoutExpired:
            continue
    process.poll()
