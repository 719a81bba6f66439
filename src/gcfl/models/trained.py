"""A trained model as users want it: raw inputs in, class names out."""

from __future__ import annotations

import copy
import logging
import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from gcfl.base.cells import cells, columns_of, is_frame
from gcfl.base.data_types import Groups, Tree
from gcfl.base.encoding import Encoding
from gcfl.base.errors import DataError, GcflError, ModelError, RunError, one_line
from gcfl.base.layout import AS_GIVEN, Layout, is_texts
from gcfl.base.options import checked
from gcfl.models.code import ModelGiven, check_named, is_code, module_of
from gcfl.models.fingerprint import architecture
from gcfl.models.network import Network
from gcfl.models.networks import MODELS, ModelOptions, make
from gcfl.models.tokens import check_ids

log = logging.getLogger("gcfl")


class TrainedModel:
    """Weights, architecture, classes and normalisation together; of a table also the encoding."""

    def __init__(
        self,
        network: Network,
        tree: Tree,
        classes: tuple[str | int, ...],
        shape: tuple[int, ...],
        encoding: Encoding | None = None,
        layout: Layout = AS_GIVEN,
    ) -> None:
        self.network = network
        self.tree = tree
        self.classes = classes
        self.shape = shape
        self.encoding = encoding
        self.layout = layout

    @property
    def module(self) -> nn.Module:
        """The plain torch module with the trained weights, for inputs of `network.prepare`."""
        module = copy.deepcopy(self.network.module)
        module.load_state_dict(self.tree, strict=False)
        return module.eval()

    def predict_proba(self, x: Any) -> npt.NDArray[np.float32]:
        """(n, C) probabilities for raw inputs x (n, ...), laid out as in training, in the order of
        `classes`.

        x may be a DataFrame, whose columns go by name, for a model that was trained on a table.
        """
        if is_frame(x):
            x = self._features(x)
        try:
            raw = np.asarray(x.detach().cpu() if isinstance(x, torch.Tensor) else x)
            array = np.asarray(self.layout(raw, self.shape))
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
        if self.network.tokens:
            check_ids(samples, self.network.vocabulary, "x")
        logits = self.network.outputs(self.tree, samples).logits
        probabilities: npt.NDArray[np.float32] = torch.softmax(logits, dim=1).cpu().numpy()
        return probabilities

    def _features(self, frame: Any) -> npt.NDArray[np.float32]:
        if self.layout.words is not None:
            texts = [name for name, column in columns_of(frame).items() if is_texts(column)]
            named = "".join(f", x[{name!r}]" for name in texts)
            raise DataError(f"this model takes texts: pass the column of them{named}")
        if self.encoding is None:
            raise DataError(
                "this model was not trained on a table and knows no columns: x must be an array"
            )
        wanted = {column.name for column in self.encoding.columns}
        table = columns_of(frame)
        known = {name: cells(table[name], name) for name in table if name in wanted}
        return self.encoding.apply(known, "x")

    def predict(self, x: Any) -> npt.NDArray[Any]:
        """(n,) class names for raw inputs."""
        names: npt.NDArray[Any] = np.asarray(self.classes)[self.predict_proba(x).argmax(axis=1)]
        return names


def pack(
    network: Network,
    tree: Tree,
    classes: tuple[str | int, ...],
    shape: tuple[int, ...],
    options: ModelOptions,
    encoding: Encoding | None = None,
    layout: Layout = AS_GIVEN,
) -> tuple[Groups, dict[str, Any]]:
    """What model.safetensors holds: weights, normalisation, and what builds the network again."""
    groups: Groups = {"model": tree}
    if network.normaliser is not None:
        mean, deviation = network.normaliser
        groups["normaliser"] = {"mean": mean.cpu(), "deviation": deviation.cpu()}
    meta = {
        "classes": list(classes),
        "shape": list(shape),
        "model": options.model_dump(exclude_none=True, exclude={"weights"}),
        "architecture": architecture(network.module),
    }
    if encoding is not None:
        meta["encoding"] = encoding.to_plain()
    if network.tokens:
        meta["tokens"] = True
    if facts := layout.facts():
        meta["layout"] = facts
    return groups, meta


