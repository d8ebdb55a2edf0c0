"""The results folder: a JSON file per part, report.md, details.tar.gz. Standard library only."""
import datetime
import io
import json
import os
import tarfile

VERSION = 1
DETAILS_BYTES = 12 << 20  # of all logs and traces before they are compressed, per call


class Part:
    """One part's results, in DIR/<letter>.json; written after every step."""

    def __init__(self, folder, letter, title):
        self.path = os.path.join(folder, f"{letter}.json")
        self.data = {"version": VERSION, "part": letter, "title": title, "machine": {}, "steps": {}}
        if os.path.exists(self.path):
            with open(self.path, encoding="utf-8") as file:
                kept = json.load(file)
            if kept.get("version") == VERSION:
                self.data = kept

    def finished(self, step):
        """Skipped steps are asked again: the machine may have what they need by now."""
        return self.data["steps"].get(step, {}).get("status") == "done"

    def forget(self, steps):
        for step in steps:
            self.data["steps"].pop(step, None)

    def record(self, step, status, seconds, result=None, error=None):
        entry = {"status": status, "seconds": round(seconds, 2),
                 "finished": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")}
        if result is not None:
            entry["result"] = result
        if error is not None:
            entry["error"] = error
        self.data["steps"][step] = entry
        self.save()

    def save(self):
        temporary = self.path + ".new"
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump(self.data, file, indent=1, sort_keys=False)
        os.replace(temporary, self.path)


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
                lines += [f"**{entry['status']}** ({entry['finished']})", "", "    " +
                          entry.get("error", "").replace("\n", "\n    ")]
                continue
            result = entry["result"]
            lines += [f"* {sentence}" for sentence in result.get("summary", [])]
            for table in result.get("tables", []):
                lines += ["", *_table(table)]
            if "markdown" in result:  # another program's own tables
                lines += ["", *result["markdown"].strip().splitlines()]
            lines += ["", f"({entry['seconds']:.1f} s, {entry['finished']})"]
    return "\n".join(lines) + "\n"


def open_details(folder, work):
    """Unpacks what an earlier call kept, so that this call's details join it."""
    path = os.path.join(folder, "details.tar.gz")
    if os.path.exists(path):
        safe = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # newer Pythons ask for it
        with tarfile.open(path) as archive:
            for member in archive.getmembers():
                if member.isfile() and not member.name.startswith("/") and ".." not in member.name:
                    archive.extract(member, work, **safe)


def close_details(folder, work):
    """Keeps logs, CSVs and traces, the smallest first, up to DETAILS_BYTES; says what was left out."""
    files = []
    for root, folders, names in os.walk(work):
        folders[:] = [f for f in folders if f not in ("run", "state", "__pycache__")]
        for name in names:
            path = os.path.join(root, name)
            if os.path.isfile(path) and not os.path.islink(path):
                files.append((os.path.getsize(path), path))
    total, left_out = 0, []
    path = os.path.join(folder, "details.tar.gz")
    with tarfile.open(path + ".new", "w:gz", compresslevel=6) as archive:
        for size, name in sorted(files):
            if total + size > DETAILS_BYTES:
                left_out.append(f"{os.path.relpath(name, work)} ({size} bytes)")
                continue
            total += size
            archive.add(name, os.path.relpath(name, work))
        if left_out:
            text = ("left out, the archive would be too large:\n" + "\n".join(left_out) + "\n").encode()
            info = tarfile.TarInfo("LEFT_OUT")
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text))
    os.replace(path + ".new", path)
