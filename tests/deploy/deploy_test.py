"""The files of deploy/, and seqpointd as somebody operates it. usage: deploy_test.py BUILD DEPLOY CASE"""

import glob
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request

from certificate import with_files

BUILD, DEPLOY = sys.argv[1], sys.argv[2]
BIN = os.path.join(BUILD, "bin")
PATIENCE_S = 60


def need(program, package):
    if shutil.which(program) is None:
        raise unittest.SkipTest(f"{program} is not there; apt-get install {package}")


def get(port, path):
    """Status and text."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE_S) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def until(condition, what):
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError(f"{what}: not within {PATIENCE_S} s")


def expressions():
    """Every query of the rules and the dashboard."""
    with open(os.path.join(DEPLOY, "grafana", "seqpoint.json"), encoding="utf-8") as file:
        found = [target["expr"] for panel in json.load(file)["panels"] for target in panel["targets"]]
    with open(os.path.join(DEPLOY, "prometheus", "rules.yml"), encoding="utf-8") as file:
        found.append(file.read())
    return found


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="seqpoint.")
        self.addCleanup(shutil.rmtree, self.folder, True)
        self.log = os.path.join(self.folder, "daemon.log")

    def start(self, command, environment=None, log=None):
        with open(log or self.log, "ab") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True,
                                       env={**os.environ, **(environment or {})})
        def end():  # with the programs that it started
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
        self.addCleanup(end)
        return process

    def read_log(self):
        with open(self.log, encoding="utf-8") as file:
            return file.read()

    def start_daemon(self, *options, environment=None):
        run = os.path.join(self.folder, "run")
        os.makedirs(run, mode=0o700, exist_ok=True)
        daemon = self.start([f"{BIN}/seqpointd", "--dir", run, "--store", f"{self.folder}/a.db",
                             "--metrics-listen", "127.0.0.1:0", *options], environment)
        port = until(lambda: re.search(r"metrics on port (\d+)", self.read_log()), "the daemon's port")
        until(lambda: "ready: " in self.read_log(), "the daemon")
        return daemon, int(port.group(1))


class Units(Case):
    def runTest(self):
        need("systemd-analyze", "systemd")
        for name in ("seqpointd.service", "seqpointd-hub.service"):
            with open(os.path.join(DEPLOY, "systemd", name), encoding="utf-8") as file:
                text = file.read()
            path = os.path.join(self.folder, name)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text.replace("/usr/bin/seqpointd", f"{BIN}/seqpointd"))
            verified = subprocess.run(["systemd-analyze", "verify", path], capture_output=True,
                                      text=True, check=False)
            self.assertNotIn(name, verified.stderr)
            self.assertEqual(verified.returncode, 0, verified.stderr)
            judged = subprocess.run(["systemd-analyze", "security", "--no-pager", "--offline=yes", path],
                                    capture_output=True, text=True, check=False)
            level = re.search(r"Overall exposure level for \S+: ([0-9.]+)", judged.stdout)
            self.assertIsNotNone(level, judged.stdout + judged.stderr)
            self.assertLess(float(level.group(1)), 2.0, judged.stdout)


class DebianPackages(Case):
    """What is in the packages. `./dev package --deb --try` installs them into a bare Debian."""

    def runTest(self):
        need("dpkg-shlibdeps", "dpkg-dev")
        made = subprocess.run(["cpack", "--config", f"{BUILD}/CPackConfig.cmake", "-B", self.folder,
                               "-D", "CPACK_COMPONENTS_ALL=seqpointd;seqpoint",
                               "-D", "CPACK_DEBIAN_COMPRESSION_TYPE=gzip"],
                              capture_output=True, text=True, check=False)
        self.assertEqual(made.returncode, 0, made.stdout + made.stderr)
        files, fields = {}, {}
        for path in glob.glob(f"{self.folder}/*.deb"):
            name = os.path.basename(path).split("_")[0]
            listed = subprocess.run(["dpkg-deb", "-c", path], capture_output=True, text=True, check=True)
            files[name] = {line.split()[5][1:]: line.split()[:2] for line in listed.stdout.splitlines()}
            told = subprocess.run(["dpkg-deb", "-f", path], capture_output=True, text=True, check=True)
            fields[name] = dict(line.split(": ", 1) for line in told.stdout.splitlines() if ": " in line)
            subprocess.run(["dpkg-deb", "-R", path, f"{self.folder}/root-{name}"], check=True)
        for path in ("/usr/bin/seqpoint", "/usr/lib/seqpoint/libseqpoint_inject.so", "/usr/include/seqpoint.h",
                     "/usr/share/seqpoint/python/seqpoint.pth",
                     "/usr/share/seqpoint/slurm/task_prolog.sh", "/usr/share/doc/seqpoint/copyright"):
            self.assertIn(path, files["seqpoint"])
        self.assertEqual([path for path in files["seqpoint"] if path.endswith("_test.py")], [])
        for path in ("/usr/bin/seqpointd", "/lib/systemd/system/seqpointd.service",
                     "/lib/systemd/system/seqpointd-hub.service", "/usr/share/doc/seqpointd/copyright"):
            self.assertIn(path, files["seqpointd"])
        for package in files:  # nobody else's, and nothing that others may write
            for path, (mode, owner) in files[package].items():
                self.assertEqual((mode[5], mode[8], owner), ("-", "-", "root/root"), path)
        version = fields["seqpointd"]["Version"]
        self.assertIn(f"seqpointd (= {version})", fields["seqpoint"]["Depends"])
        for library in ("libc6", "libgrpc++1.51", "libsqlite3-0", "adduser"):
            self.assertIn(library, fields["seqpointd"]["Depends"])
        # Settings that the daemon takes, and that an upgrade leaves.
        root = f"{self.folder}/root-seqpointd"
        with open(f"{root}/DEBIAN/conffiles", encoding="utf-8") as file:
            settings = file.read().split()
        self.assertEqual(sorted(settings), sorted(path for path in files["seqpointd"]
                                                  if path.startswith("/etc/") and path[-1] != "/"))
        for path in settings:
            with open(root + path, encoding="utf-8") as file:  # with the lines that a site takes in
                need("openssl", "openssl")
                text = with_files(re.sub(r"(?m)^#(?=[a-z-]+ = )", "", file.read()), self.folder)
            with open(f"{self.folder}/settings.toml", "w", encoding="utf-8") as file:
                file.write(text)
            for one in (root + path, f"{self.folder}/settings.toml"):
                checked = subprocess.run([f"{root}/usr/bin/seqpointd", "--config", one, "--check-config"],
                                         capture_output=True, text=True, check=False)
                self.assertEqual(checked.returncode, 0, checked.stderr)
        for script in ("postinst", "prerm", "postrm"):
            subprocess.run(["sh", "-n", f"{root}/DEBIAN/{script}"], check=True)


class Rules(Case):
    def runTest(self):
        need("promtool", "prometheus")
        rules = os.path.join(DEPLOY, "prometheus")
        for command in (["check", "rules", "rules.yml"], ["test", "rules", "rules_test.yml"]):
            done = subprocess.run(["promtool", *command], cwd=rules, capture_output=True, text=True,
                                  check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


class Prometheus(Case):
    """A real Prometheus scrapes a real daemon, under which a job of the software GPU runs."""

    def runTest(self):
        need("prometheus", "prometheus")
        _, port = self.start_daemon("--hub", f"unix:{self.folder}/no-hub.sock")
        self.start([f"{BIN}/seqpoint", "run", "--job", "bert", "--run-id", "1", "--quiet", "--",
                    f"{BIN}/seqpoint_workload", "--quiet", "--epochs", "1000"],
                   {"SEQPOINT_DIR": f"{self.folder}/run", "SWGPU_SET": "clock.speed_cap=4",
                    "LD_LIBRARY_PATH": os.path.join(BUILD, "softgpu")}, f"{self.folder}/job.log")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            own_port = free.getsockname()[1]
        config = os.path.join(self.folder, "prometheus.yml")
        with open(config, "w", encoding="utf-8") as file:
            json.dump({"global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                       "rule_files": [os.path.join(DEPLOY, "prometheus", "rules.yml")],
                       "scrape_configs": [{"job_name": "seqpoint", "static_configs": [
                           {"targets": [f"127.0.0.1:{port}"]}]}]}, file)
        self.start(["prometheus", f"--config.file={config}",
                    f"--storage.tsdb.path={self.folder}/tsdb",
                    f"--web.listen-address=127.0.0.1:{own_port}"], log=f"{self.folder}/prometheus.log")

        def query(expression):
            try:
                status, text = get(own_port, "/api/v1/query?" +
                                   urllib.parse.urlencode({"query": expression}))
            except (urllib.error.URLError, ConnectionError):
                return []
            return json.loads(text)["data"]["result"] if status == 200 else []

        texts = expressions()
        metrics = sorted(set(re.findall(r"\b(?:seqpointd|process)_\w+", " ".join(texts))))
        self.assertGreater(len(metrics), 10)
        for metric in metrics:
            until(lambda name=metric: query(name), metric)
        for expression in texts[:-1]:  # the dashboard's
            until(lambda query_=expression: query(query_), expression)
        until(lambda: query("seqpointd:job_iteration_seconds:mean5m"), "the recorded rule")
        rows = query("seqpointd_job_iterations_total")
        self.assertEqual([row["metric"]["job_name"] for row in rows], ["bert"])
        self.assertEqual(query("seqpointd_hub_connected")[0]["value"][1], "0")
        rules = json.loads(get(own_port, "/api/v1/rules")[1])["data"]["groups"][0]["rules"]
        self.assertEqual({rule["health"] for rule in rules}, {"ok"}, rules)


class Daemon(Case):
    """Signals, health, systemd and the log, as docs/using/operating.md says."""

    def runTest(self):
        config = os.path.join(self.folder, "seqpointd.toml")
        def write(text):
            with open(config, "w", encoding="utf-8") as file:
                file.write(text)
        write('log-format = "json"\nmax-job-age = 100\n')
        notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        notify.bind(f"{self.folder}/notify")
        notify.settimeout(PATIENCE_S)
        daemon, port = self.start_daemon("--config", config, environment={
            "NOTIFY_SOCKET": f"{self.folder}/notify", "WATCHDOG_USEC": "4000000"})
        told = ""
        def hear(what):
            nonlocal told
            while what not in told:
                told += notify.recv(4096).decode() + "\n"
        for what in ("READY=1", "WATCHDOG=1", "STATUS=ready; 0 processes"):
            hear(what)
        self.assertEqual(get(port, "/healthz"), (200, "healthy\n"))
        self.assertEqual(get(port, "/readyz"), (200, "ready\n"))
        self.assertEqual(get(port, "/")[0], 404)

        write('log-format = "json"\nmax-job-age = 200\nmax-store-bytes = 123456789\nmeasurements = 5\n')
        daemon.send_signal(signal.SIGHUP)
        hear("RELOADING=1")
        until(lambda: "changed: max-job-age, max-store-bytes" in self.read_log(), "the reload")
        self.assertIn("when the daemon is started again: measurements", self.read_log())
        self.assertIn("\nseqpointd_store_limit_bytes 123456789", get(port, "/metrics")[1])
        write("max-job-agee = 1\n")
        daemon.send_signal(signal.SIGHUP)
        until(lambda: "the settings stay as they are" in self.read_log(), "the refusal")
        self.assertIn(f"{config}:1: ", self.read_log())
        self.assertIn("\nseqpointd_store_limit_bytes 123456789", get(port, "/metrics")[1])

        daemon.send_signal(signal.SIGTERM)
        hear("STOPPING=1")
        self.assertEqual(daemon.wait(PATIENCE_S), 0)
        for line in self.read_log().splitlines():
            self.assertEqual(set(json.loads(line)), {"time", "level", "message"})


if __name__ == "__main__":
    suite = unittest.defaultTestLoader.loadTestsFromName(sys.argv[3], sys.modules[__name__])
    result = unittest.TextTestRunner(verbosity=2).run(suite)
    sys.exit(77 if result.skipped else not result.wasSuccessful())