def unpack(
    groups: Groups, meta: dict[str, Any], given: ModelGiven | None, folder: Path | None = None
) -> TrainedModel:
    """The inverse of `pack`. A module from Python is given again; its weights do not matter. A
    model of somebody's own code is made by that code, unless it lies in the run's folder.
    """
    options, shape, classes, layout = _facts_of(groups, meta)
    module = module_of(given, 0, shape, len(classes), options.arguments)
    if module is None:
        if options.name == "given":
            raise RunError(
                "this run's model came from Python: pass the same class or module as "
                "gcfl.load(folder, model=...)"
            )
        module = _made_again(shape, len(classes), options, folder)
    if options.name not in MODELS and architecture(module) != meta.get("architecture"):
        log.warning(
            "the model given has other layers or other code than the one that this run trained"
        )
    normaliser = groups.get("normaliser")
    pair = (normaliser["mean"], normaliser["deviation"]) if normaliser else None
    try:
        network = Network(
            module,
            torch.zeros((2, *shape)),
            len(classes),
            pair,
            options.head,
            tokens=meta.get("tokens") is True,
        )
    except (RuntimeError, ValueError, IndexError) as error:
        raise RunError(f"the model's file is damaged: {one_line(error)}") from None
    expected = {name: tensor.shape for name, tensor in network.tree().items()}
    if {name: tensor.shape for name, tensor in groups["model"].items()} != expected:
        raise RunError("the model given does not have the tensors of the run's model")
    encoding = _encoding_of(meta, shape)
    return TrainedModel(network, groups["model"], classes, shape, encoding, layout)


def _encoding_of(meta: dict[str, Any], shape: tuple[int, ...]) -> Encoding | None:
    """How a table's columns become inputs; None in files of other models, and older ones."""
    if "encoding" not in meta:
        return None
    try:
        encoding = Encoding.from_plain(meta["encoding"])
    except DataError as error:
        raise RunError(f"the model's file is damaged: {error}") from None
    if shape != (encoding.width,):
        raise RunError("the model's file is damaged: its encoding makes other inputs than it takes")
    return encoding


def _made_again(
    shape: tuple[int, ...], classes: int, options: ModelOptions, folder: Path | None
) -> nn.Module:
    if not is_code(options.name):
        return make(shape, classes, options, seed=0)
    try:
        check_named(options.name, folder or Path())
        return make(shape, classes, options, seed=0)
    except ModelError as error:
        raise RunError(
            f"{error}; look at it, and pass the class or module as gcfl.load(folder, model=...)"
        ) from None


def _facts_of(
    groups: Groups, meta: dict[str, Any]
) -> tuple[ModelOptions, tuple[int, ...], tuple[str | int, ...], Layout]:
    """What builds the network again, checked: the file may be anybody's."""
    shape, classes = meta.get("shape"), meta.get("classes")
    weights = sum(tensor.numel() for tensor in groups.get("model", {}).values())
    pair = groups.get("normaliser", {"mean": None, "deviation": None})
    try:
        options = checked(ModelOptions, meta.get("model", {}))
        layout = Layout.of(meta.get("layout", {}))
        sizes = [*shape, *options.hidden, options.projection or 1, options.width]  # type: ignore[misc]
        whole = all(type(one) is int and one >= 1 for one in sizes)
        small = whole and math.prod(shape) <= _MOST_VALUES and max(sizes) <= _MOST_VALUES  # type: ignore[arg-type]
        # No layer of ours has more values than the file has weights.
        ours = options.name in MODELS
        widest = max(*options.hidden, options.width)
        small = small and (not ours or widest <= max(weights, 128))
        small = small and (options.name != "text" or options.vocabulary <= weights)
        named = all(isinstance(name, str | int) for name in classes)  # type: ignore[union-attr]
        if small and named and 2 <= len(classes) <= weights and set(pair) >= {"mean", "deviation"}:  # type: ignore[arg-type]
            return options, tuple(shape), tuple(classes), layout  # type: ignore[arg-type]
    except (GcflError, TypeError, ValueError) as error:
        raise RunError(f"the model's file is damaged: {one_line(error)}") from None
    raise RunError("the model's file is damaged: it does not say what builds its network")


_MOST_VALUES = 2**28  # of a sample
