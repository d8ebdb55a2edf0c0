"""Programs that run blocks of iterations when they are told to, alone or under the profiler."""
import json
import selectors
import subprocess
import time

import session
from machine import Skipped, StepFailed, status_text

# One window of traced iterations, as the library opens and closes it.
WINDOW = [["level", "trace"], ["level", "mark"]]
COUNTERS = ["counters"]  # until an iteration's counters were measured


class Rung:
    """A process of its own that speaks the protocol of torch/overhead.py, alone or under the profiler."""

    def __init__(self, machine, job, name, kind, command, cuda, run_options=(), extra=None):
        """`kind`: (watched, commands it is told once it is warm, verb of a block). `cuda`: a CUDA program of the bundle, and not PyTorch. `extra`: of its
        environment."""
        self.machine = machine
        self.name = name
        self.watched, self.commands, self.verb = kind
        self.session = None
        self.patience = 30.0  # seconds that iterations go on until a rule, or counters, are there
        if self.watched:
            self.session = session.Session(machine, f"rung-{job}-{name}".replace(",", "").replace(" ", "-")).__enter__()
            self.session.start(command, run_options, cuda=cuda, pipes=True, extra=extra)
            self.process = self.session.process
        else:
            self.process = machine.programs.start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                                  bufsize=1, env=machine.environment(extra, cuda=cuda))

    def line(self):
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while selector.select(self.machine.left(60)):
                line = self.process.stdout.readline()
                if line == "ready\n" or line.startswith("{"):
                    return line
                if not line:
                    status = self.status(5)
                    raise StepFailed(f"{self.name}: the program ended with "
                                     f"{status_text(status) if status is not None else 'its output'}; "
                                     f"{self.session.tail() if self.session else 'see its output above'}")
        raise StepFailed(f"{self.name}: no answer")

    def prepare(self):
        """Level and the like. Raises Skipped where the rung cannot be reached."""
        if not self.commands:
            return
        # Boundaries must be known before a level is kept.
        latest = time.monotonic() + self.machine.left(self.patience)
        while (state := self.session.job())["state"] in ("JOB_STATE_LEARNING", "JOB_STATE_WAITING", None):
            self.block(20)
            if time.monotonic() > latest:
                raise Skipped(f"{self.name}: no rule was found; {state.get('error') or ''}")
        self.follow(self.commands)

    def follow(self, commands):
        """Tells them one after the other, with iterations for each to take effect."""
        for command in commands:
            if command is COUNTERS:
                self.use_counters()
                continue
            self.session.tell(*command)
            time.sleep(0.3)
            self.block(20)

    def use_counters(self):
        before = self.session.stops("counters")
        self.session.tell("level", "auto")
        latest = time.monotonic() + self.machine.left(self.patience)
        while self.session.stops("counters") <= before:
            self.block(20)
            if time.monotonic() > latest:
                raise Skipped(f"{self.name}: no iteration's counters were measured; {self.session.job().get('error') or ''}")

    def block(self, count):
        return self.say(f"{self.verb} {count}")

    def say(self, line):
        """The answer to one line."""
        self.process.stdin.write(line + "\n")
        return json.loads(self.line())

    def end(self):
        """Ends the program by its own means; its status, None when it does not end."""
        try:
            self.process.stdin.write("end\n")
            self.process.stdin.close()
        except OSError:
            pass  # it has ended before
        return self.status()

    def status(self, seconds=20):
        try:
            return self.process.wait(timeout=self.machine.left(seconds))
        except subprocess.TimeoutExpired:
            return None

    def close(self):
        if not self.process.stdin.closed:
            self.end()
        self.machine.programs.end(self.process)
        if self.session:
            self.session.__exit__()
