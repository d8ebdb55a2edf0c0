"""Watches the training loop of PyTorch: optimiser steps, and the inputs of the root module.

How it hooks in, so that nothing of the program's changes:

* The optimiser step by PyTorch's global hook (2.0 and later), else by wrapping `step` of each
  optimiser's class, as PyTorch's own profiler hook does.
* The root module by `__call__` of its class. No hook is stored in a module, where it would be
  pickled and copied with it, and keyword inputs are seen in every version.
* GradScaler.step, for steps that it leaves out; CUDAGraph.replay, for iterations that were captured
  as a whole; torch.profiler, which needs CUPTI to itself.

Finding the root: until the first optimiser step after one was found, every outermost call of a
module is looked at (`torch.nn.Module.__call__` is replaced for that long). The first one with
gradients and parameters is the root. A program that compiles must not be traced through that, so
from torch.compile on the outermost owners of the optimiser's parameters are watched instead, from
its first step on. Modules called beside the root in an iteration (a decoder apart from its encoder)
tell their shapes, too.

torch.compile: its machinery notes down nn.Module.__call__ when it is loaded (by the first optimiser
that is made, from 2.1 on), so PyTorch's own is put back for that long. It never compiles a frame of
ours; what it traces through, the watched classes' `__call__`, is nothing but a call then.

Threading: the hooks run on whatever thread trains, under the interpreter's lock. Ownership: modules
and optimisers are referred to weakly.
"""

import functools
import gc
import importlib
import inspect
import sys
import time
import types
import weakref

from . import around_import
from . import cycle as cycle_module
from . import features as features_module
from . import library as library_module
from .cycle import Cycle
from .features import Reader

MAX_COMPANIONS = 3
MAX_OWNERS = 64
MAX_EARLY = 1024  # forwards before the first optimiser step
SEARCHES = 3  # levels of the module tree that are tried where the outermost is never called
SEARCHED_STEPS = 32  # until a search without torch.compile ends; some programs step before training
LOST_AFTER = 3  # steps without a call of the root: something else is trained now
MAX_PARTS = 1024  # steps with other parameters that belong to one iteration


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


class Targets(dict):
    """By the id of their module."""

    def __reduce__(self):  # see Adapter's
        return dict, ()


