"""Lets SeqPoint see the training loop of an unmodified PyTorch program.

`seqpoint run` puts this folder first on PYTHONPATH, so Python runs this file when it starts, in
place of the user's own sitecustomize, which it runs last. Nothing else happens before the program
imports torch, or calls ctypes.CDLL(None). Without the injected library, nothing happens at all.
"""

import os
import sys

_FOLDER = os.path.dirname(os.path.abspath(__file__))


def _is_ours(entry):
    return os.path.abspath(entry or ".") == _FOLDER


def _start():
    if os.environ.get("SEQPOINT_ADAPTER") == "0" or os.environ.get("SEQPOINT_DISABLE") == "1":
        return
    import seqpoint_adapter

    seqpoint_adapter.wait_for_torch()
    seqpoint_adapter.wait_for_ctypes()


def _hand_over():
    """Runs the sitecustomize that Python would have found without us, as Python does."""
    import importlib.util
    from importlib.machinery import PathFinder

    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)  # what it raises, Python reports


try:
    _start()
except Exception as error:  # never the program's trouble
    if os.environ.get("SEQPOINT_LOG") == "stderr":
        print(f"seqpoint: the PyTorch adapter did not start: {error!r}", file=sys.stderr)
sys.path[:] = [entry for entry in sys.path if not _is_ours(entry)]
_hand_over()
