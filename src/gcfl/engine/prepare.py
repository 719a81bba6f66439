"""From an experiment to everything that a run needs, with every check made before any work starts.

This is the only place that knows the truth and the method at once: it hands Skyline a federation of
clean samples.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from gcfl import data, models
from gcfl.base.data_types import Groups, Shard, Tree
from gcfl.base.errors import ConfigError
from gcfl.base.options import resolve_size
from gcfl.data import Federation, Source
from gcfl.engine.checks import (
    check_cohort,
    check_engine,
    check_tables,
    check_tokens,
    check_training,
    check_vectorised,
    encoded_by,
    warn_of_own_labels,
)
from gcfl.engine.client import ClientSide
from gcfl.engine.frozen import Frozen, Looked, can_keep
from gcfl.engine.hold_out import encoded_apart, hold_out
from gcfl.engine.measurement import Ahead
from gcfl.engine.rounds import Rounds
from gcfl.engine.setting import setting_of
from gcfl.engine.transport import InProcess, Transport
from gcfl.engine.vectorised import Vectorised
from gcfl.engine.workers import Workers
from gcfl.experiment import Experiment
from gcfl.methods import Method, Periodic, Setting
from gcfl.methods.privacy import Privacy
from gcfl.methods.privacy_checks import check as check_privacy
from gcfl.methods.privacy_checks import check_model, public_normaliser
from gcfl.methods.server_training import check as check_clean
from gcfl.models.code import ModelGiven, file_of, is_code, module_of, whole_name
from gcfl.models.fingerprint import code_of, fingerprint, sources_of
from gcfl.models.kernels import take_onednn
from gcfl.models.start import warn_of_random, weights_digest, weights_file
from gcfl.models.trained import pack


@dataclass(frozen=True)
class Given:
    """What came from Python instead of by name."""

    source: Source | None = None
    model: ModelGiven | None = None


@dataclass(frozen=True)
class Prepared:
    """A run, ready to start."""

    experiment: Experiment
    federation: Federation
    method: Method
    setting: Setting
    held_out: Shard | None = None
    privacy: Privacy | None = None
    frozen: Frozen | None = None  # the body, where rounds are played on its features
    looked: Looked | None = None

    def transport(self) -> Transport:
        side = ClientSide(self.setting, self.method, self.federation.clients)
        if self.experiment.engine.vectorised and self.method.server.uses_clients:
            return Vectorised(side)
        # More workers than clients in a round would only wait.
        workers = min(self.experiment.engine.workers, self.cohort)
        if workers == 1 or not self.method.server.uses_clients:
            return InProcess(side)
        return Workers(side, self.setting.network.tree(), workers)

    @property
    def cohort(self) -> int:
        return (
            1
            if self.method.pooled
            else resolve_size(self.experiment.cohort, len(self.federation.clients))
        )

    def rounds(self, transport: Transport) -> Rounds:
        return Rounds(
            setting=self.setting,
            method=self.method,
            validation=self.federation.validation,
            test=self.federation.test,
            clients=len(self.federation.clients),
            cohort=self.cohort,
            transport=transport,
            clean=self.experiment.clean,
            evaluate_every=self.experiment.engine.evaluate_every,
            held_out=self.held_out,
            names=self.federation.clients.names,
            privacy=self.privacy,
            ahead=self.looked.cost if self.looked else Ahead(),
        )

    def parcel(self, tree: Tree) -> tuple[Groups, dict[str, Any]]:
        """What model.safetensors holds of a trained model."""
        network, federation = self.setting.network, self.federation
        shape = tuple(federation.validation.x.shape[1:])
        if self.frozen is not None:  # the body is part of the model, too
            network, shape = self.frozen.whole, self.frozen.shape
            tree = {**self.frozen.tree, **tree}
        options, form = self.experiment.model, (federation.encoding, federation.layout)
        return pack(network, tree, federation.classes, shape, options, *form)

    @property
    def holdings(self) -> dict[str, Any]:
        """Who the clients are, and how much they hold."""
        clients = self.federation.clients
        return {"names": clients.names, "sizes": clients.partition.sizes.tolist()}

    @property
    def encoded_by(self) -> str | None:
        """Whose values and medians travel with the model of a table."""
        return encoded_by(self.experiment.data, self.federation.encoding)


def prepare(
    experiment: Experiment,
    given: Given,
    federated: tuple[Source, Federation] | None = None,
    split_by: int | None = None,
    on_features: bool = False,
) -> Prepared:
    """Read, split, spoil, build, check that all fits. federated: where the data is ready. split_by:
    the seed that parts the server's set, where that is not the run's. on_features: play on features
    where the body is frozen.
    """
    check_engine(experiment)
    source, federation = federated or federate(experiment, given)
    check_tables(experiment, source)
    if federated is None:
        warn_of_own_labels(source, federation)
    method = experiment.assembled()
    clients = len(federation.clients)
    check_cohort(method, resolve_size(experiment.cohort, clients), clients)
    check_clean(method, experiment.clean)
    check_privacy(method, experiment.clean, experiment.privacy)
    check_training(experiment, method, source)
    federation, held_out = hold_out(experiment, federation, split_by)
    if covered := experiment.privacy.clean_epsilon is not None:
        wanted, x = experiment.data.normalise, federation.validation.x
        public = public_normaliser(x, experiment.privacy) if wanted else None
        federation = replace(federation, normaliser=public)
    for part in method.parts.values():
        if not (covered and isinstance(part, Periodic)):  # what it would warn about is covered
            part.check(federation.validation, federation.classes)
    if method.clean_only:
        federation = federation.clean_only()
    if method.pooled:
        federation = federation.pooled()
    sample, options = tuple(source.x.shape[1:]), experiment.model
    module = module_of(
        given.model, experiment.seed, sample, len(federation.classes), options.arguments
    )
    if module is None:
        if options.name == "given":
            raise ConfigError(
                "model.name 'given' means a module from Python: pass model=... to gcfl.run"
            )
        module = models.make(sample, len(federation.classes), options, experiment.seed)
    digests = _digests(experiment, source, method, given, module)
    if experiment.given and experiment.given != digests:
        changed = [
            name
            for name in ("data", "model", "parts", "files", "code")
            if experiment.given.get(name) != digests.get(name)
        ]
        raise ConfigError(
            f"this run was made with other {' and '.join(changed)} than what is there now"
            + (f" ({experiment.model.name})" if changed == ["code"] else "")
        )
    if experiment.engine.linear == "onednn":
        take_onednn(module)
    setting = setting_of(
        experiment, module, federation.validation.x, len(federation.classes), federation.normaliser
    )
    warn_of_random(module, options)
    if any(part.needs_head for part in method.parts.values()):
        setting.network.require_head()
    check_model(method, setting, federation.validation, federation.classes, experiment.privacy)
    check_tokens(experiment, method, setting, federation)
    example, frozen, looked = federation.clients.x[:3], None, None
    if on_features and len(example) and can_keep(method, setting, example):
        frozen = Frozen.of(setting.network, example)
        example, setting = frozen.features(example), replace(setting, network=frozen.head)
    if experiment.engine.vectorised:
        check_vectorised(experiment, method, setting, example)
    settled = _settled(experiment, source, given, digests, clients)
    if frozen is not None:
        looked = frozen.applied(federation, held_out)
        federation, held_out = looked.federation, looked.held_out
    ready = Prepared(settled, federation, method, setting, held_out, frozen=frozen, looked=looked)
    asked = experiment.clean, experiment.privacy, len(federation.clients), ready.cohort
    return replace(ready, privacy=Privacy.of(method, setting, *asked))


def _digests(
    experiment: Experiment, source: Source, method: Method, given: Given, module: nn.Module
) -> dict[str, str]:
    """Of what came from Python or from one's own files, so that it counts in the run's identity."""
    digests = {}
    if given.source is not None:
        digests["data"] = source.digest()
    read = source.own or bool(data.named_sets(experiment.data))
    files = source.digest() if read and given.source is None else ""
    files += data.digest(experiment.data)
    if beside := files + weights_digest(experiment.model):
        digests["files"] = beside
    if given.model is not None:
        digests["model"] = fingerprint(module)
    elif is_code(experiment.model.name):
        file = file_of(whole_name(experiment.model.name))
        text = hashlib.sha256(file.read_bytes()).hexdigest()[:16] if file else ""
        digests["code"] = fingerprint(module) + sources_of(module) + text
    kinds = [type(part) for part in method.parts.values()]
    if foreign := [kind for kind in kinds if kind.__module__.partition(".")[0] != "gcfl"]:
        digests["parts"] = code_of(foreign)
    return digests


def federate(experiment: Experiment, given: Given) -> tuple[Source, Federation]:
    """The data alone: what it came from, and who got what of it."""
    options, seed = experiment.data, experiment.seed
    found = _source(experiment, given)
    return encoded_apart(experiment, found, seed, lambda source: data.build(source, options, seed))


def _settled(
    experiment: Experiment, source: Source, given: Given, digests: dict[str, str], clients: int
) -> Experiment:
    """With the digests, the number of clients, and with whole paths, so that a run resumes from any
    folder.
    """
    named = ("owners", "noise_file", "labels", "schema_file", "validation", "test")
    paths = [name for name in named if isinstance(getattr(experiment.data, name), str)]
    if source.own and given.source is None and not data.on_the_hub(experiment.data.source):
        paths.append("source")
    whole: dict[str, Any] = {
        name: str(Path(getattr(experiment.data, name)).expanduser().absolute()) for name in paths
    }
    if experiment.data.client_per_group:
        whole["clients"] = clients
    model = {}
    if given.model is None and is_code(experiment.model.name):
        model["name"] = whole_name(experiment.model.name)
    if experiment.model.weights is not None:
        model["weights"] = str(weights_file(experiment.model.weights))
    return experiment.model_copy(
        update={
            "given": digests,
            "data": experiment.data.model_copy(update=whole),
            "model": experiment.model.model_copy(update=model),
        }
    )


def _source(experiment: Experiment, given: Given) -> Source:
    if given.source is not None:
        source = data.subset(given.source, experiment.data.samples, experiment.seed)
        return data.sets(source, experiment.data)
    if experiment.data.source in ("arrays", data.FRAME):
        what = "(x, y)" if experiment.data.source == "arrays" else "a DataFrame"
        raise ConfigError(
            f"data.source {experiment.data.source!r} means data from Python: pass data={what} to "
            "gcfl.run"
        )
    return data.read(experiment.data, experiment.seed)
