"""Writes what `all.sh` measured into the guide: tables, and a plot of each that one should see at a glance.

    report.py MEASURED.jsonl PAGE.md

Everything between the two comments `measured` of the page is replaced.
"""

import json
import os
import platform
import re
import statistics
import sys
from collections import defaultdict
from xml.sax.saxutils import escape

BEGIN, END = "<!-- measured -->", "<!-- end of what was measured -->"


def main(measured, page):
    with open(measured, encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    for row in rows:
        refused = {status: count for status, count in row.get("statuses", {}).items() if not status.startswith("2")}
        if refused or row.get("errors"):
            sys.exit(f"refusing is quick, and says nothing: {row}")
    parts = [machine(), verification(rows), steps(rows), receiving(rows), sending(rows), side_by_side(rows)]
    with open(page, encoding="utf-8") as file:
        text = file.read()
    between = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.S)
    assert between.search(text), f"{page} has no place for what was measured"
    text = between.sub(lambda _: "\n\n".join([BEGIN, *filter(None, parts), END]), text)
    with open(page, "w", encoding="utf-8") as file:
        file.write(text)


def machine():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        model = re.search(r"model name\s*: (.*)", file.read())
    name = model.group(1) if model else platform.machine()
    return f"Machine: {os.cpu_count()} processors ({name}); load, receiver and database share them."


def verification(rows):
    found = defaultdict(dict)
    for row in rows:
        if row["bench"] == "verify":
            found[row["scheme"], row["bytes"]][row["what"]] = row
    rivals = ["standardwebhooks", "svix", "webhook-verify"]
    lines = [
        "## Verification",
        "",
        "One HMAC or signature of the same bytes, and how many times that a whole verification takes.",
        "",
        table(
            ["scheme", "bytes", "raw", "countersign", *(f"`{rival}`" for rival in rivals)],
            [
                [
                    f"`{scheme}`",
                    f"{size:,}",
                    f"{whats['raw']['nanos']:,.0f} ns",
                    f"**{whats['countersign']['times']:.2f}**",
                    *(f"{whats[rival]['times']:.2f}" if rival in whats else "–" for rival in rivals),
                ]
                for (scheme, size), whats in found.items()
            ],
        ),
    ]
    usual = found.get(("standard", 1024), {})
    if usual:
        bars = [(what, row["nanos"] / 1000, what == "countersign") for what, row in usual.items()]
        lines += ["", plot("One request of 1 KiB under Standard Webhooks, in µs: less is better", bars, "{:.2f}")]
    return "\n".join(lines)


def steps(rows):
    found = [row for row in rows if row["bench"] == "core"]
    body = [[row["what"], f"{row['nanos']:,.0f} ns"] for row in found]
    return "\n".join(["## Steps, in process", "", table(["step", "takes"], body)])


def receiving(rows):
    found = defaultdict(list)
    for row in rows:
        if row["bench"] == "receive":
            name = row["url"].rsplit("/", 1)[1]
            found[name if row["what"] == "first deliveries" else f"{name}, repeats"].append(row)
    rate = {name: median(row["per_second"] for row in some) for name, some in found.items()}
    wait = {name: [median(row["latency_us"][part] / 1000 for row in some) for part in ("p50", "p99")]
            for name, some in found.items()}
    named = {
        "bare": "axum and nothing else",
        "handwritten": "axum, two commits by `sqlx`, SQLite",
        "memory": "**countersign, in memory**",
        "sqlite": "**countersign, SQLite, durable**",
        "postgres": "**countersign, PostgreSQL, durable**",
        "sqlite, repeats": "**the same with a cache, repeats: SQLite**",
        "postgres, repeats": "**the same with a cache, repeats: PostgreSQL**",
    }
    body = [
        [named[name], f"{rate[name]:,.0f}", f"{rate[name] / rate['bare']:.2f}", *(f"{time:.1f} ms" for time in wait[name])]
        for name in named if name in rate
    ]
    commits = [median(row["per_second"] for row in rows if row["bench"] == "pgbench" and row["what"] == f"{clients} clients")
               for clients in (32, 64)]
    if all(commits):
        body.append(["`pgbench`, insert and update with a commit each, 32 · 64 clients", " · ".join(f"{one:,.0f}" for one in commits), "", "", ""])
    bars = [(re.sub(r"[*`]", "", named[name]), rate[name], name not in ("bare", "handwritten")) for name in named if name in rate]
    if all(commits):
        bars.append(("pgbench, two commits, no HTTP", max(commits), False))
    return "\n".join([
        "## Receiving",
        "",
        "Requests of 1 KiB by 64 connections, each with a signature, and an id that is new.",
        "",
        table(["receiver", "requests/s", "of axum", "median", "99 %"], body),
        "",
        plot("Requests per second: more is better", bars, "{:,.0f}"),
    ])


