"""Modules of the program: those whose calls are told, and which belong together.

Threading: one thread at a time. Ownership: modules are referred to weakly.
"""

import gc
import weakref
from collections import Counter

MAX_OWNERS = 64
MAX_WRAPPED = 8  # models inside of each other, down from the root
MAX_ALIKE = 8  # modules of one class in the root whose calls may all pass through us


class Target:
    """A module whose calls are told."""

    __slots__ = ("module", "label", "reader", "names_at", "names", "steps")

    def __init__(self, module, label):
        self.module = weakref.ref(module)
        self.label = label  # put before the names of its numbers; "" of the root
        self.reader = None
        self.names_at = 0
        self.names = None  # of the reader, that names_at has
        self.steps = -1  # value of Adapter._steps when it was told last


class Targets(dict):
    """By the id of their module."""

    def __reduce__(self):  # see Adapter's
        return dict, ()


def parameters_of(module):
    """None of a module that is not made yet."""
    try:
        return list(module.parameters())
    except Exception:
        return []


def wrapped_by(root):
    """Answers what the root wraps (DDP, torch.compile, PEFT), and that in turn: of each module the
    part that holds more than half of its parameters. Of PyTorch's own classes, which other models
    have parts of, only what holds all of them."""
    classes = Counter(type(module) for module in root.modules())
    found, module, size = [], root, _size(root)
    while size > 0 and len(found) < MAX_WRAPPED:
        whole, (size, module) = size, max(
            ((_size(child), child) for child in module.children()), default=(0, None),
            key=lambda sized: sized[0])
        if 2 * size <= whole:
            break
        is_own = not type(module).__module__.startswith("torch.nn.")
        if (is_own or size == whole) and classes[type(module)] <= MAX_ALIKE:
            found.append(module)
    return found


def _size(module):
    """Elements of its parameters, as far as they are made."""
    try:
        return sum(p.numel() for p in module.parameters())
    except Exception:
        return 0


def owners_of(torch, optimizer, level):
    """Modules that hold parameters of the optimiser; level 1: the outermost, 2: what they hold."""
    trained = trained_by(optimizer)
    modules = [o for o in gc.get_objects() if issubclass(type(o), torch.nn.Module)]
    owning = {id(m): m for m in modules if any(id(p) in trained for p in parameters_of(m))}
    for _ in range(level):
        held = {id(child) for m in owning.values() for child in m.modules() if child is not m}
        outermost = [m for key, m in owning.items() if key not in held]
        owning = {key: m for key, m in owning.items() if key in held}
    return outermost[:MAX_OWNERS]


def trained_by(optimizer):
    """The ids of its parameters."""
    return {id(p) for group in optimizer.param_groups for p in group["params"]}
