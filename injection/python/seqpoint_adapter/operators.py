"""Records the operators of iterations that have the length of a SeqPoint (`seqpoint run
--operators`, docs/formats/operator-costs.md): of each length the graph in one iteration, the times in
another, as the observer of the graph takes time itself.

Threading: one thread at a time; a recording begins and ends in the thread that trains. Ownership:
the files in `folder`.
"""

import _thread
import atexit
import os

from .hooks import around

MAX_LENGTHS = 16  # twice those that the daemon wants at a time: its SeqPoints may change
MAX_FAILURES = 3
MAX_DROPPED = 16  # recordings of iterations that turned out to be unlike others

GRAPH, TIMES = "graph", "times"


class Recorder:
    def __init__(self, torch, library, folder):
        self._torch = torch
        self._library = library
        self._folder = folder
        self._made = {}  # lengths -> kinds that are there
        self._open = None
        self._dropped = 0
        self._graphs = {}  # lengths -> a graph that has no name yet
        self._starting = False
        self._failures = 0
        self._over = False
        self._step_thread = None  # that made the last step
        self._observer = _observer_class(torch)
        self._others = None  # an observer of the program, which there may be one of
        if self._observer is None:
            self._give_up(f"PyTorch {torch.__version__} has no observer of operators")
            return
        around(self, self._observer, "register_callback", before="_on_register")
        for owner in _profilers(torch):
            around(self, owner, "__enter__", before="make_room")
        # A child would write into the file of the graph, too.
        os.register_at_fork(before=self.make_room)
        atexit.register(self._on_exit)

    def on_begin(self, on_host, compiles):
        """An iteration has begun, and its lengths were told. `on_host`: the CPU does the work."""
        if self._over or self._step_thread != _thread.get_ident():
            return
        if compiles:
            self._give_up("the program uses torch.compile, and PyTorch does not record which "
                          "inputs compiled kernels write")
            return
        lengths = self._library.wants_operators()
        if lengths is None:
            return
        wanted = (GRAPH, TIMES) if on_host else (GRAPH,)
        made = self._made.get(lengths, ())
        kind = next((kind for kind in wanted if kind not in made), None)
        if kind is None or (not made and len(self._made) == MAX_LENGTHS) or self._is_taken():
            return
        self._library.distort()
        self._try(self._start, kind, lengths, on_host)

    def on_pass(self):
        """Another pass within the iteration: a micro-batch, the next one where this one failed, an
        evaluation. The recording would be of both."""
        self.make_room()

    def on_step(self, ends):
        """An optimiser's step is over, with which the iteration `ends` or not."""
        if ends:
            self._step_thread = _thread.get_ident()
            self.end()

    def end(self):
        """The open recording, if any, is whole."""
        recording, self._open = self._open, None
        if recording is not None:
            self._try(self._finish, recording)

    def make_room(self, whose=None):
        """The program is about to record itself, to fork or to end: an open recording comes to
        nothing. Answers whether it is ours that begins."""
        if self._starting:
            return True
        recording, self._open = self._open, None
        if recording is not None:
            self._try(recording.drop)
            self._dropped += 1
            if self._dropped == MAX_DROPPED:
                self._give_up("iterations have several forward passes, start processes, or are "
                              "recorded by the program itself")
        return False

    def _on_exit(self):
        self.close()
        for graph in self._graphs.values():
            self._try(graph.remove)

    def _is_taken(self):
        """The program records, with one of the two, of which a process can have one each."""
        return self._torch.autograd._profiler_enabled() or getattr(
            self._others, "_registered", False)

    def _start(self, kind, lengths, on_host):
        name = "x".join(map(str, lengths)) or "iteration"
        path = os.path.join(self._folder, f"{name}.{kind}.json")
        self._starting = True
        try:
            if kind == GRAPH:
                self._open = _Graph(self._observer, path)
            else:
                self._open = _Times(self._torch.profiler, path)
        finally:
            self._starting = False
        self._open.lengths, self._open.kind, self._open.on_host = lengths, kind, on_host

    def _finish(self, recording):
        """The two files of a length get their names together: they are of one program."""
        recording.end()
        self._made.setdefault(recording.lengths, []).append(recording.kind)
        if recording.on_host and recording.kind == GRAPH:
            self._graphs[recording.lengths] = recording
            return
        graph = self._graphs.pop(recording.lengths, None)
        if graph is not None:
            recording.remove_old()
            graph.keep()
        recording.keep()
        whole = sum(not recording.on_host or len(kinds) == 2 for kinds in self._made.values())
        if whole > 0 and recording.on_host:
            self._library.operators(True, f"those of {whole} length{'s' * (whole > 1)} are in {self._folder}")
        elif whole > 0:
            self._library.operators(True, f"the graphs of {whole} length{'s' * (whole > 1)} are in "
                       f"{self._folder}; their times on a GPU are not recorded: CUPTI serves one "
                       "tool at a time")

    def _try(self, function, *arguments):
        """Whatever fails, the program goes on, and iterations are still found."""
        try:
            function(*arguments)
        except Exception as error:
            self._fail(f"{type(error).__name__}: {error}")

    def _fail(self, why):
        self._failures += 1
        if self._failures == MAX_FAILURES:
            self._give_up(why)

    def close(self):
        """The adapter gave up."""
        self._over = True
        self.make_room()

    def _give_up(self, why):
        self._over = True
        self._library.operators(bool(self._made), f"no more are recorded: {why}")

    def _on_register(self, observer, *_, **__):
        if not self.make_room():
            self._others = observer

    def __reduce__(self):  # see Adapter's
        return bool, ()


