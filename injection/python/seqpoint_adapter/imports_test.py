"""The import of torch, with a package of another name in its place."""

import importlib
import importlib.abc
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import seqpoint_adapter

NAME = "seqpoint_imported"


class ImportsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = os.path.join(folder.name, f"{NAME}.py")
        self.write("events.append('loaded')")
        self.kept = (list(sys.path), list(sys.meta_path))
        sys.path.insert(0, folder.name)
        sys.dont_write_bytecode, self.bytecode = True, sys.dont_write_bytecode
        self.addCleanup(self.restore)
        self.events = []
        seqpoint_adapter.around_import(NAME, lambda: self.events.append("before"),
                                       self.events.append)

    def restore(self):
        sys.path[:], sys.meta_path[:] = self.kept
        sys.dont_write_bytecode = self.bytecode
        sys.modules.pop(NAME, None)
        importlib.invalidate_caches()

    def write(self, text):
        with open(self.file, "w") as file:
            file.write(f"from {__name__} import events\n{text}\n")
        importlib.invalidate_caches()

    def load(self):
        global events
        events = self.events
        return importlib.import_module(NAME)

    def test_the_module_is_loaded_in_between_and_keeps_no_trace(self):
        module = self.load()
        self.assertEqual(self.events, ["before", "loaded", module])
        for loader in (module.__loader__, module.__spec__.loader):
            self.assertNotIn("seqpoint", type(loader).__module__)
        self.assertEqual(sys.meta_path, self.kept[1])

    def test_looking_for_the_module_does_not_load_it(self):
        self.assertEqual(importlib.util.find_spec(NAME).origin, self.file)
        self.assertEqual(self.events, [])
        self.load()
        self.assertEqual(len(self.events), 3)

    def test_other_tools_that_wait_for_the_same_module(self):
        class Asking(importlib.abc.MetaPathFinder):  # as most import hooks are made
            def find_spec(self, name, path=None, target=None):
                if name != NAME or self in asking:
                    return None
                asking.append(self)
                try:
                    return importlib.util.find_spec(name)
                finally:
                    asking.remove(self)

        asking = []
        sys.meta_path.insert(0, Asking())
        sys.meta_path.append(Asking())
        sys.meta_path.insert(2, Asking())
        module = self.load()
        self.assertEqual(self.events, ["before", "loaded", module])

    def test_a_module_that_fails_may_be_imported_again(self):
        self.write("raise ImportError('not yet')")
        with self.assertRaisesRegex(ImportError, "not yet"):
            self.load()
        self.assertEqual(self.events, ["before", None])
        self.write("events.append('loaded')")
        module = self.load()
        self.assertEqual(self.events[2:], ["before", "loaded", module])

    def test_an_adapter_that_cannot_be_loaded_leaves_the_import_alone(self):
        # As in a Python that does not know its syntax.
        program = ("import sys, types\nsys.modules['seqpoint_adapter.library'] = None\n"
                   "import seqpoint_adapter\n"
                   "seqpoint_adapter._install(types.ModuleType('torch'))\nprint('trains')")
        environment = dict(os.environ, SEQPOINT_LOG="stderr", PYTHONPATH=os.path.dirname(
            os.path.dirname(os.path.abspath(seqpoint_adapter.__file__))))
        done = subprocess.run([sys.executable, "-c", program], env=environment, text=True,
                              capture_output=True)
        self.assertEqual(done.stdout, "trains\n")
        self.assertIn("did not start", done.stderr)


class CtypesTest(unittest.TestCase):
    def run_program(self, text):
        """With the adapter waiting for ctypes, and the library of mathematics as ours."""
        environment = dict(os.environ, SEQPOINT_LIBRARY="libm.so.6",
                           PYTHONPATH=os.path.dirname(os.path.dirname(seqpoint_adapter.__file__)))
        program = f"import seqpoint_adapter; seqpoint_adapter.wait()\n{text}"
        done = subprocess.run([sys.executable, "-c", program], env=environment, text=True,
                              capture_output=True, timeout=60)
        self.assertEqual(done.stderr, "")
        return done.stdout.split()

    def test_all_that_is_loaded_has_the_library(self):
        self.assertEqual(self.run_program("""
import ctypes
print(hasattr(ctypes.CDLL(None), "tgamma"))
print(ctypes.CDLL.__init__.__code__.co_filename.endswith("ctypes/__init__.py"))
"""), ["True", "True"])

    def test_what_the_program_puts_over_it_stays(self):
        self.assertEqual(self.run_program("""
import ctypes
original, calls = ctypes.CDLL.__init__, []
def counted(self, name, *args, **kwargs):
    calls.append(name)
    original(self, name, *args, **kwargs)
ctypes.CDLL.__init__ = counted
print(hasattr(ctypes.CDLL(None), "tgamma"))
ctypes.CDLL("libc.so.6")
ctypes.CDLL(None)
print(len(calls), ctypes.CDLL.__init__ is counted)
"""), ["True", "3", "True"])

    def test_a_class_that_the_program_puts_in_its_place_stays(self):
        self.assertEqual(self.run_program("""
import ctypes
class Own(ctypes.CDLL):
    def __init__(self, name):
        super().__init__(name)
        self.own = True
ctypes.CDLL = Own
print(hasattr(ctypes.CDLL(None), "tgamma"), ctypes.CDLL("libc.so.6").own)
"""), ["True", "True"])


