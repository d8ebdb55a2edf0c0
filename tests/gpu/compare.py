"""Lays what the profiler found beside a script's own log. Pure; standard library only.

A log row is a dict: phase ("" in training), lengths (tuple), begin_ns, forward_ns, backward_ns,
step_ns (CPU times of CLOCK_REALTIME at which each begins) and duration_ns. An iteration is one of `seqpoint iterations --json`.
"""
import bisect
import collections
import csv
import json
import statistics

FIRST_EXACT = 30  # boundaries of the first iterations are recovered later; they are judged apart


def read_log(path):
    """A log of tests/gpu/torch."""
    rows = []
    with open(path, encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            rows.append({"phase": row["phase"],
                         "lengths": tuple(int(row[k]) for k in sorted(row) if k.startswith("length")),
                         "begin_ns": int(row["begin_ns"]), "forward_ns": int(row["forward_ns"]),
                         "backward_ns": int(row["backward_ns"]), "step_ns": int(row["step_ns"]), "duration_ns": float(row["duration_ms"]) * 1e6})
    return rows


def read_truth(path):
    """The truth file of seqpoint_workload. It has no stamps of the backward pass and the step: 0."""
    rows = []
    with open(path, encoding="utf-8") as file:
        for line in file:
            one = json.loads(line)
            if one["kind"] not in ("iteration", "evaluation"):
                continue
            rows.append({"phase": "" if one["kind"] == "iteration" else "evaluation",
                         "lengths": tuple(one.get("lengths", [])), "begin_ns": one.get("begin", {}).get("host_ns", 0),
                         "forward_ns": one.get("first_forward", {}).get("host_ns", 0), "backward_ns": 0, "step_ns": 0,
                         "duration_ns": float(one["gpu_time_ns"])})
    return rows


def _share(count, of):
    return count / of if of else None


def boundaries(log, found):
    """Shares of true training iterations with exactly one boundary where it belongs.

    exact: between the iteration's first call and its first forward call. near: between the beginning
    of the optimiser's step before it and that of the backward pass; the adapter, which is told of
    steps and of calls of the root module, finds it there. Both apart for the first 30. Also which
    stamp belongs to which iteration."""
    stamps = sorted(int(i["boundary_ns"]) for i in found if not i.get("phase"))
    train = [row for row in log if not row["phase"]]
    exact, near = [], []
    matched = {}

    def inside(low, high):
        return bisect.bisect_right(stamps, high) - bisect.bisect_left(stamps, low)
    for index, row in enumerate(train):
        before = train[index - 1]["step_ns"] if index > 0 else 0
        low = before or row["begin_ns"]
        high = row["backward_ns"] or row["forward_ns"]
        exact.append(inside(row["begin_ns"], row["forward_ns"]) == 1)
        near.append(inside(low if index > 0 else 0, high) == 1)
        if near[-1]:
            matched[stamps[bisect.bisect_right(stamps, high) - 1]] = index
    return {"true": len(train), "found": len(stamps),
            "exact_share": _share(sum(exact[FIRST_EXACT:]), len(exact[FIRST_EXACT:])),
            "near_share": _share(sum(near[FIRST_EXACT:]), len(near[FIRST_EXACT:])),
            "first_exact_share": _share(sum(exact[:FIRST_EXACT]), len(exact[:FIRST_EXACT])),
            "first_near_share": _share(sum(near[:FIRST_EXACT]), len(near[:FIRST_EXACT]))}, matched


def lengths(log, found, matched):
    """What the found length has to do with the true ones, over matched iterations.

    follows: of iterations with equal true lengths, each and the one before it, the share whose found
    values are equal, too. tells: share whose true lengths are those that the found value usually
    has; less where one of two lengths is enough to explain the time. is: share whose found values
    are all among the true lengths."""
    train = [row for row in log if not row["phase"]]
    pairs = []
    for one in found:
        if not one.get("phase") and int(one["boundary_ns"]) in matched and one.get("lengths"):
            pairs.append((train[matched[int(one["boundary_ns"])]]["lengths"], tuple(int(v) for v in one["lengths"])))
    if not pairs:
        return {"matched": 0}
    last, same, again = {}, 0, 0
    truths = collections.defaultdict(collections.Counter)
    for true, value in pairs:
        if true in last:
            again += 1
            same += last[true] == value
        last[true] = value
        truths[value][true] += 1
    return {"matched": len(pairs), "follows_share": same / again if again else None,
            "tells_share": sum(c.most_common(1)[0][1] for c in truths.values()) / len(pairs),
            "is_share": sum(set(value) <= set(true) for true, value in pairs) / len(pairs)}


def undisturbed_total(log, found, matched):
    """The log's total of training time, in which iterations that a measurement disturbed, and the
    first ones of each measured run, take what others of about their length take."""
    train = [row for row in log if not row["phase"]]
    distorted = {matched[int(i["boundary_ns"])] for i in found
                 if i.get("distorted") and int(i["boundary_ns"]) in matched}
    normal = sorted((sum(row["lengths"]), row["duration_ns"]) for index, row in enumerate(train)
                    if index not in distorted)
    if len(normal) < 16:
        return sum(row["duration_ns"] for row in train), len(distorted)
    keys = [key for key, _ in normal]
    total = 0.0
    for index, row in enumerate(train):
        if index not in distorted:
            total += row["duration_ns"]
            continue
        at = bisect.bisect_left(keys, sum(row["lengths"]))
        near = normal[max(0, at - 4):at + 4]
        total += statistics.median(ns for _, ns in near)
    return total, len(distorted)


def times(log, found, matched):
    """Per-iteration times: ours against the log's, matched ones that were not disturbed."""
    train = [row for row in log if not row["phase"]]
    ratios, ours, theirs = [], 0.0, 0.0
    for one in found:
        ns = int(one.get("duration_ns", 0))
        if one.get("phase") or one.get("distorted") or ns <= 0 or int(one["boundary_ns"]) not in matched:
            continue
        true = train[matched[int(one["boundary_ns"])]]["duration_ns"]
        ratios.append(abs(ns / true - 1))
        ours += ns
        theirs += true
    if not ratios:
        return {"matched": 0}
    ratios.sort()
    return {"matched": len(ratios), "sum_error": ours / theirs - 1, "median_error": ratios[len(ratios) // 2],
            "p99_error": ratios[int(0.99 * (len(ratios) - 1))]}


def compare(log, found, asked):
    """`asked`: {fraction: the answer of `seqpoint project`, or None}."""
    edges, matched = boundaries(log, found)
    true_total = sum(row["duration_ns"] for row in log if not row["phase"])
    total, distorted = undisturbed_total(log, found, matched)
    projections = []
    for fraction, one in sorted(asked.items()):
        row = {"asked_at": fraction}
        if one:
            row.update(iterations=one["iterations"], answered_at=one["iterations"] / one["of"], error=one["value"] / total - 1,
                       error_against_log=one["value"] / true_total - 1,
                       half_width=(one["high"] - one["low"]) / 2 / one["value"],
                       covers=one["low"] <= total <= one["high"], basis=one["basis"])
        projections.append(row)
    return {"boundaries": edges, "lengths": lengths(log, found, matched), "times": times(log, found, matched),
            "total_ns": true_total, "total_undisturbed_ns": total, "disturbed": distorted, "projections": projections}


# What the project wants to reach on a GPU: (asked at, greatest error).
PROJECTION_GOALS = {1.0: 0.005, 0.05: 0.01}
# Fewer iterations say nothing of a projection (docs/using/demo.md).
LEAST_ITERATIONS = {1.0: 64, 0.05: 150}


def judge(result):
    """[(figure, value, goal, met or None)]"""
    percent = lambda v, digits=2: "-" if v is None else f"{v * 100:.{digits}f} %"  # noqa: E731
    edges, feature = result["boundaries"], result["lengths"]
    rows = [("iterations (true, found)", f"{edges['true']}, {edges['found']}", "equal, but for the last",
             abs(edges["true"] - edges["found"]) <= 1)]
    for key, what in (("near_share", "boundary between optimiser and backward, from iteration 31 on"),
                      ("exact_share", "boundary between first call and forward, from iteration 31 on"),
                      ("first_near_share", "between optimiser and backward, iterations 1 to 30")):
        # The last iteration may lack its end.
        goal = key == "near_share"
        rows.append((what, percent(edges[key]), "100 %" if goal else "-",
                     None if not goal or edges[key] is None else edges[key] >= 1 - 1.5 / max(edges["true"] - 30, 1)))
    if feature["matched"]:
        follows = feature["follows_share"]
        rows.append(("found length is one where the true one is", percent(follows), "100 %",
                     None if follows is None else follows > 0.999))
        rows.append(("found length tells all true ones", percent(feature["tells_share"]), "-", None))
        rows.append(("found length is a true one", percent(feature["is_share"]), "-", None))
    if result["times"]["matched"]:
        rows.append(("sum of iteration times against the log", percent(result["times"]["sum_error"], 3), "-", None))
        rows.append(("one iteration's time, median difference", percent(result["times"]["median_error"], 3), "-", None))
    for one in result["projections"]:
        none = "-"
        what = f"epoch time asked at {one['asked_at'] * 100:.0f} %"
        goal = PROJECTION_GOALS.get(one["asked_at"])
        if goal and one.get("iterations", 0) < LEAST_ITERATIONS[one["asked_at"]]:
            goal, none = None, "- (too few iterations yet)"
        if "error" not in one:
            rows.append((what, "no answer", f"within {goal * 100:.1f} %" if goal else none, False if goal else None))
            continue
        rows.append((what, f"{one['error'] * 100:+.3f} % (±{one['half_width'] * 100:.2f} %, "
                     f"{'covers' if one['covers'] else 'misses'})", f"within {goal * 100:.1f} %" if goal else none,
                     abs(one["error"]) <= goal if goal else None))
    return rows
