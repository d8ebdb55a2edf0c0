"""The injected library's C API (seqpoint.h) through ctypes.

Calls release the interpreter's lock: at the border of a measured iteration the library may wait for
the GPU.
"""

import _thread
import ctypes
import os

from . import log

MAX_FEATURES = 32


class _Values(_thread._local):
    """The numbers of a call, of each thread its own: while the library works, others go on."""

    def __init__(self):
        self.array = (ctypes.c_int64 * MAX_FEATURES)()
        self.at = ctypes.addressof(self.array)


class Library:
    """Tells the injected library what the adapter sees.

    Threading: any number of threads at once. Names given to `forward` are kept alive here, as the
    library asks.
    """

    def __init__(self, handle):
        def function(name, result, *arguments):
            found = getattr(handle, name)
            found.restype, found.argtypes = result, arguments
            return found

        self.active = function("seqpoint_active", ctypes.c_int)
        self.attach = function("seqpoint_attach", ctypes.c_int, ctypes.c_int)
        self.step = function("seqpoint_step", None, ctypes.c_uint64)
        self._forward = function("seqpoint_forward", None, ctypes.c_int, ctypes.c_uint32,
                                 ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64)
        self._features = function("seqpoint_features", None, ctypes.c_uint32, ctypes.c_void_p,
                                  ctypes.c_void_p, ctypes.c_uint64)
        self._describe = function("seqpoint_describe", None, ctypes.c_int, ctypes.c_char_p)
        self.rank = function("seqpoint_rank", None, ctypes.c_int, ctypes.c_int)
        self._batches = function("seqpoint_batches", None, ctypes.c_int, ctypes.c_char_p)
        self._stand_down = function("seqpoint_stand_down", ctypes.c_int, ctypes.c_char_p)
        self.come_back = function("seqpoint_come_back", ctypes.c_int)
        self._wants_operators = function("seqpoint_wants_operators", ctypes.c_int, ctypes.c_void_p)
        self.distort = function("seqpoint_distort", None)
        self._operators = function("seqpoint_operators", None, ctypes.c_int, ctypes.c_char_p)
        self._group = function("seqpoint_group", ctypes.c_uint64, ctypes.c_char_p, ctypes.c_uint64,
                               ctypes.c_int, ctypes.c_int)
        self.group_end = function("seqpoint_group_end", None, ctypes.c_uint64)
        self.collective_begin = function("seqpoint_collective_begin", ctypes.c_uint64,
                                         ctypes.c_uint64, ctypes.c_void_p, ctypes.c_void_p,
                                         ctypes.c_uint64, ctypes.c_int, ctypes.c_uint64)
        self.collective_end = function("seqpoint_collective_end", None, ctypes.c_uint64)
        self._collectives = function("seqpoint_collectives", None, ctypes.c_int, ctypes.c_char_p)
        self._values = _Values()
        self._names = {}  # tuple of names -> address of their array
        self._kept = []

    def names(self, names):
        """An address for `forward`, of at most MAX_FEATURES names."""
        address = self._names.get(names)
        if address is None:
            texts = (ctypes.c_char_p * max(1, len(names)))(*(name.encode() for name in names))
            self._kept.append(texts)
            address = self._names[names] = ctypes.addressof(texts)
        return address

    def forward(self, training, names_at, values, at_ns=0):
        """`training`: of a batch with gradients, or not; None: more of the same batch."""
        count, own = len(values), self._values
        try:
            own.array[:count] = values
        except TypeError:  # sizes of a call that is traced are no numbers
            count = 0
        if training is None:
            self._features(count, names_at, own.at, at_ns)
        else:
            self._forward(training, count, names_at, own.at, at_ns)

    def text(self, text):
        """An address for `collective_begin`."""
        kept = ctypes.c_char_p(text.encode())
        self._kept.append(kept)
        return ctypes.cast(kept, ctypes.c_void_p).value

    def group(self, name, number, rank, ranks):
        return self._group(name.encode(errors="replace"), number, rank, ranks)

    def collectives(self, works, message):
        self._collectives(works, message.encode(errors="replace"))
        log(message)

    def stand_down(self, holder):
        self._stand_down(holder.encode())

    def wants_operators(self):
        """The lengths of the iteration that has begun, if its operators are to be recorded."""
        lengths = (ctypes.c_int64 * 2)()
        count = self._wants_operators(ctypes.addressof(lengths))
        return None if count < 0 else tuple(lengths[:count])

    def operators(self, works, message):
        self._operators(works, message.encode(errors="replace"))
        log(message)

    def batches(self, per_iteration, message):
        self._batches(per_iteration, message.encode(errors="replace"))
        log(message)

    def describe(self, works, message):
        self._describe(works, message.encode(errors="replace"))
        log(message)


def find():
    """The library, in this process or where `seqpoint run` says that it is; None when it is not
    there, or older than this adapter."""
    for path in (None, *_named()):
        try:
            # Global: the program may call it by ctypes.CDLL(None), too.
            return Library(ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL))
        except (OSError, AttributeError):
            continue
    return None


def _named():
    """The file that the driver loads as well: then it is one library."""
    if os.environ.get("SEQPOINT_LIBRARY"):
        yield os.environ["SEQPOINT_LIBRARY"]
    for variable in ("LD_PRELOAD", "CUDA_INJECTION64_PATH"):
        for path in os.environ.get(variable, "").replace(" ", ":").split(":"):
            if "libseqpoint_inject" in path:
                yield path