class StartTest(unittest.TestCase):
    """How the adapter gets into a Python, by whichever way."""

    FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.told = self.write("told", "")
        self.write("torch.py", "")
        self.environment = {name: value for name, value in os.environ.items()
                            if not name.startswith(("PYTHON", "SEQPOINT"))}
        self.environment.update(
            SEQPOINT_LIBRARY="/nowhere.so", SEQPOINT_ADAPTER=self.FOLDER,
            SEQPOINT_ADAPTER_TOLD=self.told, PYTHONDONTWRITEBYTECODE="1")

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)
        return path

    def run_python(self, program, *options, python=sys.executable, **environment):
        done = subprocess.run([python, *options, "-c", program], capture_output=True, text=True,
                              env={**self.environment, **environment}, check=True)
        self.assertEqual(done.stderr, "")
        return done.stdout

    def path(self, *folders):
        return os.pathsep.join([self.FOLDER, *folders])

    STATE = ("import sys; print('seqpoint_start' in sys.modules, 'seqpoint_adapter' in sys.modules, "
             f"{FOLDER!r} in sys.path)")

    def test_nothing_is_loaded_before_torch_or_ctypes(self):
        loaded = self.run_python(self.STATE + "; print('importlib.util' in sys.modules)",
                                 PYTHONPATH=self.path())
        self.assertEqual(loaded, "True False False\nFalse\n")
        for name in ("torch", "ctypes"):
            self.assertEqual(
                self.run_python(f"import {name}; {self.STATE}", PYTHONPATH=self.path(self.folder)),
                "True True False\n")

    def test_the_programs_own_sitecustomize_runs_whatever_it_imports(self):
        self.write("own/sitecustomize.py", "import ctypes, torch\nprint(__name__, __file__)\n")
        out = self.run_python(self.STATE, PYTHONPATH=self.path(f"{self.folder}/own", self.folder))
        self.assertEqual(out, f"sitecustomize {self.folder}/own/sitecustomize.py\nTrue True False\n")

    def test_it_says_that_it_is_there(self):
        self.run_python("", PYTHONPATH=self.path())
        with open(self.told) as file:
            self.assertEqual(file.read(), "p")
        self.run_python("", PYTHONPATH=self.path(), SEQPOINT_ADAPTER_TOLD="/nowhere/told")

    def test_threads_that_import_at_once_find_it_once(self):
        program = ("import sys, threading\n"
                   "threads = [threading.Thread(target=__import__, args=(name,)) "
                   "for name in ('torch', 'ctypes') * 4]\n"
                   "[t.start() for t in threads]; [t.join() for t in threads]\n" + self.STATE +
                   "; print(len([f for f in sys.meta_path if 'seqpoint' in type(f).__module__]))")
        self.assertEqual(self.run_python(program, PYTHONPATH=self.path(self.folder)),
                         "True True False\n0\n")

    def test_a_pth_file_lets_it_into_a_python_that_hears_no_environment(self):
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", f"{self.folder}/venv"],
                       check=True, env=self.environment)
        python = f"{self.folder}/venv/bin/python3"
        site = self.run_python("import sysconfig; print(sysconfig.get_path('purelib'))",
                               python=python).strip()
        for option in ("-I", "-E"):
            self.assertEqual(self.run_python(self.STATE, option, python=python,
                                             PYTHONPATH=self.path()), "False False False\n")
        shutil.copy(f"{self.FOLDER}/seqpoint.pth", site)
        # A sitecustomize that goes first and does not hand on (as OpenTelemetry's).
        self.write("other/sitecustomize.py", "")
        other = os.pathsep.join([f"{self.folder}/other", self.path()])
        for options, path in ((["-I"], ""), (["-E"], ""), ([], other), ([], self.path())):
            self.assertEqual(self.run_python(self.STATE, *options, python=python, PYTHONPATH=path)
                             .split()[:2], ["True", "False"], options)
        # Elsewhere it does nothing.
        for name in ("SEQPOINT_LIBRARY", "SEQPOINT_ADAPTER"):
            self.assertEqual(self.run_python(self.STATE, python=python, **{name: ""}),
                             "False False False\n")
        self.assertEqual(self.run_python(self.STATE, python=python, SEQPOINT_ADAPTER="/nowhere"),
                         "False False False\n")


if __name__ == "__main__":
    unittest.main()
