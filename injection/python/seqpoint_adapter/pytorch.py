"""Watches the training loop of PyTorch: optimiser steps, and the inputs of the root module.

How it hooks in, so that nothing of the program's changes:

* The optimiser step by PyTorch's global hook (2.0 and later), else by wrapping `step` of each
  optimiser's class, as PyTorch's own profiler hook does.
* The root module by `__call__` of its class. No hook is stored in a module, where it would be
  pickled and copied with it, and keyword inputs are seen in every version.
* GradScaler.step, for steps that it leaves out; torch.profiler, which needs CUPTI to itself.

Finding the root: until the first optimiser step every outermost call of a module is looked at
(`torch.nn.Module.__call__` is replaced for that long). The first one with gradients and parameters
is the root. A program that compiles must not be traced through that, so from torch.compile on the
outermost owners of the optimiser's parameters are watched instead, from its first step on. Modules
called beside the root in an iteration (a decoder apart from its encoder) tell their shapes, too.

Threading: the hooks run on whatever thread trains, under the interpreter's lock. Ownership: modules
and optimisers are referred to weakly.
"""

import functools
import gc
import importlib
import time
import weakref

from .cycle import Cycle
from .features import Reader

MAX_COMPANIONS = 3
MAX_OWNERS = 64
MAX_EARLY = 1024  # forwards before the first optimiser step
SEARCHES = 3  # levels of the module tree that are tried where the outermost is never called
LOST_AFTER = 3  # steps without a call of the root: something else is trained now


class Target:
    """A module whose calls are told."""

    __slots__ = ("module", "label", "reader", "names_at", "count", "steps")

    def __init__(self, module, label):
        self.module = weakref.ref(module)
        self.label = label  # put before the names of its numbers; "" of the root
        self.reader = None
        self.names_at = 0
        self.count = -1  # numbers that names_at has the names of
        self.steps = -1  # value of Adapter._steps when it was told last


