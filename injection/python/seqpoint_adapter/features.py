"""Numbers that are known when a module is called: the shapes of its inputs, and the lengths of the
samples where they lie on the host.

A Reader learns from each call that is built otherwise than those before what can be read from such
calls. It never touches a tensor's data on the GPU, which would wait for it.

Threading: one thread at a time.
"""

import dataclasses
import inspect
import re
from collections.abc import Mapping
from math import prod
from operator import attrgetter, itemgetter, mul, sub

MAX_DEPTH = 4
MAX_ITEMS = 16  # of one list or dictionary
MAX_NUMBERS = 24
MAX_TENSORS = 64  # of a call that are looked at together
PLAIN = (bool, int, float, complex, str, bytes)  # they hold no tensor
MAX_PLANS = 8  # of calls that are built differently
SAMPLES = 5  # items of a list that are samples rather than inputs of different kinds
# At most so many elements of an input on the host are read in each call, in some 2 to 20 us
# (docs/using/pytorch.md).
MAX_LENGTHS = 256
MAX_ELEMENTS = 1 << 15  # PyTorch sums so many on the calling thread (at::internal::GRAIN_SIZE)
SQUARES = "sum of squares of "
# Containers of libraries, which are no mappings but have their items by name.
CONTAINERS = ("torch_geometric", "tensordict")
# Calls after which numbers that were always equal to an earlier one are left out.
STUDIED_CALLS = 16


class Changed(Exception):
    """The call's inputs are built otherwise than those of the call that the plan was made from."""


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


class _Lengths:
    """Lengths of samples. Attention takes a time by the sum of their squares."""

    def __init__(self, name, lengths_of):
        self.lengths_of = lengths_of
        self.names = self.names_of(name)

    @staticmethod
    def names_of(name):
        return [f"number of {name}", f"sum of {name}", f"longest of {name}", f"{SQUARES}{name}"]

    def read(self, value, numbers):
        lengths = self.lengths_of(value)
        if len(lengths) > MAX_LENGTHS:
            raise Changed
        numbers += (len(lengths), sum(lengths), max(lengths, default=0),
                    sum(map(mul, lengths, lengths)))


class _Size:
    """Of a container, which holds the same items each time or was built otherwise."""

    names = ()

    def __init__(self, value):
        self.size = len(value)

    def read(self, value, numbers):
        if len(value) != self.size:
            raise Changed


class _Nothing:
    """An optional input that is left out."""

    names = ()

    def read(self, value, numbers):
        if value is not None:
            raise Changed


def _of_list(values):
    if set(map(type, values)) != {int}:
        raise Changed
    return values


def _of_tensor(tensor):
    return tensor.tolist()


def _of_offsets(tensor):
    """Where each sample begins in a row of all (cu_seqlens)."""
    offsets = tensor.tolist()
    return list(map(sub, offsets[1:], offsets))


def _of_mask(tensor):
    return tensor.sum(1).tolist()


def _of_positions(tensor):
    """Each sample begins at position 0."""
    flat = tensor.flatten()
    begins = (flat == 0).nonzero().flatten().tolist()
    return list(map(sub, [*begins[1:], len(flat)], begins))


# By the input's name and dimensions: how its lengths are read, of at most so many elements.
_KINDS = ((re.compile(r"cu_?seq|cu_.*len"), (1,), _of_offsets, MAX_LENGTHS + 1),
          (re.compile(r"len"), (1,), _of_tensor, MAX_LENGTHS),
          (re.compile(r"attention_mask"), (2,), _of_mask, MAX_ELEMENTS),
          (re.compile(r"position_ids"), (1, 2), _of_positions, MAX_ELEMENTS))


