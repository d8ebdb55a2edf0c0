"""Puts functions of ours around those of PyTorch and of the program, and keeps torch.compile and
torch.jit.script from looking into them.

Threading: hooks run on whatever thread calls what they are put around.
"""

import functools
import importlib
import inspect
import sys
import types

from . import hide_frame, log


def around(adapter, owner, name, before=None, after=None, failed=None):
    """Puts a function around the one of this name in a class or module, and answers it. `before`,
    `after` and `failed` name methods of the adapter, which get the call's arguments: before the
    call, when it has returned, when it has raised. Where a pickle of a class was read there is no
    adapter."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapped(*args, **kwargs):
        if adapter and before:
            getattr(adapter, before)(*args, **kwargs)
        try:
            result = original(*args, **kwargs)
        except BaseException as error:
            if adapter and failed:
                getattr(adapter, failed)(*args, **kwargs)
            hide_frame(error)
            raise
        if adapter and after:
            getattr(adapter, after)(*args, **kwargs)
        return result

    setattr(owner, name, wrapped)
    return wrapped


def safely(method):
    """Nothing of ours ever raises into the program; what failed once does nothing more."""

    @functools.wraps(method)
    def safe(self, *args, **kwargs):
        if self._broken:
            return
        try:
            method(self, *args, **kwargs)
        except Exception as error:
            self._fail(error)

    return safe


def compiling(torch):
    """The function that tells code whether torch.compile traces it."""
    if not hasattr(torch, "compile") and not hasattr(torch, "compiler"):
        return bool
    # As they came: since 2.2, 2.1 and 2.0.
    for parent in (getattr(torch, "compiler", None), torch._utils,
                   sys.modules.get("torch._dynamo")):
        if hasattr(parent, "is_compiling"):
            return parent.is_compiling
    return torch.jit.is_scripting


def leave_uncompiled(dynamo):
    """Has torch.compile run the adapter's frames as they are, as it does those of torch.nn.Module.
    What they call is compiled all the same."""
    try:
        for name, module in list(sys.modules.items()):
            if name.startswith(__package__ + "."):
                for code in _codes(vars(module), name):
                    dynamo.eval_frame.skip_code(code)
    except Exception:  # not loaded yet, or without the function: they may be looked at for nothing
        pass


def _codes(names, module):
    """Of the functions, methods and inner functions that a module defines."""
    for value in list(names.values()):
        if isinstance(value, type) and value.__module__ == module:
            yield from _codes(vars(value), module)
        elif isinstance(value, types.FunctionType) and value.__module__ == module:
            codes = [value.__code__, inspect.unwrap(value).__code__]
            while codes:
                code = codes.pop()
                yield code
                codes += [inner for inner in code.co_consts if isinstance(inner, types.CodeType)]


def let_script(torch, wrapped):
    """torch.jit.script knows functions of PyTorch by their address, and compiles all others."""
    original = wrapped.__wrapped__
    try:
        builtins = importlib.import_module("torch.jit._builtins")
        named = [name for function, name in builtins._builtin_ops if function is original]
        builtins._builtin_ops += [(wrapped, name) for name in named[:1]]
        if builtins._builtin_table is not None:
            builtins._builtin_table.update({id(wrapped): name for name in named[:1]})
    except Exception as error:  # built otherwise
        log(f"torch.jit.script may not know torch.autograd.{original.__name__}: {error!r}")
