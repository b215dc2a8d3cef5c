#!/usr/bin/env python3
"""Draws one training step of a trace as an SVG picture: tools/trace-picture.py TRACE.json[.gz] OUT.svg

The trace is what `engine-train --trace` writes. The step is the one of median length. Needs Python
alone; for zooming, open the trace itself in Perfetto or chrome://tracing.
"""
import gzip
import html
import json
import sys

WIDTH, ROW, LEFT, TOP = 1160, 26, 10, 64
COLOURS = {"data": "#9aa0a6", "forward": "#4e79a7", "loss": "#b07aa1", "backward": "#e15759", "optimizer": "#59a14f",
           "copy": "#76b7b2", "other": "#bab0ac"}


def read_trace(path):
    opener = gzip.open if path.endswith(".gz") else open
    with opener(path, "rt") as file:
        return [event for event in json.load(file)["traceEvents"] if event["ph"] == "X"]


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: tools/trace-picture.py TRACE.json[.gz] OUT.svg")
    events = read_trace(sys.argv[1])
    steps = sorted((e for e in events if e["args"].get("profiled")), key=lambda e: e["dur"])
    if not steps:
        sys.exit(f"trace-picture: {sys.argv[1]} has no profiled step")
    step = steps[len(steps) // 2]
    begin, length = step["ts"], step["dur"]
    inside = [e for e in events if e["tid"] == 2 and begin <= e["ts"] and e["ts"] + e["dur"] <= begin + length]

    # An event lies in the first row below every event that contains it.
    rows, placed = [], []
    for event in sorted(inside, key=lambda e: (e["ts"], -e["dur"])):
        depth = sum(1 for other in placed if other["ts"] <= event["ts"] and event["ts"] + event["dur"] <= other["ts"] + other["dur"])
        placed.append(event)
        rows.append((depth, event))
    height = TOP + (max(depth for depth, _ in rows) + 1) * ROW + 34
    scale = (WIDTH - 2 * LEFT) / length
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="11">',
           f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
           f'<text x="{LEFT}" y="20" font-size="14">{html.escape(step["name"])}: {length / 1000:.3f} ms</text>']
    x = LEFT
    for phase in [p for p in COLOURS if any(e["cat"].split(",")[0] == p for _, e in rows)]:
        out.append(f'<rect x="{x}" y="32" width="12" height="12" fill="{COLOURS[phase]}"/><text x="{x + 16}" y="42">{phase}</text>')
        x += 90
    for depth, event in rows:
        left, width = LEFT + (event["ts"] - begin) * scale, max(event["dur"] * scale, 0.5)
        top = TOP + depth * ROW
        colour = COLOURS.get(event["cat"].split(",")[0], COLOURS["other"])
        module = event["args"].get("module", "")
        title = f'{event["name"]} {module}: {event["dur"]:.1f} us'
        out.append(f'<rect x="{left:.2f}" y="{top}" width="{width:.2f}" height="{ROW - 4}" fill="{colour}" stroke="white" '
                   f'stroke-width="0.4"><title>{html.escape(title)}</title></rect>')
        label = f'{event["name"]} {module}' if width > 6.9 * (len(event["name"]) + len(module)) + 6 else event["name"]
        if width > 6.9 * len(label):
            out.append(f'<text x="{left + 3:.2f}" y="{top + 15}" fill="white">{html.escape(label)}</text>')
    axis = height - 20
    ticks = 8
    for i in range(ticks + 1):
        x = LEFT + (WIDTH - 2 * LEFT) * i / ticks
        anchor = "start" if i == 0 else "end" if i == ticks else "middle"
        out.append(f'<text x="{x:.1f}" y="{axis + 12}" text-anchor="{anchor}" fill="#555">{length * i / ticks / 1000:.2f} ms</text>')
    out.append("</svg>")
    with open(sys.argv[2], "w") as file:
        file.write("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
