"""Tells the library when the host enters and leaves a collective (gloo, MPI).

* Calls by Python: the methods of ProcessGroup, which all of torch.distributed ends in. The host
  leaves when Work.wait returns.
* Calls by C++ (DDP's reducer) come only to PyTorch's dispatcher: its operators `c10d::...` have
  functions of ours in front, for tensors of the CPU, which call the operators themselves. The host
  leaves such collectives when the function of Python returns that called C++ (the backward pass),
  which waits for all of them.

Hooks are put in when the program has initialised torch.distributed. NCCL's collectives are left to
NCCL's own profiler interface.

Threading: any thread, with the interpreter's lock. Ownership: groups are referred to weakly, works
by number; functions stay for ever.
"""

import functools
import hashlib
import importlib
import itertools
import weakref

from . import hide_frame
from .hooks import around, let_script

# Methods of a group: the name of what they do, and the argument with this rank's own part.
METHODS = {
    "allreduce": ("AllReduce", 0), "allreduce_coalesced": ("AllReduce", 0),
    "broadcast": ("Broadcast", 0), "reduce": ("Reduce", 0),
    "allgather": ("AllGather", 1), "allgather_coalesced": ("AllGather", 1),
    "_allgather_base": ("AllGather", 1), "allgather_into_tensor_coalesced": ("AllGather", 1),
    "reduce_scatter": ("ReduceScatter", 0), "_reduce_scatter_base": ("ReduceScatter", 0),
    "reduce_scatter_tensor_coalesced": ("ReduceScatter", 0),
    "alltoall": ("AllToAll", 0), "alltoall_base": ("AllToAll", 1),
    "gather": ("Gather", 1), "scatter": ("Scatter", 0),
    "barrier": ("Barrier", None), "monitored_barrier": ("Barrier", None),
    "send": ("Send", 0), "recv": ("Recv", 0),
}
# The dispatcher's operators begin with the same arguments; those of barriers have no tensors.
TRANSFERS = ("Send", "Recv")
OPERATORS = {name + "_": what for name, what in METHODS.items()
             if what[1] is not None and what[0] not in TRANSFERS}
ON_HOST = ("gloo", "mpi")
MOST_HELD = 1024  # collectives of C++ that nobody waited for


