"""SeqPoint's framework adapter: waits until the program imports torch, then watches its loop.

Threading: imports may happen on any thread; what is installed says its own.
"""

import sys


class _Loader:
    """Loads torch as its own loader does, and installs the adapter when that is done."""

    def __init__(self, loader):
        self._loader = loader

    def __getattr__(self, name):
        return getattr(self._loader, name)

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        # The module keeps no trace of us.
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        _install(module)


class _Finder:
    """Finds torch for the import system, once."""

    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if finder is not self and find is not None else None
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader)
                return spec
        return None


def wait_for_torch():
    if "torch" in sys.modules:
        _install(sys.modules["torch"])
    else:
        sys.meta_path.insert(0, _Finder())


def _install(torch):
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _Finder)]
    try:
        from . import library, pytorch

        told = library.find()
        if told is not None:
            pytorch.Adapter(torch, told).install()
    except Exception as error:  # a torch we do not know must still train
        library.log(f"the PyTorch adapter did not start: {error!r}")
