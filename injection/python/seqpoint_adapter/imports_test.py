"""The import of torch, with a package of another name in its place."""

import importlib
import importlib.abc
import importlib.util
import os
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
        program = f"import seqpoint_adapter; seqpoint_adapter.wait_for_ctypes()\n{text}"
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


if __name__ == "__main__":
    unittest.main()
