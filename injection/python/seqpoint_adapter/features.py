"""Numbers that are known when a module is called: the shapes of its tensor inputs.

A Reader is made from one call and reads the same numbers from the calls that follow. It never
touches a tensor's data on the GPU, which would wait for it.

Threading: one thread at a time.
"""

import dataclasses
import inspect
from collections.abc import Mapping
from math import prod
from operator import attrgetter, itemgetter

MAX_DEPTH = 4
MAX_ITEMS = 16  # of one list or dictionary
MAX_NUMBERS = 24
MAX_TENSORS = 64  # of a call that are looked at together
PLAIN = (bool, int, float, complex, str, bytes)  # they hold no tensor
SAMPLES = 5  # tensors of a list that are samples rather than inputs of different kinds
# Calls after which numbers that were always equal to an earlier one are left out.
STUDIED_CALLS = 16


class Changed(Exception):
    """The call's inputs are built otherwise than those of the call that the reader was made from."""


class _Shape:
    """The dimensions of a tensor. The reader reads them itself: most inputs are tensors."""

    def __init__(self, name, tensor):
        self.dimensions = tensor.dim()
        self.names = [f"{name}.shape[{i}]" for i in range(self.dimensions)]


class _Foreign:
    """The dimensions of a tensor of a class of the program's, which sees no read of ours."""

    def __init__(self, name, shape, plainly):
        self.rank = len(shape)
        self.plainly = plainly
        self.names = [f"{name}.shape[{i}]" for i in range(self.rank)]

    def read(self, tensor, numbers):
        with self.plainly():
            shape = tensor.shape
        if len(shape) != self.rank:
            raise Changed
        numbers += shape


class _Packed:
    """A PackedSequence: batch_sizes lies on the host and has an entry per time step."""

    def __init__(self, name, packed):
        self.names = [f"{name}.steps", f"{name}.tokens", f"{name}.batch"]

    def read(self, packed, numbers):
        sizes = packed.batch_sizes
        numbers += (sizes.shape[0], packed.data.shape[0], int(sizes[0]))


class _Nested:
    """A nested tensor: sequences of different lengths without padding."""

    def __init__(self, name, tensor):
        self.jagged = hasattr(tensor, "_offsets")
        self.names = [f"{name}.batch", f"{name}.tokens" if self.jagged else f"{name}.elements"]

    def read(self, tensor, numbers):
        if self.jagged:
            of_tokens = getattr(tensor, "_ragged_idx", 1) - 1
            numbers += (tensor._offsets.shape[0] - 1, tensor._values.shape[of_tokens])
        else:
            numbers += (tensor.size(0), tensor.numel())


class _Samples:
    """A list of tensors, one a sample: as many as the batch has, each with its own length."""

    def __init__(self, name, tensors):
        self.rank = tensors[0].dim()
        self.names = [f"{name}.count", f"{name}.elements"]
        self.names += [f"{name}.longest[{i}]" for i in range(self.rank)]

    def read(self, tensors, numbers):
        shapes = [tensor.shape for tensor in tensors]
        if set(map(len, shapes)) != {self.rank}:
            raise Changed
        numbers += (len(shapes), sum(map(prod, shapes)), *map(max, zip(*shapes)))


class _Number:
    """A whole number, such as max_seqlen."""

    def __init__(self, name, value):
        self.names = [name]

    def read(self, value, numbers):
        if type(value) is not int:
            raise Changed
        numbers.append(value)


