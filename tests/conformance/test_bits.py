"""The bits of short runs, recorded: a change of them is chosen, never accidental.

Every entry of the catalogue, workers, a killed and resumed run, many clients at once, Flower's
messages. What was recorded stands in bits.safetensors, together with torch's version and the
processor. On the same ones models and coresets must be equal to the bit; elsewhere models are
compared to 1e-5, or, where another order of two points changes what is chosen, to 0.02. After a
change that is meant to change them:

    python tests/conformance/test_bits.py
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import torch
from safetensors import safe_open

from helpers import dies_in_round, prepared_from

FILE = Path(__file__).with_name("bits.safetensors")
SMALL = {
    "data": {
        "source": "digits",
        "samples": 200,
        "clients": 5,
        "noise": 0.4,
        "validation": 60,
        "test": 30,
    },
    "model": {"name": "mlp", "hidden": [8]},
    "rounds": 5,
    "cohort": 3,
    "train": {"lr": 0.05},
    "coreset": {"every": 2, "budget": 0.2, "allow_single": True, "score": "correlation"},
}
# Greedy choices among gains that differ by less than processors do.
NEAR_TIES = ("facility",)
CATALOGUE = [
    "gcfl",
    "fedavg",
    "fedprox",
    "scaffold",
    "moon",
    "fedavgm",
    "fedadam",
    "random",
    "facility",
    "crust",
    "craig",
    "glister",
    "gradmatch",
    "small-loss",
    "agreement",
    "skyline",
    "server-only",
    "local-only",
    "centralised",
    "fedavg+finetune",
    "fedavg+warmstart",
    "scaffold+gcfl",
    "moon+random",
    "fedadam+scaffold+gcfl",
]
RUNS: dict[str, dict] = {name: {"method": name} for name in CATALOGUE} | {
    "gcfl, two workers": {"method": "gcfl", "engine": {"workers": 2}},
    "scaffold+gcfl, killed": {"method": "scaffold+gcfl", "engine": {"checkpoint_every": 2}},
    "gcfl, vectorised": {"method": "gcfl", "engine": {"vectorised": True}},
    "scaffold+gcfl, vectorised": {"method": "scaffold+gcfl", "engine": {"vectorised": True}},
    "scaffold+gcfl, grid": {"method": "scaffold+gcfl"},
    "gcfl, distance, weighted": {
        "method": "gcfl",
        "coreset": {"score": "distance", "weighted": True},
    },
    "gcfl, whole, nearest": {"method": "gcfl", "coreset": {"variant": "whole", "score": "nearest"}},
    "gcfl, free weights, equal": {
        "method": "gcfl",
        "coreset": {
            "nonnegative": False,
            "split": "equal",
            "points_per_step": 2,
            "schedule": "paper",
            "every": 3,
        },
    },
    "gcfl, judged": {"method": "gcfl", "server": {"hold_out": 0.3, "keep": "best", "patience": 2}},
    "fedavg, takes part": {
        "method": "fedavg",
        "server": {"takes_part": True, "weighting": "examples", "warm_start": 1},
    },
    "fedavg, tuned": {"method": "fedavg", "server": {"fine_tune": "each"}},
    "moon, projection": {"method": "moon", "model": {"projection": 5}},
    "scaffold, steps": {"method": "scaffold", "train": {"steps": 3, "clip": 1.0, "loss": "gce"}},
    "robust": {"method": "robust"},
    "sift": {"method": "sift"},
    "fedadam+scaffold+robust": {
        "method": "fedadam+scaffold+robust",
        "clean": {"takes_part": False},
    },
    "fedavg, corrected": {"method": "fedavg", "train": {"loss": "corrected"}},
    "robust, vectorised": {"method": "robust", "engine": {"vectorised": True}},
    "elr+random": {"method": "elr+random"},
    "elr+gcfl, killed": {"method": "elr+gcfl", "engine": {"checkpoint_every": 2}},
    "elr, vectorised": {"method": "elr", "engine": {"vectorised": True}},
    "fedlsr": {"method": "fedlsr"},
    "fedlsr, vectorised": {"method": "fedlsr", "engine": {"vectorised": True}},
    "elr, grid": {"method": "elr"},
    "fedavg, mixup": {"method": "fedavg", "train": {"mixup": 0.5}},
    "gcfl, mixup, vectorised": {
        "method": "gcfl",
        "coreset": {"score": "distance", "weighted": True},
        "train": {"mixup": 0.5},
        "engine": {"vectorised": True},
    },
    "gcfl, cosine, pool": {"method": "gcfl", "coreset": {"score": "cosine", "pool": 2.0}},
    "gcfl, cnn": {
        "method": "gcfl",
        "model": {"name": "cnn"},
        "rounds": 2,
        "train": {"augment": "flip+crop", "loss": "sce"},
        "data": {"samples": 120, "clients": 3, "validation": 40, "test": 20},
    },
}
LARGE = 20_000  # numbers of a tensor above which a digest of it is stored, and the first of them


def settings(name: str) -> dict:
    merged = {
        key: dict(value) if isinstance(value, dict) else value for key, value in SMALL.items()
    }
    for key, value in RUNS[name].items():
        merged[key] = {**merged.get(key, {}), **value} if isinstance(value, dict) else value
    return merged


def tensors(path: Path) -> dict[str, np.ndarray]:
    return safetensors.numpy.load(path.read_bytes())


def result(name: str, out: Path) -> dict[str, np.ndarray]:
    """The final model and every coreset of a run, by name."""
    import gcfl

    if name.endswith("killed"):
        dies_in_round(4, lambda: gcfl.run(out=out, **settings(name)))
        folder = gcfl.resume(next(out.iterdir())).folder
    elif name.endswith("grid"):
        return over_grid(settings(name))
    else:
        folder = gcfl.run(out=out, **settings(name)).folder
    found = tensors(folder / "model.safetensors")
    for path in sorted((folder / "coresets").glob("*.safetensors")):
        found |= {f"{path.stem}/{key}": value for key, value in tensors(path).items()}
    return found


def over_grid(config: dict) -> dict[str, np.ndarray]:
    from flwr.supercore.task_identity import TaskIdentity

    from flower_grid import federation, over_grid, rounds

    before = {name: getattr(TaskIdentity, f"_{name}") for name in ("task_id", "run_id", "node_id")}
    for name in before:
        setattr(TaskIdentity, f"_{name}", 1)
    try:
        ready = prepared_from(config)
        state, _ = rounds(ready, over_grid(ready, federation(ready)), config["rounds"])
    finally:
        for name, value in before.items():
            setattr(TaskIdentity, f"_{name}", value)
    return {f"model/{name}": tensor.numpy() for name, tensor in state.model.items()}


def digest(found: dict[str, np.ndarray]) -> str:
    """Of names, types, shapes and bytes."""
    sha = hashlib.sha256()
    for name in sorted(found):
        array = np.ascontiguousarray(found[name])
        sha.update(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes())
    return sha.hexdigest()


def machine() -> dict[str, str]:
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    name = next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
        "unknown",
    )
    keys = ("cpu family", "model\t", "stepping", "flags")
    flags = "".join(sorted({line for line in lines if line.startswith(keys)}))
    return {
        "torch": torch.__version__,
        "capability": torch.backends.cpu.get_cpu_capability(),
        "processor": name,
        # One name stands for several processors, for which BLAS takes different kernels.
        "flags": hashlib.sha256(flags.encode()).hexdigest()[:12],
    }


def recorded() -> tuple[dict, dict[str, np.ndarray]]:
    with safe_open(FILE, "numpy") as file:
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return json.loads(file.metadata()["facts"]), arrays


def record() -> None:
    """All runs anew."""
    digests, arrays = {}, {}
    for name in RUNS:
        with tempfile.TemporaryDirectory() as out:
            found = result(name, Path(out))
        digests[name] = digest(found)
        arrays |= {
            f"{name}/{key}": value.flatten()[:LARGE]
            for key, value in found.items()
            if key.startswith("model/")
        }
        print(f"{digests[name][:12]} {name}")
    facts = json.dumps({"machine": machine(), "digests": digests}, sort_keys=True)
    FILE.write_bytes(safetensors.numpy.save(arrays, metadata={"facts": facts}))


@pytest.mark.parametrize("name", RUNS)
def test_bits_are_those_that_were_recorded(name, tmp_path):
    facts, arrays = recorded()
    if name.endswith("grid"):
        pytest.importorskip("flwr", reason="flwr is not installed: pip install 'gcfl[flower]'")
    found = result(name, tmp_path)
    if facts["machine"] == machine():
        assert digest(found) == facts["digests"][name], (
            "the bits of this run have changed; if that is meant, record them anew"
        )
        return
    print(f"recorded on {facts['machine']}, this is {machine()}: compared to 1e-5")
    models = {key: value for key, value in found.items() if key.startswith("model/")}
    assert models
    near = 0.02 if name in NEAR_TIES else 1e-5
    for key, value in models.items():
        np.testing.assert_allclose(
            value.flatten()[:LARGE], arrays[f"{name}/{key}"], atol=near, rtol=1e-4, err_msg=key
        )


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))
    torch.set_num_threads(1)
    record()