class Adapter:
    def __reduce__(self):
        """Tools such as cloudpickle write the program's classes with all that they hold, and so our
        functions in them, which do nothing where such a pickle is read."""
        return bool, ()

    def __init__(self, torch, library):
        self._torch = torch
        self._library = library
        self._grad = torch.is_grad_enabled
        self._hook = self._step_hook()
        self._broken = False
        self._attached = False  # the library profiles this process
        self._early = []  # what was to be told before
        # The loop.
        self._cycle = Cycle()
        self._outer_steps = {}  # optimiser class -> the code of its step that may call a parent's
        self._steps = 0
        self._forwards = 0  # of training, since the last step
        self._evaluating = False  # an evaluation was told since the last step
        self._train_mode = False  # the root trains in training mode
        self._scaler_stepped = False
        self._stepped = None  # what the step that ended the last iteration had: ids of both
        self._parts = 0  # further steps of that iteration
        self._capturing = None  # what is told while a CUDA graph is captured
        # The modules.
        self._targets = Targets()
        self._root = None
        self._patched = {}  # class -> (its own __call__ or None, ours)
        self._searching = False
        self._searches = 0
        self._without_root = 0  # steps
        self._patience = LOST_AFTER  # of those, until another search
        self._compiles = False
        self._depth = 0
        self._called = []  # targets called in this iteration while searching
        self._said = None  # of the last root that was found

    def install(self):
        self._safely(self._install)

    def _install(self):
        torch = self._torch
        self._wrap(torch.optim.Optimizer, "__init__", after=lambda result, optimizer, *_, **__:
                   self._safely(self._on_optimizer, optimizer))
        # As an attribute of torch.optim it is missing in some versions.
        optimizer = importlib.import_module("torch.optim.optimizer")
        register = getattr(optimizer, "register_optimizer_step_post_hook", None)
        if register is not None:
            register(self._hook)
        else:
            self._wrap(torch.optim.Optimizer, "_hook_for_profile", after=self._hook_class)
        for scaler in _scalers(torch):
            self._wrap_scaler(scaler)
        graph = getattr(torch.cuda, "CUDAGraph", None)
        if graph is not None:
            self._wrap_graph(graph)
        profile = torch.autograd.profiler.profile
        if self._library.stand_down is not None and hasattr(profile, "_prepare_trace"):
            self._wrap_profiler(profile)
        self._search()
        if hasattr(torch, "compile"):
            self._wrap(torch, "compile", before=lambda *args, **kwargs:
                       self._safely(self._on_compile, *args, **kwargs))
            _leave_uncompiled(sys.modules.get("torch._dynamo"))
            around_import("torch._dynamo", lambda: self._safely(self._restore, torch.nn.Module),
                          lambda dynamo: self._safely(self._on_dynamo, dynamo))

    # Hooks.

    def _wrap(self, owner, name, before=None, after=None):
        original = getattr(owner, name)

        @functools.wraps(original)
        def wrapped(*args, **kwargs):
            if before is not None:
                before(*args, **kwargs)
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
        adapter = self

        @functools.wraps(step)
        def wrapped(optimizer, *args, **kwargs):
            result = step(optimizer, *args, **kwargs)
            if adapter:
                adapter._on_step(optimizer)
            return result

        wrapped.seqpoint = wrapped.hooked = True
        owner.step = wrapped

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

    def _step_hook(self):
        """For PyTorch's global hook. A compiled step is cut before it, to be seen; where nothing
        may be cut, it goes unseen."""
        compiling = _compiling(self._torch)

        def hook(optimizer, args, kwargs):
            if not compiling():
                self._on_step(optimizer)

        hook._torchdynamo_disable = True
        return hook

    def _on_dynamo(self, dynamo):
        _leave_uncompiled(dynamo)
        self._watch_all()

    def _on_compile(self, model=None, *_, fullgraph=False, **__):
        if fullgraph and not isinstance(model, self._torch.nn.Module):
            self._hook.__dict__.pop("_torchdynamo_disable", None)
        if not self._compiles:
            self._compiles = True
            self._searches = 0
            self._restore(self._torch.nn.Module)

    def _wrap_graph(self, graph_class):
        """Iterations that are captured as a whole run no Python when they are replayed."""
        adapter = self
        begin, end, replay = graph_class.capture_begin, graph_class.capture_end, graph_class.replay
        captured = weakref.WeakKeyDictionary()  # graph with a step -> the forwards, as told

        @functools.wraps(begin)
        def capture_begin(self, *args, **kwargs):
            result = begin(self, *args, **kwargs)
            adapter._capturing = _Capture()
            return result

        @functools.wraps(end)
        def capture_end(self, *args, **kwargs):
            capture, adapter._capturing = adapter._capturing, None
            captured.pop(self, None)
            if capture is not None and capture.stepped:
                captured[self] = capture.forwards
            return end(self, *args, **kwargs)

        @functools.wraps(replay)
        def replay_(self, *args, **kwargs):
            forwards = captured.get(self) if captured else None
            if forwards is None or adapter._broken or not adapter._attached:
                return replay(self, *args, **kwargs)
            for told in forwards:
                adapter._library.forward(*told)
            result = replay(self, *args, **kwargs)
            adapter._library.step(0)
            return result

        graph_class.capture_begin, graph_class.capture_end = capture_begin, capture_end
        graph_class.replay = replay_

    def _wrap_profiler(self, profile):
        """CUPTI serves one profiler at a time: the program's own goes first."""
        adapter = self
        prepare, leave = profile._prepare_trace, profile.__exit__
        running = weakref.WeakSet()

        @functools.wraps(prepare)
        def _prepare_trace(self, *args, **kwargs):
            if self not in running:
                running.add(self)
                adapter._library.stand_down("torch.profiler")
            try:
                return prepare(self, *args, **kwargs)
            except BaseException:
                running.discard(self)
                adapter._library.come_back()
                raise

        @functools.wraps(leave)
        def __exit__(self, *args, **kwargs):
            try:
                return leave(self, *args, **kwargs)
            finally:
                if self in running:
                    running.discard(self)
                    adapter._library.come_back()

        profile._prepare_trace, profile.__exit__ = _prepare_trace, __exit__

    def _safely(self, function, /, *arguments, **named):
        """Nothing of ours ever raises into the program."""
        if self._broken:
            return
        try:
            function(*arguments, **named)
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
        self._searches = 0
        self._without_root = 0
        self._root = None
        self._targets.clear()
        self._called = []
        self._depth = 0
        for owner in list(self._patched):
            self._restore(owner)
        self._watch_all()

    def _watch_all(self):
        """Watches the calls of all modules, for the time of a search."""
        if self._compiles or not self._searching:
            return
        adapter, module = self, self._torch.nn.Module
        original, compiling = module.__call__, _compiling(self._torch)

        @functools.wraps(original)
        def call(self, *args, **kwargs):
            if not adapter._searching or compiling():
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
            if not any(p.requires_grad for p in _parameters(module)):
                return  # a loss, a frozen teacher
            root = self._root.module() if self._root is not None else None
            if root is not None and any(part is module for part in root.modules()):
                return  # run again in the backward pass (activation checkpoints)
            target = self._add_target(module)
        self._on_call(target, module, args, kwargs)

    def _add_target(self, module):
        target = self._targets[id(module)] = Target(module, f"{type(module).__name__}.")
        return target

    def _watch(self, owner):
        """Watches the calls of a class' instances that are targets."""
        if any(base in self._patched for base in owner.__mro__):
            return
        adapter, targets, original = self, self._targets, owner.__call__
        compiling, inherited = _compiling(self._torch), "__call__" not in owner.__dict__
        base = self._torch.nn.Module

        @functools.wraps(original)
        def call(self, *args, **kwargs):
            if not compiling():
                target = targets.get(id(self))
                if target is not None:
                    try:
                        adapter._on_call(target, self, args, kwargs)
                    except Exception as error:
                        adapter._fail(error)
            if inherited and base.__call__ is not original:  # replaced, as torch.fx does
                return super(owner, self).__call__(*args, **kwargs)
            return original(self, *args, **kwargs)

        self._replace(owner, call)

    def _on_call(self, target, module, args, kwargs):
        if target.module() is not module:
            self._targets.pop(id(module), None)
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
            self._tell(target, args, kwargs, training)
        elif self._forwards > 0 and target.steps != self._steps and self._grad():
            self._tell(target, args, kwargs, None)
        target.steps = self._steps

    def _tell(self, target, args, kwargs, training):
        """`training`: False of an evaluation batch; None: of a module beside the root."""
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
        if self._capturing is not None and len(self._capturing.forwards) < MAX_EARLY:
            self._capturing.forwards.append((training, target.names_at, numbers))
        if self._attached or self._library.active():
            self._attached = True
            self._library.forward(training, target.names_at, numbers)
        elif len(self._early) < MAX_EARLY:
            self._early.append((training, target.names_at, numbers, time.time_ns()))

    # Optimiser steps.

    def _on_optimizer(self, optimizer):
        """An optimiser was made: of another model than the root, it begins another training (the
        next fold, the next stage), whose first iteration is not to be missed."""
        self._cycle.add(optimizer)
        steps = [vars(c)["step"] for c in type(optimizer).__mro__ if "step" in vars(c)]
        if len(steps) > 2:  # its own, a parent's, and that of Optimizer, which does nothing
            code = getattr(inspect.unwrap(steps[0]), "__code__", None)
            if code is not None and code.co_argcount > 0:
                self._outer_steps[type(optimizer)] = code
        if self._searching or self._root is None or self._compiles:
            return
        root = self._root.module()
        trained = {id(p) for group in optimizer.param_groups for p in group["params"]}
        if len(trained) < 2:
            return  # no model: an input that is optimised, perhaps in each iteration
        if root is None or not any(id(p) in trained for p in _parameters(root)):
            self._search()

    def _on_step(self, optimizer):
        self._scaler_stepped = True
        if self._broken:
            return
        try:
            if not (self._outer_steps and self._is_inner_step(optimizer)):
                self._step(optimizer)
        except Exception as error:
            self._fail(error)

    def _step(self, optimizer):
        if not self._cycle.ends(optimizer):
            return
        forwards, self._forwards = self._forwards, 0
        if forwards == 0 and self._is_part(optimizer):
            return
        self._stepped, self._parts = (id(optimizer), _first_parameter(optimizer)), 0
        if self._capturing is not None:
            self._capturing.stepped = True
        if self._attached or self._library.active():
            self._library.step(0)
        elif self._root is not None:
            self._attach()
        self._evaluating = False
        self._steps += 1
        if self._searching:
            self._end_search(optimizer)
        elif forwards > 0:
            self._without_root = 0
        else:
            self._without_root += 1
            gone = self._root is not None and self._root.module() is None
            if gone or self._without_root >= self._patience:
                self._search()

    def _is_inner_step(self, optimizer):
        """The step of a parent's class, called by the optimiser's own."""
        code, frame = self._outer_steps.get(type(optimizer)), sys._getframe()
        while code is not None and frame is not None:
            if frame.f_code is code and frame.f_locals.get(code.co_varnames[0]) is optimizer:
                return True
            frame = frame.f_back
        return False

    def _is_part(self, optimizer):
        """A step that is made in parts, one set of parameters after the other, with no forward in
        between (DeepSpeed's ZeRO), ends one iteration: with the first."""
        if (self._stepped is None or id(optimizer) != self._stepped[0] or
                _first_parameter(optimizer) == self._stepped[1] or self._parts == MAX_PARTS):
            return False
        self._parts += 1
        return True

    def _attach(self):
        """The first step of a program without CUDA: the library begins here."""
        root = self._root.module()
        on_host = root is not None and all(p.device.type == "cpu" for p in _parameters(root))
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
            self._without_root = 0
            self._patience = LOST_AFTER
            self._targets = Targets(
                {key: t for key, t in self._targets.items() if t in self._called})
            for owner in list(self._patched):
                self._restore(owner)
            modules = [module for t in self._called if (module := t.module()) is not None]
            for module in modules:
                self._watch(type(module))
            names = [t.label + name for t in self._called if t.reader for name in t.reader.names]
            sentence = (
                f"PyTorch {self._torch.__version__}: iterations end with the step of "
                f"{type(optimizer).__name__}; batches are those of "
                f"{' and '.join(type(module).__name__ for module in modules)}; told are "
                f"{', '.join(names) if names else 'no lengths'}")
            if sentence != self._said:
                self._said = sentence
                self._library.describe(True, sentence)
            return
        self._searches += 1
        if not self._compiles and self._searches < SEARCHED_STEPS:
            return
        owners = []
        if self._compiles and self._searches <= SEARCHES:
            owners = _owners(self._torch, optimizer, self._searches)
        if not owners:
            self._searching = False
            self._targets.clear()
            for owner in list(self._patched):
                self._restore(owner)
            self._patience *= 10
            self._said = None
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


