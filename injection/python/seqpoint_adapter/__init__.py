"""SeqPoint's framework adapter: waits until the program imports torch, then watches its loop; and
until it looks by ctypes for the functions of the library that is injected.

Threading: imports may happen on any thread; what is installed says its own.
"""

import _thread
import os
import sys


def log(message):
    if os.environ.get("SEQPOINT_LOG") == "stderr":
        print(f"seqpoint: {message}", file=sys.stderr)


def tell(what):
    """Tells `seqpoint run`, which says at the program's end why nothing was profiled."""
    if "seqpoint_start" in sys.modules:
        sys.modules["seqpoint_start"].tell(what)


def hide_frame(error):
    """Takes the frame that caught `error`, and raises it again, off its traceback: where functions
    of the program call functions of PyTorch, nobody looks for us. (Python before 3.11 ignores it.)
    """
    if error.__traceback__ is not None:
        error.__traceback__ = error.__traceback__.tb_next


class _Loader:
    """Loads a module as its own loader does, between what was asked for."""

    def __init__(self, loader, finder):
        self._loader = loader
        self._finder = finder

    def __getattr__(self, name):
        return getattr(self._loader, name)

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        # The module keeps no trace of us.
        module.__spec__.loader = module.__loader__ = self._loader
        try:
            self._finder.load(self._loader, module)
        except BaseException as error:
            hide_frame(error)
            raise


def find_without(us, name, path, target):
    """Finds a module as the import system does without our finder `us`; None: there is none."""
    for finder in list(sys.meta_path):
        find = getattr(finder, "find_spec", None)
        spec = find(name, path, target) if finder is not us and find is not None else None
        if spec is not None:
            return spec
    return None


class _Finder:
    """Finds one module for the import system, once."""

    def __init__(self, name, before, after):
        self._name = name
        self._before, self._after = before, after
        # Threads that ask the other finders, which may ask the import system, and so us, in turn.
        self._asking = set()

    def find_spec(self, name, path=None, target=None):
        thread = _thread.get_ident()
        if name != self._name or thread in self._asking:
            return None
        self._asking.add(thread)
        try:
            spec = find_without(self, name, path, target)
        except BaseException as error:
            hide_frame(error)
            raise
        finally:
            self._asking.discard(thread)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = _Loader(spec.loader, self)
        return spec

    def load(self, loader, module):
        self._before()
        try:
            loader.exec_module(module)
        except BaseException as error:
            self._after(None)
            hide_frame(error)
            raise
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        self._after(module)


def around_import(name, before, after):
    """Calls before() and after(module) around the loading of a module that is not loaded yet; after
    one that fails after(None), and the next attempt is waited for."""
    if name not in sys.modules:
        sys.meta_path.insert(0, _Finder(name, before, after))


def wait():
    """Has torch and ctypes prepared now, or when the program imports them."""
    for name, prepare in (("torch", _install), ("ctypes", _show_library)):
        if name in sys.modules:
            prepare(sys.modules[name])
        else:
            around_import(name, lambda: None, prepare)


def _show_library(ctypes):
    """Has the first ctypes.CDLL(None), which looks in all that is loaded, find the library."""
    path = os.environ.get("SEQPOINT_LIBRARY")
    if ctypes is None or not path:
        return
    import functools

    loader, original, shown = ctypes.CDLL, ctypes.CDLL.__init__, []

    @functools.wraps(original)
    def __init__(self, *args, **kwargs):
        try:
            if not shown and (args[0] if args else kwargs.get("name", path)) is None:
                shown.append(True)
                if loader.__init__ is __init__:  # nobody put another one over it
                    loader.__init__ = original
                try:
                    original(loader.__new__(loader), path, mode=ctypes.RTLD_GLOBAL)
                except OSError as error:
                    log(f"marks of the program are not seen: {error}")
            original(self, *args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise

    loader.__init__ = __init__


def _install(torch):
    if torch is None:
        return
    try:
        from . import library, pytorch

        told = library.find()
        if told is not None:
            pytorch.Adapter(torch, told).install()
            tell(b"t")
    except Exception as error:  # a torch we do not know must still train
        log(f"the PyTorch adapter did not start: {error!r}")
