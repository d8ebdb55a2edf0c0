"""Has the adapter loaded when the program imports torch or ctypes; before that, next to nothing
happens. Imported by sitecustomize.py or seqpoint.pth, whichever Python comes to first.

Threading: imports may happen on any thread.
"""

import _thread
import os
import sys
from _frozen_importlib import module_from_spec  # what importlib.util has it from
from _frozen_importlib_external import PathFinder

_FOLDER = os.path.dirname(os.path.abspath(__file__))


def load(name, path):
    """Imports a module that is found on `path`, as Python does; None: there is none."""
    spec = PathFinder.find_spec(name, path)
    if spec is None or spec.loader is None:
        return None
    module = module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def tell(what):
    """Tells `seqpoint run`, which waits for the program's end, that we are there."""
    try:
        file = os.open(os.environ["SEQPOINT_ADAPTER_TOLD"], os.O_WRONLY | os.O_APPEND)
        os.write(file, what)
        os.close(file)
    except (KeyError, OSError):  # not there, or not for this process
        pass


class _Start:
    """The first of the finders of the import system, until one of `names` is imported."""

    names = ("torch", "ctypes")

    def __init__(self):
        self._lock = _thread.RLock()

    def find_spec(self, name, path=None, target=None):
        if name not in self.names:
            return None
        with self._lock:
            if self not in sys.meta_path:  # another thread was faster, or we are asked in turn
                return None
            sys.meta_path.remove(self)
            try:
                adapter = load("seqpoint_adapter", [_FOLDER])
                adapter.wait()
            except Exception as error:
                _log(error)
                return None
        return adapter.find_without(self, name, path, target)


def _log(error):
    if os.environ.get("SEQPOINT_LOG") == "stderr":
        print(f"seqpoint: the PyTorch adapter did not start: {error!r}", file=sys.stderr)


def _start():
    if os.environ.get("SEQPOINT_ADAPTER") == "0" or os.environ.get("SEQPOINT_DISABLE") == "1":
        return
    tell(b"p")
    start = _Start()
    sys.meta_path.insert(0, start)
    for name in start.names:
        if name in sys.modules:
            start.find_spec(name)
            return


try:
    _start()
except Exception as unexpected:  # never the program's error
    _log(unexpected)