def sending(rows):
    found, latency = defaultdict(list), defaultdict(list)
    for row in rows:
        if row["bench"] == "dispatch" and "per_second" in row:
            found[row["store"], row["what"]].append(row)
        if row["bench"] == "dispatch" and "millis" in row:
            latency[row["store"], row["what"]].append(row)
    body = [
        [f"{what}, {store}", f"{median(row['per_second'] for row in some):,.0f}/s"]
        for (store, what), some in found.items() if "/s and" not in what
    ]
    for (store, what), some in latency.items():
        parts = [f"{median(row['millis'][part] for row in some):.1f}" for part in ("p50", "p99")]
        body.append([f"{what}, {store}: median · 99 %", " · ".join(parts) + " ms"])
    most = defaultdict(list)
    for row in rows:
        if row["bench"] == "dispatch" and row["what"] == "the drain":
            most[row["store"]].append(row["mebibytes"])
    body += [[f"memory of the process at most, {store}", f"{max(some)} MiB"] for store, some in most.items()]
    return "\n".join([
        "## Sending",
        "",
        "Messages of 1 KiB to 20 endpoints, to a sink in the same process; each settlement is durable.",
        "",
        table(["what", "measured"], body),
    ])


def side_by_side(rows):
    found = defaultdict(list)
    for row in rows:
        if row["bench"] == "side by side":
            found[row["what"]].append(row["per_second"])
    if not found:
        return ""
    body = [[count, f"{sum(rates):,.0f}"] for count, rates in found.items()]
    return "\n".join([
        "## Receivers on one PostgreSQL",
        "",
        "The same 64 connections, spread over so many processes.",
        "",
        table(["receivers", "events/s together"], body),
    ])


def median(values):
    values = list(values)
    return statistics.median(values) if values else 0


def table(head, body):
    lines = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def plot(title, bars, form):
    """Bars on one scale, with their numbers: readable without colour, and on a dark page."""
    row, left, width = 22, 290, 400
    most = max(value for _, value, _ in bars)
    height = row * len(bars) + 8
    label = escape(title + ": " + ", ".join(f"{name} {form.format(value)}" for name, value, _ in bars), {'"': "&quot;"})
    lines = [
        f'<figure><figcaption>{escape(title)}</figcaption>',
        f'<svg role="img" aria-label="{label}" viewBox="0 0 {left + width + 80} {height}" width="100%" '
        f'style="max-width:{left + width + 80}px" font-family="sans-serif" font-size="13" fill="currentColor">',
    ]
    for place, (name, value, is_ours) in enumerate(bars):
        top = place * row + 4
        length = max(1, round(value / most * width))
        lines.append(f'<text x="{left - 8}" y="{top + 13}" text-anchor="end">{escape(name)}</text>')
        lines.append(f'<rect x="{left}" y="{top}" width="{length}" height="16" fill="{"#2b6cb0" if is_ours else "#8a8f98"}"/>')
        lines.append(f'<text x="{left + length + 6}" y="{top + 13}">{form.format(value)}</text>')
    return "\n".join([*lines, "</svg></figure>"])


if __name__ == "__main__":
    main(*sys.argv[1:])