class _Capture:
    """What was told while a CUDA graph was captured."""

    def __init__(self):
        self.forwards = []
        self.stepped = False


def _compiling(torch):
    """The function that tells code whether torch.compile traces it."""
    if not hasattr(torch, "compile") and not hasattr(torch, "compiler"):
        return bool
    # As they came: since 2.2, 2.1 and 2.0.
    for parent in (getattr(torch, "compiler", None), torch._utils,
                   sys.modules.get("torch._dynamo")):
        if hasattr(parent, "is_compiling"):
            return parent.is_compiling
    return torch.jit.is_scripting


def _leave_uncompiled(dynamo):
    """Has torch.compile run the adapter's frames as they are, as it does those of torch.nn.Module.
    What they call is compiled all the same."""
    modules = (cycle_module, features_module, library_module, sys.modules[__name__])
    try:
        for module in modules:
            for code in _codes(vars(module), module.__name__):
                dynamo.eval_frame.skip_code(code)
    except Exception:  # not loaded yet, or without the function: they may be looked at for nothing
        pass


def _codes(names, module):
    """Of the functions, methods and inner functions that a module defines."""
    for value in list(names.values()):
        if isinstance(value, type) and value.__module__ == module:
            yield from _codes(vars(value), module)
        elif isinstance(value, types.FunctionType) and value.__module__ == module:
            codes = [value.__code__]
            while codes:
                code = codes.pop()
                yield code
                codes += [inner for inner in code.co_consts if isinstance(inner, types.CodeType)]


def _first_parameter(optimizer):
    try:
        return id(optimizer.param_groups[0]["params"][0])
    except Exception:  # none, or not yet
        return 0


def _parameters(module):
    """None of a module that is not made yet."""
    try:
        return list(module.parameters())
    except Exception:
        return []


def _owners(torch, optimizer, level):
    """Modules that hold parameters of the optimiser; level 1: the outermost, 2: what they hold."""
    trained = {id(p) for group in optimizer.param_groups for p in group["params"]}
    modules = [o for o in gc.get_objects() if issubclass(type(o), torch.nn.Module)]
    owning = {id(m): m for m in modules if any(id(p) in trained for p in _parameters(m))}
    for _ in range(level):
        held = {id(child) for m in owning.values() for child in m.modules() if child is not m}
        outermost = [m for key, m in owning.items() if key not in held]
        owning = {key: m for key, m in owning.items() if key in held}
    return outermost[:MAX_OWNERS]
