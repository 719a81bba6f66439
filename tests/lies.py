"""Answers that no honest client gives, each with what the server says of it."""

from __future__ import annotations

import math
from dataclasses import replace

import torch

LIAR = 3
WEIGHT = "1.weight"
# A method whose clients send something for every part.
METHOD = {"method": "scaffold+gcfl", "train": {"loss": "corrected"}, "cohort": 1.0}


def _delta(change):
    return lambda update: replace(update, delta=change(dict(update.delta)))


def _weight(change):
    return _delta(lambda delta: {**delta, WEIGHT: change(delta[WEIGHT].clone())})


def _value(value):
    def change(tensor):
        tensor[0, 0] = value
        return tensor

    return _weight(change)


def _examples(value):
    return lambda update: replace(update, examples=value)


def _metrics(**values):
    return lambda update: replace(update, metrics={**update.metrics, **values})


def _part(part, **tensors):
    return lambda update: replace(
        update, payload={**update.payload, part: {**update.payload[part], **tensors}}
    )


def _without(part, name):
    def lie(update):
        tree = {key: one for key, one in update.payload[part].items() if key != name}
        return replace(update, payload={**update.payload, part: tree})

    return lie


def _payload(change):
    return lambda update: replace(update, payload=change(dict(update.payload)))


def _drop(tree, name):
    return {key: one for key, one in tree.items() if key != name}


def _to(dtype):
    return _weight(lambda tensor: tensor.to(dtype))


DTYPES = ("float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool", "complex64")
NUMBERS = ("forward", "backward", "steps", "select_cpu", "select_wall", "train_cpu", "train_wall")
TYPE, NAN, CANNOT = "is of type", "NaN or infinite", "which cannot be"
TENSORS, TRAINED, MUST = "does not have the model's tensors", "says that it trained on", "it must"
RANGE = "out of range"
LIES = {
    **{f"delta {kind}": (_to(getattr(torch, kind)), TYPE) for kind in DTYPES},
    "delta complex NaN": (_weight(lambda one: one * complex(math.nan, 1)), TYPE),
    **{f"delta {one}": (_value(one), NAN) for one in (math.nan, math.inf, -math.inf)},
    "delta of zeros and NaN": (_weight(lambda one: one * math.nan), NAN),
    "delta scalar": (_weight(lambda one: one.sum()), "has shape"),
    "delta transposed": (_weight(lambda one: one.T.contiguous()), "has shape"),
    "delta one row": (_weight(lambda one: one[:1]), "has shape"),
    "delta one more dimension": (_weight(lambda one: one[None]), "has shape"),
    "delta empty": (_weight(lambda one: one[:0]), "has shape"),
    "delta without a tensor": (_delta(lambda one: _drop(one, WEIGHT)), TENSORS),
    "delta with one more": (_delta(lambda one: {**one, "x": torch.zeros(2)}), TENSORS),
    "delta renamed": (_delta(lambda one: {f"a{name}": t for name, t in one.items()}), TENSORS),
    "no delta": (_delta(lambda _: {}), TENSORS),
    "delta None": (_delta(lambda _: None), "something else than tensors"),
    "delta of lists": (_delta(lambda one: {**one, WEIGHT: [1.0]}), "something else than tensors"),
    "delta of arrays": (
        _delta(lambda one: {**one, WEIGHT: one[WEIGHT].numpy()}),
        "something else than tensors",
    ),
    **{
        f"examples {one!r}": (_examples(one), TRAINED)
        for one in (0, -1, 10**30, -(10**30), 10**15, True, 3.5, math.nan, "many", None)
    },
    "examples 10^5000": (_examples(10**5000), TRAINED),
    "examples one too many": (
        lambda update: replace(update, examples=61),
        "61 samples, but that it holds",
    ),
    "no metrics": (lambda update: replace(update, metrics={}), "its numbers are not"),
    "metrics None": (lambda update: replace(update, metrics=None), "its numbers are not"),
    "one metric more": (_metrics(luck=1.0), "its numbers are not"),
    "one metric less": (
        lambda update: replace(update, metrics=_drop(update.metrics, "steps")),
        "its numbers are not",
    ),
    **{f"{name} NaN": (_metrics(**{name: math.nan}), CANNOT) for name in ("loss", *NUMBERS)},
    **{f"{name} -1e18": (_metrics(**{name: -1e18}), CANNOT) for name in ("loss", *NUMBERS)},
    **{f"{name} 1e18": (_metrics(**{name: 1e18}), CANNOT) for name in ("loss", *NUMBERS)},
    "loss inf": (_metrics(loss=math.inf), CANNOT),
    "loss text": (_metrics(loss="low"), CANNOT),
    "steps None": (_metrics(steps=None), CANNOT),
    "steps true": (_metrics(steps=True), CANNOT),
    "payload None": (lambda update: replace(update, payload=None), "cannot be read"),
    "no payload": (_payload(lambda _: {}), MUST),
    **{
        f"no {part}": (_payload(lambda sent, part=part: _drop(sent, part)), MUST)
        for part in ("select", "local", "labels")
    },
    **{
        f"empty {part}": (_payload(lambda sent, part=part: {**sent, part: {}}), MUST)
        for part in ("select", "local", "labels")
    },
    "one part more": (
        _payload(lambda sent: {**sent, "server": {"x": torch.zeros(2)}}),
        "no part of the method asks for",
    ),
    **{
        f"an empty part {name!r:.9}": (
            _payload(lambda sent, name=name: {**sent, name: {}}),
            "no part of the method asks for",
        )
        for name in ("\x1b[31m\nforged", "x" * 10_000)
    },
    "one tensor more": (_part("select", extra=torch.zeros(2)), MUST),
    "selected in the future": (_part("select", round=torch.tensor(7)), RANGE),
    "selected before time": (_part("select", round=torch.tensor(-2)), RANGE),
    "selected at no whole round": (_part("select", round=torch.tensor(0.5)), TYPE),
    "selected in two rounds": (_part("select", round=torch.tensor([0, 0])), "has shape"),
    "control variate NaN": (_part("local", **{WEIGHT: torch.full((16, 64), math.nan)}), NAN),
    "control variate float64": (
        _part("local", **{WEIGHT: torch.zeros(16, 64, dtype=torch.float64)}),
        TYPE,
    ),
    "control variate of another shape": (
        _part("local", **{WEIGHT: torch.zeros(2, 2)}),
        "has shape",
    ),
    "control variate less": (_without("local", WEIGHT), MUST),
    **{
        f"rate {one}": (_part("labels", rate=torch.tensor(one, dtype=torch.float64)), reason)
        for one, reason in ((1.5, RANGE), (-0.1, RANGE), (math.nan, NAN), (math.inf, RANGE))
    },
    "rate float32": (_part("labels", rate=torch.tensor(0.5)), TYPE),
    "no rate": (_without("labels", "rate"), MUST),
    **{f"size {one}": (_part("labels", size=torch.tensor(one)), RANGE) for one in (-1, 61, 10**15)},
    "size float": (_part("labels", size=torch.tensor(5.0)), TYPE),
    "judged in the future": (_part("labels", round=torch.tensor(1)), RANGE),
}
