"""What a run comes to: its final accuracy, its best, what it cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from gcfl.base.record import RoundRecord

KINDS = ("select", "train", "aggregate", "evaluate")
METHOD_KINDS = KINDS[:3]  # evaluation is not the method's


def total_cost(records: Sequence[RoundRecord]) -> dict[str, Any]:
    """Samples, steps, bytes and seconds over all rounds. `cpu` is select + train + aggregate:
    evaluation is not the method's.
    """
    traffic: dict[str, Counter[str]] = {"down": Counter(), "up": Counter()}
    for record in records:
        traffic["down"].update(record.bytes.down)
        traffic["up"].update(record.bytes.up)
    cpu = {kind: sum(getattr(record.time, kind).cpu for record in records) for kind in KINDS}
    return {
        "samples": {
            "forward": sum(record.samples.forward for record in records),
            "backward": sum(record.samples.backward for record in records),
        },
        "steps": sum(record.steps for record in records),
        "bytes": {direction: dict(names) for direction, names in traffic.items()},
        "cpu_seconds": cpu,
        "cpu": sum(cpu[kind] for kind in METHOD_KINDS),
        "wall": sum(record.time.round.wall for record in records),
    }


def keeps(settings: Mapping[str, Any]) -> str:
    """last or best, by a run's settings; fine-tuned at the end, it is the last round."""
    clean = settings.get("clean", {})
    return "last" if clean.get("fine_tune") == "end" else str(clean.get("keep", "last"))


def kept(records: Sequence[RoundRecord], keep: str = "last") -> RoundRecord | None:
    """The record of the model that the run leaves: the last one evaluated, or that with the lowest
    loss on what was held out; None where no round was evaluated.
    """
    scored = [record for record in records if record.accuracy is not None]
    judged = [(record.validation_loss, record) for record in scored]
    losses = [(loss, record) for loss, record in judged if loss is not None]
    if keep == "best" and losses:
        return min(losses, key=lambda pair: pair[0])[1]
    return scored[-1] if scored else None


def summarise(records: Sequence[RoundRecord], keep: str = "last") -> dict[str, Any]:
    """Final and best accuracy, the last clean share, what was left out, and the cost."""
    final = kept(records, keep)
    if final is None:
        return {"rounds": len(records), "cost": total_cost(records)}
    best = max(records, key=lambda record: -1.0 if record.accuracy is None else record.accuracy)
    return {
        "rounds": len(records),
        "kept_round": final.round,
        "accuracy": final.accuracy,
        "loss": final.loss,
        "best_accuracy": best.accuracy,
        "best_round": best.round,
        "clean_share": records[-1].coreset.clean_share,
        "left_out": sum(len(record.left_out) for record in records),
        "cost": total_cost(records),
    }
