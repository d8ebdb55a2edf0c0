"""Lets SeqPoint see the training loop of an unmodified PyTorch program.

`seqpoint run` puts this folder first on PYTHONPATH, so Python runs this file when it starts, in
place of the user's own sitecustomize, which it runs last. Nothing else happens before the program
imports torch, or calls ctypes.CDLL(None). Without the injected library, nothing happens at all.
"""

import os
import sys

_FOLDER = os.path.dirname(os.path.abspath(__file__))

try:
    import seqpoint_start
finally:
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != _FOLDER]
# The sitecustomize that Python would have found without us; what it raises, Python reports.
seqpoint_start.load("sitecustomize", sys.path)
