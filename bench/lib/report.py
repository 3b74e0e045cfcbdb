"""Writes what was measured: results.json with every figure, results.md with the medians, results.svg with the floods."""

import html
import json
import pathlib
import statistics

from .targets import Ratio


def medians(runs: list[dict]) -> dict[str, dict[str, float]]:
    """By measurement and figure, over all turns."""
    found: dict[str, dict[str, list[float]]] = {}
    for run in runs:
        for figure, value in run["figures"].items():
            found.setdefault(run["name"], {}).setdefault(figure, []).append(value)
    return {name: {figure: statistics.median(values) for figure, values in figures.items()} for name, figures in found.items()}


def shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def table(machine: dict, runs: list[dict], ratios: list[Ratio]) -> str:
    lines = [f"Measured on {machine['cpu']}, {machine['cores']} cores shared by everything, {machine['memory_mib']} MiB, "
             f"Linux {machine['kernel']}, {machine['postgresql']}; fsync and synchronous_commit on; load before: {machine['load_before']}.", "",
             "Medians, and in brackets the lowest and the highest. Stolen: the most that the host took of this machine's time meanwhile.", "",
             "| what | figures | runs | stolen |", "|---|---|---|---|"]
    for name, figures in medians(runs).items():
        mine = [run for run in runs if run["name"] == name]
        cells = []
        for figure, value in figures.items():
            values = [run["figures"][figure] for run in mine]
            spread = f" ({shown(min(values))}–{shown(max(values))})" if len(values) > 1 else ""
            cells.append(f"{shown(value)} {figure}{spread}")
        lines.append(f"| {name} | {', '.join(cells)} | {len(mine)} | {max(run['stolen'] for run in mine):.0%} |")
    lines += ["", "| ratio of medians | measured | target | |", "|---|---|---|---|"]
    lines += [f"| {ratio.what} | {ratio.value:.2f} | {'≥' if ratio.at_least else '≤'} {ratio.target:g} | {'met' if ratio.met() else '**missed**'} |"
              for ratio in ratios]
    return "\n".join(lines) + "\n"


def plot(runs: list[dict]) -> str:
    """Bars of the medians of rounds/s, the lowest and highest as a line across, with no library at all."""
    bars = [(name, figures["rounds/s"], [run["figures"]["rounds/s"] for run in runs if run["name"] == name])
            for name, figures in medians(runs).items() if "rounds/s" in figures and "p50 ms" not in figures]
    left, width, row = 360, 520, 26
    height = row * len(bars) + 40
    scale = width / max((max(values) for *_, values in bars), default=1)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 90}" height="{height}" font-family="sans-serif" font-size="13">',
             f'<rect width="{left + width + 90}" height="{height}" fill="white"/>',
             '<text x="10" y="20" font-weight="bold">rounds/s (median; line: lowest to highest)</text>']
    for number, (name, value, values) in enumerate(bars):
        y = 32 + row * number
        colour = "#2a6f97" if name.startswith("quorate") else "#a0a0a0"
        parts += [f'<text x="{left - 8}" y="{y + 15}" text-anchor="end">{html.escape(name)}</text>',
                  f'<rect x="{left}" y="{y}" width="{value * scale:.1f}" height="{row - 6}" fill="{colour}"/>',
                  f'<line x1="{left + min(values) * scale:.1f}" x2="{left + max(values) * scale:.1f}" y1="{y + 10}" y2="{y + 10}" stroke="black"/>',
                  f'<text x="{left + max(values) * scale + 6:.1f}" y="{y + 15}">{shown(value)}</text>']
    return "\n".join([*parts, "</svg>"]) + "\n"


def write(folder: pathlib.Path, machine: dict, runs: list[dict], ratios: list[Ratio]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    kept = {"machine": machine, "runs": runs, "medians": medians(runs),
            "ratios": [{"what": r.what, "value": r.value, "target": r.target, "at_least": r.at_least, "met": r.met()} for r in ratios]}
    (folder / "results.json").write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
    (folder / "results.md").write_text(table(machine, runs, ratios))
    (folder / "results.svg").write_text(plot(runs))
