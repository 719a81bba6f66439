"""A trained model as users want it: raw inputs in, class names out."""

from __future__ import annotations

import copy
import logging
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from gcfl import models
from gcfl.errors import DataError, RunError
from gcfl.fingerprint import architecture
from gcfl.models import ModelOptions
from gcfl.network import Network
from gcfl.prepare import Given, ModelGiven, Prepared
from gcfl.types import Groups, Tree

log = logging.getLogger("gcfl")


class TrainedModel:
    """Weights, architecture, classes and normalisation together."""

    def __init__(
        self, network: Network, tree: Tree, classes: tuple[str | int, ...], shape: tuple[int, ...]
    ) -> None:
        self.network = network
        self.tree = tree
        self.classes = classes
        self.shape = shape

    @property
    def module(self) -> nn.Module:
        """The plain torch module with the trained weights. It expects normalised inputs;
        `network.prepare` makes them.
        """
        module = copy.deepcopy(self.network.module)
        module.load_state_dict(self.tree, strict=False)
        return module.eval()

    def predict_proba(self, x: Any) -> npt.NDArray[np.float32]:
        """(n, C) probabilities for raw inputs x (n, ...), in the order of `classes`."""
        try:
            array = np.asarray(x.detach().cpu() if isinstance(x, torch.Tensor) else x)
        except ValueError as error:
            raise DataError(f"x is not a regular array ({error})") from None
        if array.shape[1:] != self.shape or array.ndim != len(self.shape) + 1:
            raise DataError(
                f"x must be (n, {', '.join(map(str, self.shape))}), got shape {array.shape}"
            )
        if array.dtype.kind not in "fiub":
            raise DataError(f"x must hold numbers, got dtype {array.dtype}")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise DataError("x has NaN or infinite values")
        if len(array) == 0:
            return np.empty((0, len(self.classes)), dtype=np.float32)
        samples = torch.from_numpy(
            np.ascontiguousarray(array if array.dtype == np.uint8 else array.astype(np.float32))
        )
        logits = self.network.outputs(self.tree, samples).logits
        probabilities: npt.NDArray[np.float32] = torch.softmax(logits, dim=1).cpu().numpy()
        return probabilities

    def predict(self, x: Any) -> npt.NDArray[Any]:
        """(n,) class names for raw inputs."""
        names: npt.NDArray[Any] = np.asarray(self.classes)[self.predict_proba(x).argmax(axis=1)]
        return names


def parcel(prepared: Prepared, tree: Tree) -> tuple[Groups, dict[str, Any]]:
    """What model.safetensors holds: weights, normalisation, and the facts needed to build the
    network again.
    """
    normaliser = prepared.federation.normaliser
    groups: Groups = {"model": tree}
    if normaliser is not None:
        groups["normaliser"] = {"mean": normaliser[0], "deviation": normaliser[1]}
    meta = {
        "classes": list(prepared.federation.classes),
        "shape": list(prepared.federation.validation.x.shape[1:]),
        "model": prepared.experiment.model.model_dump(exclude_none=True),
        "architecture": architecture(prepared.setting.network.module),
    }
    return groups, meta


def unpack(groups: Groups, meta: dict[str, Any], given: ModelGiven | None) -> TrainedModel:
    """The inverse of `parcel`. A module that came from Python has to be given again; its weights do
    not matter.
    """
    options = ModelOptions(**meta["model"])
    shape, classes = tuple(meta["shape"]), tuple(meta["classes"])
    module = Given(model=given).module(seed=0)
    if module is None:
        if options.name == "given":
            raise RunError(
                "this run's model came from Python: pass the same class or module as "
                "gcfl.load(folder, model=...)"
            )
        module = models.make(shape, len(classes), options, seed=0)
    elif architecture(module) != meta["architecture"]:
        log.warning(
            "the model given has other layers or other code than the one that this run trained"
        )
    normaliser = groups.get("normaliser")
    pair = (normaliser["mean"], normaliser["deviation"]) if normaliser else None
    network = Network(module, torch.zeros((2, *shape)), len(classes), pair, options.head)
    expected = {name: tensor.shape for name, tensor in network.tree().items()}
    if {name: tensor.shape for name, tensor in groups["model"].items()} != expected:
        raise RunError("the model given does not have the tensors of the run's model")
    return TrainedModel(network, groups["model"], classes, shape)
