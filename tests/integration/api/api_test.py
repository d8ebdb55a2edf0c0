"""The commands and the client of docs/using/api.md, as they stand there."""
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs/using/api.md").read_text()
BIN = pathlib.Path(os.environ.get("SEQPOINT_BUILD", ROOT / "build/release")) / "bin"


def generate(language, folder):
    """Runs the page's commands of a language; the stubs are in folder/stubs."""
    (folder / "stubs").mkdir()
    commands = re.search(rf"^    # {re.escape(language)}(?=[;\n]).*?\n(.*?)(?=^    #|^\S)", PAGE,
                         re.MULTILINE | re.DOTALL).group(1)
    (folder / "proto").symlink_to(ROOT / "proto")
    subprocess.run(["bash", "-ec", commands], cwd=folder, check=True)
    return folder / "stubs/seqpoint/v1"


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)


class StubsTest(Case):
    def test_python(self):
        for plugin in ("protoc", "grpc_python_plugin"):
            if not shutil.which(plugin):
                self.skipTest(f"{plugin} is not installed")
        stubs = generate("Python", self.folder)
        for name in ("profiler_pb2.py", "profiler_pb2_grpc.py"):
            compile((stubs / name).read_text(), name, "exec")

    def test_cpp(self):
        stubs = generate("C++", self.folder)
        self.assertTrue((stubs / "profiler.grpc.pb.h").exists())


class GoStubsTest(Case):
    def test_go(self):
        for plugin in ("protoc-gen-go", "protoc-gen-go-grpc"):
            if not shutil.which(plugin):
                self.skipTest(f"{plugin} is not installed")
        stubs = generate("Go", self.folder)
        self.assertIn("package seqpointv1", (stubs / "profiler_grpc.pb.go").read_text())


class ClientTest(Case):
    def test_the_client_of_the_page_lists_jobs(self):
        if importlib.util.find_spec("grpc") is None:
            self.skipTest("python3-grpcio is not installed")
        generate("Python", self.folder)
        client = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL).group(1)
        self.assertLessEqual(len(client.splitlines()), 24)
        # As with thousands of jobs: a page does not hold all.
        client = client.replace("ListJobsRequest(", "ListJobsRequest(page_size=1, ")
        environment = dict(os.environ, SEQPOINT_DIR=str(self.folder), HOME=str(self.folder),
                           PYTHONPATH=f"{self.folder}/stubs:{os.environ.get('PYTHONPATH', '')}")
        environment.pop("XDG_STATE_HOME", None)
        daemon = subprocess.Popen([BIN / "seqpointd"], env=environment, stderr=subprocess.DEVNULL)
        self.addCleanup(daemon.wait)
        self.addCleanup(daemon.terminate)
        for _ in range(500):
            if (self.folder / "api.sock").exists():
                break
            time.sleep(0.02)
        log = self.folder / "steps.csv"
        log.write_text("length,time_ms\n" + "".join(f"{i % 20 + 1},{i % 20 + 5}\n" for i in range(200)))
        subprocess.run([BIN / "seqpoint", "import", log], env=environment, check=True,
                       stdout=subprocess.DEVNULL)
        told = subprocess.run([BIN / "seqpoint", "run", "--job", "crash", "--quiet", "--", "false"],
                              env=environment)
        self.assertEqual(told.returncode, 1)
        result = subprocess.run([sys.executable, "-c", client], env=environment, text=True,
                                capture_output=True)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, r"steps JOB_STATE_ENDED 200\n  whole run: \S+ to \S+ ns")
        self.assertRegex(result.stdout,
                         r"crash JOB_STATE_FAILED 0\n  its program ended with status 1\n"
                         r"  FAILED_PRECONDITION")


if __name__ == "__main__":
    unittest.main()