class Reader:
    """Reads the numbers of a module's call.

    names: what each is, "src.shape[1]". read(args, kwargs): a list of as many; raises Changed, or
    whatever a missing input raises, when the call is built otherwise.
    """

    def __init__(self, torch, module, args, kwargs):
        self._torch = torch
        self._plain = torch.Tensor
        self._sources = []  # (positional?, key, getters, what reads, dimensions of a tensor)
        self.names = []
        named = _parameter_names(module)
        for i, value in enumerate(args):
            name = named[i] if i < len(named) else f"input[{i}]"
            self._walk(name, value, (True, i, ()), 0)
        for key, value in kwargs.items():
            self._walk(key, value, (False, key, ()), 0)
        self._kept = None  # picks, of the numbers that are read, those to tell; None: all
        self._studied = []  # None: done

    @property
    def settled(self):
        """The names stay as they are."""
        return self._studied is None

    def read(self, args, kwargs):
        numbers, plain = [], self._plain
        for positional, key, getters, source, dimensions in self._sources:
            value = args[key] if positional else kwargs[key]
            for getter in getters:
                value = getter(value)
            if dimensions is None:
                source.read(value, numbers)
            else:
                if type(value) is not plain:
                    raise Changed
                shape = value.shape
                if len(shape) != dimensions:
                    raise Changed
                numbers += shape
        if self._studied is not None:
            return self._study(numbers)
        return numbers if self._kept is None else self._kept(numbers)

    def _study(self, numbers):
        """A mask has the shape of what it masks: later copies of a number are of no use."""
        self._studied.append(numbers)
        if len(self._studied) < STUDIED_CALLS:
            return numbers
        columns = list(zip(*self._studied))
        kept = [column not in columns[:i] for i, column in enumerate(columns)]
        # Inputs of which nothing is left are not looked at any more.
        sources, flags, read = [], iter(kept), []
        for where in self._sources:
            of_source = [next(flags) for _ in where[3].names]
            if any(of_source):
                sources.append(where)
                read += of_source
        self._sources, self._studied = sources, None
        told = [i for i, keep in enumerate(read) if keep]
        if len(told) == 1:
            self._kept = lambda numbers, i=told[0]: (numbers[i],)
        elif len(told) < len(read):
            self._kept = itemgetter(*told)
        self.names = [name for name, keep in zip(self.names, kept) if keep]
        return [number for number, keep in zip(numbers, kept) if keep]

    def _walk(self, name, value, where, depth):
        tensor = self._torch.Tensor
        if isinstance(value, tensor):
            plainly = self._torch._C.DisableTorchFunction
            with plainly():
                nested = hasattr(value, "_offsets") or getattr(value, "is_nested", False)
                shape = None if nested else value.shape
            if nested:
                self._add(_Nested(name, value), where)
            elif type(value) is tensor:
                self._add(_Shape(name, value), where)
            else:
                self._add(_Foreign(name, shape, plainly), where)
        elif isinstance(value, self._torch.nn.utils.rnn.PackedSequence):
            self._add(_Packed(name, value), where)
        elif type(value) is int:
            self._add(_Number(name, value), where)
        elif self._are_samples(value):
            self._add(_Samples(name, value), where)
        elif depth < MAX_DEPTH:
            for label, getter, item in _items(value):
                positional, key, getters = where
                self._walk(name + label, item, (positional, key, (*getters, getter)), depth + 1)

    def _are_samples(self, value):
        return (type(value) in (list, tuple) and len(value) >= SAMPLES and
                all(type(item) is self._torch.Tensor and item.dim() == value[0].dim() > 0
                    for item in value))

    def _add(self, source, where):
        if len(self.names) + len(source.names) <= MAX_NUMBERS:
            self._sources.append((*where, source, getattr(source, "dimensions", None)))
            self.names += source.names


def tensors(torch, values):
    """The tensors among a call's inputs, and inside of them; and whether these are all."""
    found = []
    return found, _find(torch, values, found, 0)


def _find(torch, values, found, depth):
    are_all = True
    for value in values:
        if len(found) == MAX_TENSORS:
            return False
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, Mapping):
            are_all &= depth < MAX_DEPTH and _find(torch, value.values(), found, depth + 1)
        elif isinstance(value, (list, tuple)):
            are_all &= depth < MAX_DEPTH and _find(torch, value, found, depth + 1)
        elif dataclasses.is_dataclass(value):
            are_all &= depth < MAX_DEPTH and _find(torch, vars(value).values(), found, depth + 1)
        else:
            are_all &= value is None or isinstance(value, PLAIN)
    return are_all


def _items(value):
    """(label, getter, item) of what is inside a container."""
    if isinstance(value, Mapping):
        keys = [key for key in value if isinstance(key, (str, int))]
        return [(f"[{key!r}]", itemgetter(key), value[key]) for key in keys[:MAX_ITEMS]]
    if isinstance(value, (list, tuple)):
        return [(f"[{i}]", itemgetter(i), item) for i, item in enumerate(value[:MAX_ITEMS])]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return [(f".{name}", attrgetter(name), getattr(value, name)) for name in names[:MAX_ITEMS]
                if hasattr(value, name)]
    return []


def _parameter_names(module):
    """Of forward; of the inner one where a wrapper (DDP, torch.compile) passes its inputs on."""
    names = []
    for _ in range(MAX_DEPTH):
        try:
            parameters = inspect.signature(module.forward).parameters.values()
            module = getattr(module, "_orig_mod", None) or getattr(module, "module", None)
        except Exception:
            break
        names = [p.name for p in parameters
                 if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        if names or not hasattr(module, "forward"):
            break
    return names
