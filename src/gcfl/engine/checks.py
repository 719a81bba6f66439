"""What cannot be played is refused before any work, in a sentence."""

from __future__ import annotations

import logging

import torch

from gcfl.base.encoding import Encoding
from gcfl.base.errors import ConfigError
from gcfl.data import DataOptions, Federation, Source
from gcfl.experiment import Experiment
from gcfl.methods import Method, Setting
from gcfl.methods.batched import check_stackable
from gcfl.models.tokens import check_ids

log = logging.getLogger("gcfl")


def check_cohort(method: Method, cohort: int, clients: int) -> None:
    """So many clients in a round, of so many."""
    if cohort > clients and not method.pooled:
        raise ConfigError(
            f"cohort is {cohort}, but there are only {clients} clients (data.clients)"
        )
    there = 1 if method.pooled else cohort
    if there < method.server.fewest:
        clips = getattr(method.server, "clip", None) == "median"
        raise ConfigError(
            f"{method.name}{' with server.clip = median' if clips else ''} needs at least "
            f"{method.server.fewest} clients in a round, to tell wrong updates by the others; "
            f"there are {there} (cohort, data.clients)"
        )


def encoded_by(options: DataOptions, encoding: Encoding | None) -> str | None:
    """Whose values and medians the encoding of a table knows: "clean" (the server's clean set),
    "all" (also the clients'); None where it knows nothing of anybody's.
    """
    if encoding is None or encoding.plain or options.schema_file is not None:
        return None
    return options.encode_by


def check_tables(experiment: Experiment, source: Source) -> None:
    """What the encoding of a table knows travels with the model: no budget covers it."""
    options, privacy = experiment.data, experiment.privacy
    if encoded_by(options, source.encoding) is None:
        return
    if privacy.clean_epsilon is not None:
        raise ConfigError(
            "privacy.clean_epsilon does not cover the values and medians that the encoding of "
            f"{source.name} takes from the clean set: say what the columns hold in a schema file "
            "(data.schema_file), made without looking at it"
        )
    if privacy.client_epsilon is not None and options.encode_by == "all":
        raise ConfigError(
            "privacy.client_epsilon does not cover the values and medians that data.encode_by = "
            "'all' takes from the clients: use a schema file (data.schema_file)"
        )


def warn_of_own_labels(source: Source, federation: Federation) -> None:
    """Somebody's own labels, into which no noise was put: a clean set that is cut from them is as
    wrong as they are.
    """
    if not source.own or source.validation_from_test or federation.truth is not None:
        return
    if source.clients is not None and source.columns is None:  # told where they were put together
        return
    sets = {"validation": "the server's clean set", "test": "the test set"}
    cut = [name for name in sets if getattr(source, name) is None]
    if cut:
        log.warning(
            "%s %s cut from %s, with the labels that it has: where those are wrong, so is what the "
            "model is taught or measured by. Samples whose labels somebody checked go into files "
            "or folders of their own: %s",
            " and ".join(sets[name] for name in cut),
            "is" if len(cut) == 1 else "are",
            source.name,
            ", ".join(f"data.{name} = PATH (from Python, {name}=)" for name in cut),
        )


def check_tokens(
    experiment: Experiment, method: Method, setting: Setting, federation: Federation
) -> None:
    """Token ids: what takes them, what makes no sense for them, and whether all are in range."""
    network, layout = setting.network, federation.layout
    if not network.tokens:
        if layout.ids or layout.words is not None:
            raise ConfigError(
                f"texts need a model that begins with an embedding, and {experiment.model.name} "
                "has none: use model.name 'text', or a module whose first layer is nn.Embedding "
                "or nn.EmbeddingBag"
            )
        return
    for asked, name in (
        ("attribute" in experiment.data.kinds and bool(experiment.data.noise), "attribute noise"),
        (bool(experiment.train.mixup), "train.mixup"),
        (method.local.views == 2, f"{method.name}, which trains on two views of a sample,"),
    ):
        if asked:
            raise ConfigError(
                f"{name} is not for token ids: half of an id is no word"
                + ("; set train.mixup to 0" if name == "train.mixup" else "")
            )
    check_ids(federation.clients.x, network.vocabulary, "x of the clients")
    check_ids(federation.validation.x, network.vocabulary, "x of the server's set")
    check_ids(federation.test.x, network.vocabulary, "x of the test set")


def check_training(experiment: Experiment, method: Method, source: Source) -> None:
    """What becomes of a batch must suit the samples, and the method."""
    if experiment.train.augment not in ("none", "auto") and source.x.ndim != 4:
        raise ConfigError(
            "train.augment is for images (n, channels, height, width), not for samples of shape "
            f"{source.x.shape[1:]}"
        )
    if experiment.train.mixup and method.local.keeps:
        raise ConfigError(
            f"train.mixup cannot be had with {method.name}: what the model says of a mixture is of "
            "no single sample, to be kept"
        )


def check_vectorised(
    experiment: Experiment, method: Method, setting: Setting, x: torch.Tensor
) -> None:
    """Many clients at once."""
    if setting.local_noise is not None:
        raise ConfigError("engine.vectorised trains no clients that add noise of their own")
    if not method.local.stackable:
        raise ConfigError(
            f"{method.name} cannot be had with engine.vectorised: its clients correct their labels "
            "one by one"
        )
    check_stackable(setting, x)
    if experiment.engine.workers > 1:
        raise ConfigError(
            "engine.vectorised trains all clients in one process: engine.workers must be 1"
        )


def check_engine(experiment: Experiment) -> None:
    """The device is there, and what is to compute suits it."""
    options = experiment.engine
    check_device(options.device)
    if options.linear == "torch":
        return
    covered = experiment.privacy.clean_epsilon is not None
    others = {
        "engine.vectorised": options.vectorised,
        f"engine.device {options.device}": options.device != "cpu",
        "privacy.clean_epsilon": covered,  # many gradients at once
    }
    if other := next((name for name, there in others.items() if there), None):
        raise ConfigError(f"engine.linear {options.linear} cannot be had with {other}")


def check_device(name: str) -> None:
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(
            f"engine.device {name!r} is no device that torch knows; use cpu, cuda or mps"
        ) from None
    cuda = torch.cuda.is_available() and (device.index or 0) < torch.cuda.device_count()
    there = {"cpu": True, "cuda": cuda, "mps": torch.backends.mps.is_available()}.get(
        device.type, False
    )
    if not there:
        raise ConfigError(f"engine.device {name!r} is not available on this machine")
