"""The results folder: a JSON file per part, report.md, details.tar.gz. Standard library only."""
import datetime
import io
import json
import math
import os
import shutil
import tarfile

VERSION = 1
DETAILS_BYTES = 12 << 20  # of all logs and traces before they are compressed, per call


def write_whole(path, data):
    """All of it or what was there before, whenever this program is ended."""
    with open(path + ".new", "wb") as file:
        file.write(data)
    os.replace(path + ".new", path)


def _plain(value):
    """JSON has no numbers that are none."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return value


class Part:
    """One part's results, in DIR/<letter>.json; written after every step."""

    def __init__(self, folder, letter, title):
        self.path = os.path.join(folder, f"{letter}.json")
        self.unreadable = None  # why what lies there is not used
        self.data = {"version": VERSION, "part": letter, "title": title, "machine": {}, "steps": {}}
        if not os.path.exists(self.path):
            return
        try:
            with open(self.path, encoding="utf-8") as file:
                kept = json.load(file)
            if not all(isinstance(entry, dict) and "status" in entry for entry in kept["steps"].values()):
                raise ValueError("a step has no status")
        except (ValueError, KeyError, AttributeError, TypeError) as reason:
            self.unreadable = f"{type(reason).__name__}: {reason}"
            return
        if kept.get("version") == VERSION:
            self.data = kept
        else:
            self.unreadable = f"version {kept.get('version')}, and this is {VERSION}"

    def finished(self, step):
        """Skipped steps are asked again: the machine may have what they need by now."""
        return self.data["steps"].get(step, {}).get("status") == "done"

    def record(self, step, status, seconds, result=None, error=None):
        """A step that is done stays done: another try that fails is noted beside its result."""
        entry = {"status": status, "seconds": round(seconds, 2),
                 "finished": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")}
        if result is not None:
            entry["result"] = result
        if error is not None:
            entry["error"] = error
        if status != "done" and self.finished(step):
            self.data["steps"][step]["later_try"] = entry
        else:
            self.data["steps"][step] = entry
        self.save()

    def save(self):
        text = json.dumps(_plain(self.data), indent=1, default=str, allow_nan=False)
        write_whole(self.path, text.encode())


def _text(value):
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e5 else f"{value:.0f}"
    if isinstance(value, (list, dict)):
        return json.dumps(value)
    return str(value).replace("|", "\\|").replace("\n", " ")


def _table(table):
    lines = ["| " + " | ".join(table["columns"]) + " |", "|" + "---|" * len(table["columns"])]
    lines += ["| " + " | ".join(_text(cell) for cell in row) + " |" for row in table["rows"]]
    return lines


def markdown(parts, steps_of):
    """The report. `steps_of`: letter -> all step names of the part, in order."""
    lines = ["# Measured on a GPU", ""]
    machines = []
    for part in parts:
        machine = part.data["machine"]
        if machine and machine not in machines:
            machines.append(machine)
    for machine in machines:
        lines.append("* " + ", ".join(f"{k}: {_text(v)}" for k, v in machine.items()))
    if any(machine.get("software_gpu") for machine in machines):
        lines += ["", "**On the software GPU: this tries the measuring programs and says nothing of a GPU.**"]
    for part in parts:
        lines += ["", f"## {part.data['part']}. {part.data['title']}"]
        for name in steps_of[part.data["part"]]:
            entry = part.data["steps"].get(name)
            lines += ["", f"### {name}", ""]
            if entry is None:
                lines.append("not measured")
                continue
            if entry["status"] != "done":
                lines += [f"**{entry['status']}** ({entry.get('finished')})", "", "    " +
                          entry.get("error", "").replace("\n", "\n    ")]
                continue
            result = entry.get("result", {})
            if "later_try" in entry:
                later = entry["later_try"]
                lines += [f"**a later try {later['status']}** ({later['finished']}): " + _text(later.get("error", "")), ""]
            lines += [f"* {message}" for message in result.get("summary", [])]
            for table in result.get("tables", []):
                lines += ["", *_table(table)]
            if "markdown" in result:  # another program's own tables
                lines += ["", *result["markdown"].strip().splitlines()]
            lines += ["", f"({entry['seconds']:.1f} s, {entry['finished']})"]
    return "\n".join(lines) + "\n"


class Details:
    """Logs, CSVs and traces of all steps, in DIR/details.tar.gz; packed anew after a step that left some."""

    NAME = "details.tar.gz"
    LEFT_OUT = "LEFT_OUT"

    def __init__(self, folder, work):
        self.path = os.path.join(folder, self.NAME)
        self.work = work
        self.packed = []  # (size, name) of the files in the archive
        self.left_before = []

    def open(self):
        """Unpacks what an earlier call kept, so that this call's details join it. Why not, or None."""
        if not os.path.exists(self.path):
            return None
        safe = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # newer Pythons ask for it
        try:
            with tarfile.open(self.path) as archive:
                for member in archive:
                    if member.name == self.LEFT_OUT:
                        self.left_before = archive.extractfile(member).read().decode(errors="replace").splitlines()[1:]
                    elif member.isfile() and not member.name.startswith("/") and ".." not in member.name:
                        archive.extract(member, self.work, **safe)
        except (OSError, EOFError, tarfile.TarError) as reason:  # what came before it is there
            return f"{type(reason).__name__}: {reason}"
        return None

    def keep(self):
        """The smallest files first, up to DETAILS_BYTES; says what was left out."""
        files = []
        for root, folders, names in os.walk(self.work):
            folders[:] = [f for f in folders if f not in ("run", "state", "__pycache__")]
            for name in names:
                path = os.path.join(root, name)
                if os.path.isfile(path) and not os.path.islink(path):
                    files.append((os.path.getsize(path), os.path.relpath(path, self.work)))
        files.sort()
        if files == self.packed and os.path.exists(self.path):
            return
        total, left_out = 0, []
        buffer = io.BytesIO()  # so that the folder never holds half of it
        with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=3) as archive:
            for size, name in files:
                if total + size > DETAILS_BYTES:
                    left_out.append(f"{name} ({size} bytes)")
                    continue
                total += size
                archive.add(os.path.join(self.work, name), name)
            left_out += [line for line in self.left_before if line not in left_out]
            if left_out:
                text = ("left out, the archive would be too large:\n" + "\n".join(left_out) + "\n").encode()
                info = tarfile.TarInfo(self.LEFT_OUT)
                info.size = len(text)
                archive.addfile(info, io.BytesIO(text))
        write_whole(self.path, buffer.getvalue())
        self.packed = files


def set_aside(path, work):
    """Keeps a file that cannot be read among the details."""
    folder = os.path.join(work, "unreadable")
    os.makedirs(folder, exist_ok=True)
    shutil.copyfile(path, os.path.join(folder, os.path.basename(path)))
