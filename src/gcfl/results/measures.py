"""The result of a run, from its records alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any


def total_cost(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Samples, steps, bytes and seconds over all rounds. `cpu` is select + train + aggregate:
    evaluation is not the method's.
    """
    samples: Counter[str] = Counter()
    traffic: dict[str, Counter[str]] = {"down": Counter(), "up": Counter()}
    cpu: Counter[str] = Counter()
    for record in records:
        samples.update(record["samples"])
        for direction, per_name in record["bytes"].items():
            traffic[direction].update(per_name)
        cpu.update(
            {kind: clocks["cpu"] for kind, clocks in record["time"].items() if "cpu" in clocks}
        )
    return {
        "samples": dict(samples),
        "steps": sum(record["steps"] for record in records),
        "bytes": {direction: dict(per_name) for direction, per_name in traffic.items()},
        "cpu_seconds": dict(cpu),
        "cpu": sum(cpu[kind] for kind in ("select", "train", "aggregate")),
        "wall": sum(record["time"]["round"]["wall"] for record in records),
    }


def keeps(settings: Mapping[str, Any]) -> str:
    """last or best, by a run's settings; a model that is fine-tuned at the end is scored in the
    last round.
    """
    clean = settings.get("clean", {})
    return "last" if clean.get("fine_tune") == "end" else str(clean.get("keep", "last"))


def kept(records: Sequence[Mapping[str, Any]], keep: str = "last") -> Mapping[str, Any]:
    """The record of the model that the run leaves: the last one evaluated, or that with the lowest
    loss on what was held out.
    """
    scored = [record for record in records if record["accuracy"] is not None]
    if keep == "best":
        scored = [record for record in scored if record["validation_loss"] is not None] or scored
        return min(scored, key=lambda record: record["validation_loss"] or 0.0)
    return scored[-1]


def summarise(records: Sequence[Mapping[str, Any]], keep: str = "last") -> dict[str, Any]:
    """Final and best accuracy, the last clean share, what was left out, and the cost."""
    scored = [record for record in records if record["accuracy"] is not None]
    final = kept(records, keep)
    best = max(scored, key=lambda record: record["accuracy"])
    return {
        "rounds": len(records),
        "kept_round": final["round"],
        "accuracy": final["accuracy"],
        "loss": final["loss"],
        "best_accuracy": best["accuracy"],
        "best_round": best["round"],
        "clean_share": records[-1]["coreset"]["clean_share"],
        "left_out": sum(len(record["left_out"]) for record in records),
        "cost": total_cost(records),
    }