class Collectives:
    def __init__(self, torch, library):
        self._torch = torch
        self._library = library
        self._begin = self._end = None
        self._below = self._plainly = None  # classes of guards
        self._groups = weakref.WeakKeyDictionary()
        self._initialised = 0  # times
        self._texts = {}  # function or type -> address of its name
        self._works = {}  # id of a Work that nobody waited for -> what ends it
        self._open = []  # what ends those of C++
        self._held, self._held_before = [], []  # tensors of those of C++, see _hold
        self._replica = None  # group of the DDP that computes, weakly
        self._kernels = None  # registrations of our functions, which end with it
        self._off = False
        self._message = None  # that is told when the library profiles the process
        distributed = getattr(torch, "distributed", None)
        if distributed is not None and distributed.is_available():
            around(self, distributed, "init_process_group", after="_on_initialised")
            around(self, distributed, "destroy_process_group", "_on_destroy")

    def close(self):
        """Nothing is told any more; the functions only pass calls on."""
        self._off = True

    def on_step(self):
        """An optimiser stepped: what it used is there."""
        if self._message is not None and self._library.active():
            self._library.collectives(not self._off, self._message)
            self._message = None
        if self._works:
            works, self._works = self._works, {}
            for token in works.values():
                self._end(token)
        self._leave()

    def _fail(self, error):
        if not self._off:
            self._off = True
            self._message = f"collectives that the host does are not seen any more: {error!r}"

    # Hooks.

    def _on_initialised(self, *_, **__):
        self._initialised += 1
        if self._kernels is None and not self._off:
            try:
                self._install()
            except Exception as error:
                self._fail(error)

    def _install(self):
        torch = self._torch
        # Calls do not come to our functions of the dispatcher; classes of the program see no read.
        self._below = torch._C._AutoDispatchBelowAutograd
        self._plainly = torch._C.DisableTorchFunction
        self._begin, self._end = self._library.collective_begin, self._library.collective_end
        c10d = torch.distributed.distributed_c10d
        for name, (function, part) in METHODS.items():
            if hasattr(c10d.ProcessGroup, name):
                self._wrap_method(c10d.ProcessGroup, name, function, part)
        self._wrap_wait(torch._C._distributed_c10d.Work)
        around(self, torch.nn.parallel.DistributedDataParallel, "forward", before="_on_replica")
        for owner, name in ((torch.distributed, "_broadcast_coalesced"),
                            (torch.distributed.Reducer, "_rebuild_buckets")):
            if hasattr(owner, name):
                around(self, owner, name, None, "_leave", "_leave")
        let_script(torch, around(self, torch.autograd, "backward", None, "_leave", "_leave"))
        self._kernels = importlib.import_module("torch.library").Library("c10d", "IMPL")
        for name, (function, part) in OPERATORS.items():
            if hasattr(torch.ops.c10d, name):
                self._kernels.impl(name, self._kernel(name, function, part), "AutogradCPU")
        self._message = "collectives that the host does (gloo) are seen"

    def _on_destroy(self, group=None, *_, **__):
        for pg, known in list(self._groups.items()):
            if known is not None and (group is None or pg is group):
                self._library.group_end(known.handle)
                del self._groups[pg]

    def _on_replica(self, module, *_, **__):
        if self._open:
            self._leave()
        self._replica = weakref.ref(module.process_group)

    def _hold(self, args):
        """A function of Python's gives C++'s tensors objects of Python. A thread of gloo that let go
        of such a tensor last would need the interpreter's lock, which the destructor of DDP holds
        while it waits for that thread. It is never the last while we hold the tensor, too: until
        the collectives after these are over."""
        if len(self._held) == MOST_HELD:
            self._held_before, self._held = self._held, []
        self._held.append([arg for arg in args
                           if isinstance(arg, (list, tuple, self._torch.Tensor))])

    def _leave(self, *_, **__):
        """C++ has waited for all that it began."""
        if self._held:
            self._held_before, self._held = self._held, []
        if self._open:
            tokens, self._open = self._open, []
            for token in tokens:
                self._end(token)

    def _wrap_method(self, owner, name, function, part):
        original = getattr(owner, name)

        @functools.wraps(original)
        def wrapped(group, *args, **kwargs):
            token = 0 if self._off else self._enter(group, function, part,
                                                    (*args, *kwargs.values()))
            below = self._below() if token else None
            try:
                work = original(group, *args, **kwargs)
            except BaseException as error:
                if token:
                    self._end(token)
                hide_frame(error)
                raise
            finally:
                del below
            if token:
                if work is not None:  # one that is gone may have had the number
                    token, self._works[id(work)] = self._works.get(id(work), 0), token
                if token:
                    self._end(token)
            return work

        setattr(owner, name, wrapped)

    def _wrap_wait(self, owner):
        original = owner.wait

        @functools.wraps(original)
        def wait(work, *args, **kwargs):
            try:
                return original(work, *args, **kwargs)
            except BaseException as error:
                hide_frame(error)
                raise
            finally:
                token = self._works.pop(id(work), 0)
                if token:
                    self._end(token)

        owner.wait = wait

    def _kernel(self, name, function, part):
        operator = getattr(self._torch.ops.c10d, name).default

        def kernel(*args):
            self._hold(args)
            token = 0 if self._off else self._enter(None, function, part, args)
            if token:
                self._open.append(token)
            below = self._below()
            try:
                return operator(*args)
            finally:
                del below

        return kernel

    # Records.

    def _enter(self, group, function, part, args):
        """What ends it; 0: it is not told. `group`: None of a call by C++."""
        try:
            if group is None and self._replica is not None:
                group = self._replica()
            if group is None:
                group = self._torch.distributed.distributed_c10d._get_default_group()
            known = self._groups.get(group, False)
            if known is False:
                known = self._groups[group] = self._new_group(group)
            if known is None:
                return 0
            peer = args[1] if function in TRANSFERS else -1
            sequence = next(known.count) if peer < 0 else 0
            with self._plainly():
                own = _tensors(args, part)
                elements = sum(tensor.numel() for tensor in own)
            if any(tensor.device.type != "cpu" for tensor in own) or (
                    not own and known.backend not in ON_HOST):
                return 0
            return self._begin(known.handle, self._text(function),
                               self._text(own[0].dtype if own else None), elements, peer, sequence)
        except (IndexError, TypeError, AttributeError):  # PyTorch will refuse it, too
            return 0
        except Exception as error:
            self._fail(error)
            return 0

    def _text(self, key):
        address = self._texts.get(key)
        if address is None:
            name = "" if key is None else str(key).replace("torch.", "")
            address = self._texts[key] = self._library.text(name)
        return address

    def _new_group(self, group):
        """None: its collectives are not the host's."""
        c10d = self._torch.distributed.distributed_c10d
        world = getattr(c10d, "_world", None)
        names = world.pg_names if world is not None else c10d._pg_names
        ranks = world.pg_group_ranks if world is not None else c10d._pg_group_ranks
        name, members = names.get(group), ranks.get(group)
        if name is None or members is None:  # made by hand; other ranks' name for it is not known
            name, number = "", 0
        else:
            text = f"{self._initialised}:{name}:{sorted(members)}"
            number = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
        backend = self._torch.distributed.get_backend(group) if members is not None else ""
        if backend == "nccl":
            return None
        return _Group(self._library.group(name or "world", number, group.rank(), group.size()), backend)

    def __reduce__(self):  # see Adapter's
        return bool, ()


def _tensors(args, part):
    """This rank's own; the first of several lists."""
    if part is None:
        return ()
    own = args[part]
    while isinstance(own, (list, tuple)) and isinstance(own[0], (list, tuple)):
        own = own[0]
    return own if isinstance(own, (list, tuple)) else (own,)


class _Group:
    def __init__(self, handle, backend):
        self.handle = handle
        self.backend = backend
        self.count = itertools.count()