class Adapter:
    def __init__(self, torch, library):
        self._torch = torch
        self._library = library
        self._grad = torch.is_grad_enabled
        self._broken = False
        self._attached = False  # the library profiles this process
        self._early = []  # what was to be told before
        # The loop.
        self._cycle = Cycle()
        self._steps = 0
        self._forwards = 0  # of training, since the last step
        self._evaluating = False  # an evaluation was told since the last step
        self._train_mode = False  # the root trains in training mode
        self._scaler_stepped = False
        # The modules.
        self._targets = {}  # id of a module -> Target
        self._root = None
        self._patched = {}  # class -> (its own __call__ or None, ours)
        self._searching = False
        self._searches = 0
        self._without_root = 0  # steps
        self._compiles = False
        self._depth = 0
        self._called = []  # targets called in this iteration while searching

    def install(self):
        torch = self._torch
        self._wrap(torch.optim.Optimizer, "__init__", after=lambda result, optimizer, *_, **__:
                   self._safely(self._cycle.add, optimizer))
        # As an attribute of torch.optim it is missing in some versions.
        optimizer = importlib.import_module("torch.optim.optimizer")
        hook = getattr(optimizer, "register_optimizer_step_post_hook", None)
        if hook is not None:
            hook(_untraced(lambda optimizer, args, kwargs: self._on_step(optimizer)))
        else:
            self._wrap(torch.optim.Optimizer, "_hook_for_profile", after=self._hook_class)
        for scaler in _scalers(torch):
            self._wrap_scaler(scaler)
        if hasattr(torch, "compile"):
            self._wrap(torch, "compile", before=lambda: self._safely(self._on_compile))
        if self._library.stand_down is not None:
            self._wrap_profiler()
        self._search()

    # Hooks.

    def _wrap(self, owner, name, before=None, after=None):
        original = getattr(owner, name)

        @functools.wraps(original)
        def wrapped(*args, **kwargs):
            if before is not None:
                before()
            result = original(*args, **kwargs)
            if after is not None:
                after(result, *args, **kwargs)
            return result

        setattr(owner, name, wrapped)

    def _hook_class(self, _, optimizer):
        """PyTorch before 2.0 calls this when an optimiser is made."""
        owner, step = type(optimizer), type(optimizer).step
        if getattr(step, "seqpoint", False):
            return
        self._wrap(owner, "step", after=lambda result, optimizer, *_, **__:
                   self._on_step(optimizer))
        owner.step.seqpoint = owner.step.hooked = True

    def _wrap_scaler(self, scaler):
        """An iteration whose step GradScaler leaves out (overflow) is an iteration all the same."""
        adapter, original = self, scaler.step

        @functools.wraps(original)
        def step(self, optimizer, *args, **kwargs):
            adapter._scaler_stepped = False
            result = original(self, optimizer, *args, **kwargs)
            if not adapter._scaler_stepped:
                adapter._on_step(optimizer)
            return result

        scaler.step = step

    def _on_compile(self):
        self._compiles = True
        self._restore(self._torch.nn.Module)

    def _wrap_profiler(self):
        """CUPTI serves one profiler at a time: the program's own goes first."""
        adapter, profile = self, self._torch.autograd.profiler.profile
        prepare, leave = profile._prepare_trace, profile.__exit__
        running = weakref.WeakSet()

        @functools.wraps(prepare)
        def _prepare_trace(self, *args, **kwargs):
            if self not in running:
                running.add(self)
                adapter._library.stand_down("torch.profiler")
            return prepare(self, *args, **kwargs)

        @functools.wraps(leave)
        def __exit__(self, *args, **kwargs):
            try:
                return leave(self, *args, **kwargs)
            finally:
                if self in running:
                    running.discard(self)
                    adapter._library.come_back()

        profile._prepare_trace, profile.__exit__ = _prepare_trace, __exit__

    def _safely(self, function, *arguments):
        """Nothing of ours ever raises into the program."""
        if self._broken:
            return
        try:
            function(*arguments)
        except Exception as error:
            self._fail(error)

    def _fail(self, error):
        self._broken = True
        self._targets.clear()
        self._searching = False
        for owner in list(self._patched):
            self._restore(owner)
        self._library.describe(False, f"the PyTorch adapter failed ({error!r}); iterations are "
                               "found without it")

    # Calls of modules.

    def _replace(self, owner, call):
        self._patched[owner] = (owner.__dict__.get("__call__"), call)
        owner.__call__ = call

    def _restore(self, owner):
        own, ours = self._patched.pop(owner, (None, None))
        if ours is None or owner.__dict__.get("__call__") is not ours:
            return  # somebody put another one over ours, which then only passes calls on
        if own is None:
            del owner.__call__
        else:
            owner.__call__ = own

    def _search(self):
        """Looks for the root among what is called until the next step."""
        self._searching = True
        self._root = None
        self._targets.clear()
        self._called = []
        self._depth = 0
        for owner in list(self._patched):
            self._restore(owner)
        if self._compiles:
            return
        adapter, module = self, self._torch.nn.Module
        original = module.__call__

        @functools.wraps(original)
        def call(self, *args, **kwargs):
            if not adapter._searching:
                return original(self, *args, **kwargs)
            if adapter._depth == 0:
                adapter._safely(adapter._on_outermost, self, args, kwargs)
            adapter._depth += 1
            try:
                return original(self, *args, **kwargs)
            finally:
                adapter._depth -= 1

        self._replace(module, call)

    def _on_outermost(self, module, args, kwargs):
        target = self._targets.get(id(module))
        if target is None or target.module() is not module:
            self._called = [t for t in self._called if t.module() is not None]
            if not self._grad() or len(self._called) > MAX_COMPANIONS:
                return
            if self._torch.jit.is_tracing():
                return
            if not any(p.requires_grad for p in module.parameters()):
                return  # a loss, a frozen teacher
            target = self._add_target(module)
        self._on_call(target, module, args, kwargs)

    def _add_target(self, module):
        target = self._targets[id(module)] = Target(module, f"{type(module).__name__}.")
        return target

    def _watch(self, owner):
        """Watches the calls of a class' instances that are targets."""
        if owner in self._patched:
            return
        adapter, targets, original = self, self._targets, owner.__call__
        compiling = _compiling(self._torch)

        @functools.wraps(original)
        def call(self, *args, **kwargs):
            if not compiling():
                target = targets.get(id(self))
                if target is not None:
                    try:
                        adapter._on_call(target, self, args, kwargs)
                    except Exception as error:
                        adapter._fail(error)
            return original(self, *args, **kwargs)

        self._replace(owner, call)

    def _on_call(self, target, module, args, kwargs):
        if target.module() is not module:
            del self._targets[id(module)]
            return
        if self._searching:
            if (self._root is None or self._root.module() is None) and self._grad():
                self._root = target
                target.label = ""
            if target not in self._called:
                self._called.append(target)
        if target is self._root:
            training = self._grad() and (module.training or not self._train_mode)
            if training:
                if self._forwards == 0:
                    self._train_mode = module.training
                self._forwards += 1
            elif self._forwards > 0 or self._evaluating:
                return  # within an iteration; a phase that was told
            else:
                self._evaluating = True
            self._tell(target, args, kwargs, int(training))
        elif self._forwards > 0 and target.steps != self._steps and self._grad():
            self._tell(target, args, kwargs, None)
        target.steps = self._steps

    def _tell(self, target, args, kwargs, training):
        """`training`: 1, or 0 of an evaluation batch; None: of a module beside the root."""
        try:
            numbers = target.reader.read(args, kwargs)
        except Exception:  # the first call, or one that is built otherwise
            target.reader = Reader(self._torch, target.module(), args, kwargs)
            target.count = -1
            numbers = target.reader.read(args, kwargs)
        if target.count != len(numbers):
            target.count = len(numbers)
            target.names_at = self._library.names(
                tuple(target.label + name for name in target.reader.names))
        if self._attached or self._library.active():
            self._attached = True
            self._library.forward(training, target.names_at, numbers)
        elif len(self._early) < MAX_EARLY:
            self._early.append((training, target.names_at, numbers, time.time_ns()))

    # Optimiser steps.

    def _on_step(self, optimizer):
        self._scaler_stepped = True
        if self._broken:
            return
        try:
            self._step(optimizer)
        except Exception as error:
            self._fail(error)

    def _step(self, optimizer):
        if not self._cycle.ends(optimizer):
            return
        if self._attached or self._library.active():
            self._library.step(0)
        elif self._root is not None:
            self._attach()
        forwards, self._forwards = self._forwards, 0
        self._evaluating = False
        self._steps += 1
        self._without_root = 0 if forwards > 0 else self._without_root + 1
        if self._searching:
            self._end_search(optimizer)
        elif self._without_root == LOST_AFTER:
            self._searches = 0
            self._search()

    def _attach(self):
        """The first step of a program without CUDA: the library begins here."""
        root = self._root.module()
        on_host = root is not None and all(p.device.type == "cpu" for p in root.parameters())
        if not self._library.attach(0 if on_host else 1):
            return
        self._attached = True
        for told in self._early:
            self._library.forward(*told)
        self._early = []
        self._library.step(0)

    def _end_search(self, optimizer):
        if self._root is not None:
            self._searching = False
            self._targets = {key: t for key, t in self._targets.items() if t in self._called}
            for owner in list(self._patched):
                self._restore(owner)
            modules = [module for t in self._called if (module := t.module()) is not None]
            for module in modules:
                self._watch(type(module))
            names = [name for t in self._called if t.reader for name in t.reader.names]
            self._library.describe(True, (
                f"PyTorch {self._torch.__version__}: iterations end with the step of "
                f"{type(optimizer).__name__}; batches are those of "
                f"{' and '.join(type(module).__name__ for module in modules)}; told are "
                f"{', '.join(names) if names else 'no lengths'}"))
            return
        self._restore(self._torch.nn.Module)
        self._searches += 1
        owners = _owners(self._torch, optimizer, self._searches)
        if not owners or self._searches > SEARCHES:
            self._searching = False
            self._library.describe(False, (
                f"PyTorch {self._torch.__version__}: no module with the parameters of "
                f"{type(optimizer).__name__} is called (a step that is compiled as a whole?); "
                "iterations are found without the adapter"))
            return
        for module in owners:
            self._add_target(module)
            self._watch(type(module))


def _scalers(torch):
    """The classes whose `step` may leave out an optimiser's."""
    for parent in (getattr(torch, "amp", None), getattr(torch.cuda, "amp", None)):
        scaler = getattr(getattr(parent, "grad_scaler", None), "GradScaler", None)
        if scaler is not None:
            return [scaler]  # that of torch.cuda.amp inherits the other's
    return []


def _compiling(torch):
    return getattr(getattr(torch, "compiler", None), "is_compiling", lambda: False)


def _untraced(function):
    """torch.compile leaves such functions out, without our importing its machinery."""
    function._torchdynamo_disable = True
    return function


def _owners(torch, optimizer, level):
    """Modules that hold parameters of the optimiser; level 1: the outermost, 2: what they hold."""
    trained = {id(p) for group in optimizer.param_groups for p in group["params"]}
    modules = [o for o in gc.get_objects() if issubclass(type(o), torch.nn.Module)]
    owning = {id(m): m for m in modules if any(id(p) in trained for p in m.parameters())}
    for _ in range(level):
        held = {id(child) for m in owning.values() for child in m.modules() if child is not m}
        outermost = [m for key, m in owning.items() if key not in held]
        owning = {key: m for key, m in owning.items() if key in held}
    return outermost[:MAX_OWNERS]