class _Recording:
    """A file that gets its name when all is whole."""

    ENDS = (b"}", b"]")

    def __init__(self, path):
        self._path, self._part = path, f"{path}.{os.getpid()}.part"

    def end(self):
        try:
            self._write(self._part)
            size = os.path.getsize(self._part)
            with open(self._part, "rb") as file:
                file.seek(-min(64, size), os.SEEK_END)
                end = file.read().rstrip()
            if not end.endswith(self.ENDS) or self.LAST not in end:
                raise OSError(f"{self._path} would be cut: is the disk full?")
        except BaseException:
            self.remove()
            raise

    def keep(self):
        os.replace(self._part, self._path)

    def drop(self):
        try:
            self._stop()
        finally:
            self.remove()

    def remove(self):
        if os.path.exists(self._part):
            os.remove(self._part)

    def remove_old(self):
        if os.path.exists(self._path):
            os.remove(self._path)


class _Graph(_Recording):
    """The graph of operators: an execution trace (Chakra)."""

    LAST = b"finish_ts"  # behind the nodes, in all versions

    def __init__(self, observer, path):
        super().__init__(path)
        # An observer that cannot write stays registered, and nobody could register another.
        with open(self._part, "wb"):
            pass
        self._observer = observer()
        self._observer.register_callback(self._part)
        self._observer.start()

    def _stop(self):
        self._observer.unregister_callback()

    def _write(self, path):
        self._stop()


class _Times(_Recording):
    """The times of operators: a time line of PyTorch's profiler, of the CPU alone, so that CUPTI is
    left to others."""

    LAST = b""

    def __init__(self, profiler, path):
        super().__init__(path)
        self._profile = profiler.profile(activities=[profiler.ProfilerActivity.CPU])
        self._profile.start()

    def _stop(self):
        self._profile.stop()

    def _write(self, path):
        self._stop()
        self._profile.export_chrome_trace(path)


def _observer_class(torch):
    """It got its present name in 2.0."""
    profiler = torch.profiler
    return getattr(profiler, "ExecutionTraceObserver",
                   getattr(profiler, "ExecutionGraphObserver", None))


def _profilers(torch):
    """The profilers of PyTorch that start without the common one."""
    profiler = torch.autograd.profiler
    legacy = getattr(torch.autograd, "profiler_legacy", None)
    owners = [getattr(profiler, "emit_nvtx", None), getattr(profiler, "emit_itt", None),
              getattr(legacy, "profile", None)]
    return [owner for owner in owners if owner is not None]
