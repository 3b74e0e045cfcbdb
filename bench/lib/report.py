"""Writes what was measured: results.json with every figure, results.md with the medians and the ratios, and plots."""

import json
import pathlib
import re
import statistics

from . import plot
from .plot import shown
from .targets import Ratio


def medians(runs: list[dict]) -> dict[str, dict[str, float]]:
    """By measurement and figure, over all turns."""
    found: dict[str, dict[str, list[float]]] = {}
    for run in runs:
        for figure, value in run["figures"].items():
            found.setdefault(run["name"], {}).setdefault(figure, []).append(value)
    return {name: {figure: statistics.median(values) for figure, values in figures.items()} for name, figures in found.items()}


def table(machine: dict, runs: list[dict], ratios: list[Ratio]) -> str:
    lines = [f"Measured on {machine['cpu']}, {machine['cores']} cores shared by everything, {machine['memory_mib']} MiB, "
             f"Linux {machine['kernel']}, {machine['postgresql']}; fsync {machine['fsync']}, synchronous_commit {machine['synchronous_commit']}; "
             f"load before: {machine['load_before']}.", "",
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
    lines += ["", "| median of the turns' ratios | measured | target | |", "|---|---|---|---|"]
    lines += [f"| {ratio.what} | {ratio.value:.2f} | {'≥' if ratio.at_least else '≤'} {ratio.target:g} | {'met' if ratio.met() else '**missed**'} |"
              for ratio in ratios]
    return "\n".join(lines) + "\n"


def floods(runs: list[dict]) -> str:
    return plot.bars("rounds/s (median; line: lowest to highest)", [
        (name, figures["rounds/s"], [run["figures"]["rounds/s"] for run in runs if run["name"] == name])
        for name, figures in medians(runs).items() if "rounds/s" in figures and "p50 ms" not in figures])


def latencies(runs: list[dict]) -> str:
    """From submission to wake-up, over the rate."""
    series: dict[str, list[tuple[float, float]]] = {}
    for name, figures in medians(runs).items():
        if found := re.fullmatch(r"quorate at (\d+) % of its flood", name):
            for share in ("p50", "p99", "p99.9"):
                series.setdefault(share, []).append((float(found[1]), figures[f"{share} ms"]))
    return plot.lines("ms from submission to wake-up (medians of the turns)", "% of the flood's rate", series, logarithmic=True)


def write(folder: pathlib.Path, machine: dict, runs: list[dict], ratios: list[Ratio], files: dict[str, str] | None = None) -> None:
    kept = {"machine": machine, "runs": runs, "medians": medians(runs),
            "ratios": [{"what": r.what, "value": r.value, "target": r.target, "at_least": r.at_least, "met": r.met()} for r in ratios]}
    texts = {"results.json": json.dumps(kept, indent=1, ensure_ascii=False) + "\n", "results.md": table(machine, runs, ratios),
             "results.svg": floods(runs), "latency.svg": latencies(runs), **(files or {})}
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(text)