class _Plan:
    """How to read the numbers of calls that are built like one call.

    `left_out`: names of numbers that need not be told. `may_compute`: is true where lengths of
    samples may be read; None: none are."""

    def __init__(self, torch, parameters, args, kwargs, left_out, may_compute):
        self._torch = torch
        self._plain = torch.Tensor
        self._may_compute = may_compute
        self._sources = []  # (positional?, key, getters, what reads, dimensions of a tensor)
        self._positional, self._named = len(args), len(kwargs)
        self.names = []
        for i, value in enumerate(args):
            name = parameters[i] if i < len(parameters) else f"input[{i}]"
            self._walk(name, value, (True, i, ()), 0)
        for key, value in kwargs.items():
            self._walk(key, value, (False, key, ()), 0)
        self.names = tuple(self.names)
        self._kept = None  # picks, of the numbers that are read, those to tell; None: all
        self.leave_out(left_out)

    def read(self, args, kwargs):
        if len(args) != self._positional or len(kwargs) != self._named:
            raise Changed
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
        return numbers if self._kept is None else self._kept(numbers)

    def leave_out(self, names):
        """Inputs of which nothing is left are not looked at any more."""
        sources, read = [], []
        for where in self._sources:
            of_source = where[3].names
            if not of_source or not names.issuperset(of_source):
                sources.append(where)
                read += of_source
        self._sources = sources
        told = [i for i, name in enumerate(read) if name not in names]
        if len(told) == 1:
            self._kept = lambda numbers, i=told[0]: (numbers[i],)
        elif len(told) < len(read):
            self._kept = itemgetter(*told) if told else lambda numbers: ()
        self.names = tuple(read[i] for i in told)

    def _walk(self, name, value, where, depth):
        torch = self._torch
        if isinstance(value, torch.Tensor):
            plainly = torch._C.DisableTorchFunction
            with plainly():
                nested = hasattr(value, "_offsets") or getattr(value, "is_nested", False)
                shape = None if nested else value.shape
            if nested:
                self._add(_Nested(name, value), where)
            elif type(value) is torch.Tensor:
                self._add(_Shape(name, value), where)
                self._add_lengths(name, value, where)
            else:
                self._add(_Foreign(name, shape, plainly), where)
        elif isinstance(value, torch.nn.utils.rnn.PackedSequence):
            self._add(_Packed(name, value), where)
        elif type(value) is int:
            self._add(_Number(name, value), where)
        elif value is None:
            self._add(_Nothing(), where)
        elif self._are_samples(value):
            self._add(_Samples(name, value), where)
        elif _are_lengths(value):
            self._add(_Lengths(name, _of_list), where)
        elif depth < MAX_DEPTH:
            items = _items(value)
            if isinstance(value, (Mapping, list, tuple)):
                self._add(_Size(value), where)
            for label, getter, item in items:
                positional, key, getters = where
                self._walk(name + label, item, (positional, key, (*getters, getter)), depth + 1)

    def _add_lengths(self, name, tensor, where):
        may_compute = self._may_compute
        if (may_compute is None or tensor.device.type != "cpu" or tensor.is_floating_point() or
                tensor.is_complex()):
            return
        for pattern, dimensions, lengths_of, most in _KINDS:
            if tensor.dim() in dimensions and tensor.numel() <= most and pattern.search(name):
                plain, plainly = self._plain, self._torch._C.DisableTorchFunction
                host, of_dimension = tensor.device, tensor.dim()

                def lengths(tensor):
                    if not may_compute() or (
                            type(tensor) is not plain or tensor.dim() != of_dimension or
                            tensor.device != host or tensor.numel() > most):
                        raise Changed
                    with plainly():
                        return lengths_of(tensor)

                self._add(_Lengths(name, lengths), where)
                return

    def _are_samples(self, value):
        return (type(value) in (list, tuple) and len(value) >= SAMPLES and
                all(type(item) is self._torch.Tensor and item.dim() == value[0].dim() > 0
                    for item in value))

    def _add(self, source, where):
        if len(self.names) + len(source.names) <= MAX_NUMBERS:
            self._sources.append((*where, source, getattr(source, "dimensions", None)))
            self.names += source.names


class Reader:
    """Reads the numbers of a module's calls.

    read(args, kwargs): a list of numbers; `names`: what each of them is, "src.shape[1]", in the call
    that was read last. An input that a call leaves out has no number in it. The tuple of names is
    the same object as long as the calls are built alike.
    """

    def __init__(self, torch, module):
        self._torch = torch
        self._may_compute = _may_compute(torch)
        self._parameters = _parameter_names(module)
        self._plans = []  # the last that was made is the first; those without lengths are the last
        self._studied = []  # numbers of the first calls, by name; None: done
        self._left_out = frozenset()
        self.names = ()

    def read(self, args, kwargs):
        for plan in self._plans:
            try:
                numbers = plan.read(args, kwargs)
                break
            except Exception:  # built otherwise
                pass
        else:
            plan, numbers = self._make_plan(args, kwargs)
        self.names = plan.names
        if self._studied is not None:
            self._study(dict(zip(plan.names, numbers)))
        return numbers

    def _make_plan(self, args, kwargs):
        def make(may_compute):
            plan = _Plan(self._torch, self._parameters, args, kwargs, self._left_out, may_compute)
            return plan, plan.read(args, kwargs)

        if not self._may_compute():
            return make(None)  # for this once
        try:
            plan, numbers = make(self._may_compute)
            self._plans = [plan, *self._plans[:MAX_PLANS - 1]]
        except Exception:  # too many samples; tensors that are not what they seem (torch.func)
            plan, numbers = make(None)
            self._plans = [*self._plans[:MAX_PLANS - 1], plan]
        return plan, numbers

    def _study(self, numbers):
        """A mask has the shape of what it masks: later copies of a number are of no use. Neither
        are lengths of samples that stay the same, and they take time to read."""
        self._studied.append(numbers)
        if len(self._studied) < STUDIED_CALLS:
            return
        names = list(dict.fromkeys(name for row in self._studied for name in row))
        columns = [[row.get(name) for row in self._studied] for name in names]
        left_out = {name for i, name in enumerate(names) if columns[i] in columns[:i]}
        constant = {name for name, column in zip(names, columns) if len(set(column)) == 1}
        for name in constant:
            if name.startswith(SQUARES):
                of_source = _Lengths.names_of(name[len(SQUARES):])
                left_out.update(of_source if constant.issuperset(of_source) else ())
        self._left_out = frozenset(left_out)
        self._studied = None
        for plan in self._plans:
            plan.leave_out(self._left_out)


def _are_lengths(value):
    """A few whole numbers in a tuple are something else (the size of a picture)."""
    return (type(value) is list or type(value) is tuple and len(value) >= SAMPLES) and (
        0 < len(value) <= MAX_LENGTHS and set(map(type, value)) == {int})


def _may_compute(torch):
    """The function that tells whether nobody would record what we compute, as torch.jit.trace and
    dispatch modes of the program do."""
    tracing = torch._C._get_tracing_state
    modes = getattr(torch._C, "_len_torch_dispatch_stack", None)  # since 2.0
    return lambda: tracing() is None and (modes is None or modes() == 0)


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
    if any(base.__module__.partition(".")[0] in CONTAINERS for base in type(value).__mro__):
        items = value.to_dict()
        return [(f"[{key!r}]", itemgetter(key), items[key]) for key in list(items)[:MAX_ITEMS]]
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
