"""Which labels are wrong, site by site: a finished run's model looks at every client's samples once
more, and what the client kept from earlier looks (`gcfl.labels.evidence`) is put beside it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from gcfl.base.data_types import FloatArray, Groups, IntArray, Shard, Tree
from gcfl.base.errors import ConfigError
from gcfl.base.text import count, visible
from gcfl.engine.checkpoint import Checkpoint
from gcfl.engine.prepare import Given, Prepared, federate, prepare
from gcfl.experiment import Experiment
from gcfl.labels import GRID, NoiseModel, label_posterior, rate_interval, with_neighbours
from gcfl.labels.evidence import NEVER, fits, past, put_together
from gcfl.labels.strangeness import Strangeness, fit_strangeness
from gcfl.methods import Setting
from gcfl.results.contribution import contributions
from gcfl.results.findings import EVIDENCE, Findings, need_parquet, scores
from gcfl.results.folder import RunFolder
from gcfl.results.frames import data_frame
from gcfl.results.run import from_above

_NO_EVIDENCE = (
    "nothing was kept of earlier looks at these samples: they are judged by the final model alone, "
    "and a model that trained on a wrong label may believe it (labels.evidence keeps it)"
)


# A model that learnt from wrong labels is less sure than it should be: colder ones, too.
_TEMPERATURES = (0.35, 0.5, *GRID)
_MOST_SHOWN = 10  # sites
_NONE = 1e-4  # a rate that is as good as none: the fit itself never says 0


@dataclass(frozen=True)
class Judge:
    """What a site needs in order to judge its samples: the final model, and how strange clean
    samples are to it.
    """

    setting: Setting
    model: Tree
    classes: tuple[str, ...]
    usual: Strangeness
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, setting: Setting, model: Tree, classes: Sequence[str | int], clean: Shard) -> Judge:
        """At the server: from its clean set, of which class means and quantiles leave."""
        names = tuple(map(str, classes))
        counts = np.bincount(clean.y.numpy(), minlength=len(names))
        lacking = [name for name, count in zip(names, counts, strict=True) if count == 0]
        notes: tuple[str, ...] = ()
        if lacking:
            notes = (
                f"the clean set has no sample of {', '.join(lacking)}: labels of that class are "
                "judged by what the clients taught the model",
            )
        outputs = setting.network.outputs(model, clean.x)
        return cls(setting, model, names, fit_strangeness(outputs.features.cpu(), clean.y), notes)

    def findings(
        self, site: str, shard: Shard, ids: Sequence[str], memory: Tree, seed: int = 0
    ) -> Findings:
        """Of one site. memory: what it remembers of its labels."""
        pool = self.setting.pool(self.model, shard)
        logits, labels = pool.logits, shard.y
        found = label_posterior(logits, labels, NoiseModel("auto", temperatures=_TEMPERATURES))
        # The rate's own spread: that of the temperature would be another question.
        warmth = found.temperature
        known = NoiseModel("uniform" if found.uniform else "auto", temperature=warmth)
        full = found
        if found.uniform:  # for the eye; the rate is not its
            full = label_posterior(logits, labels, NoiseModel("full", temperature=warmth))
        n, rows = len(labels), torch.arange(len(labels))
        notes, mean = self.notes, None
        evidence = np.full(n, EVIDENCE.index("final"))
        if fits(memory, n, pool.classes):
            mean, last = past(memory)
            unused = last.numpy() == NEVER
            evidence = np.where(unused, EVIDENCE.index("unused"), EVIDENCE.index("looks"))
        else:
            notes = (*notes, _NO_EVIDENCE)
        ends = rate_interval(logits, labels, known, seed=seed)
        seen = put_together(found.posterior, mean)
        posterior = with_neighbours(seen, labels, pool.features)
        # What neighbours add to the share of wrong labels, they add to the rate.
        more = float((seen - posterior)[rows, labels].mean())
        low, high = (min(max(end + more, 0.0), 1.0) for end in ends)
        confidence, suggested = posterior.max(dim=1)
        return Findings(
            site=site,
            classes=self.classes,
            ids=tuple(ids),
            labels=labels.numpy(),
            wrong=(1 - posterior[rows, labels]).clamp(0, 1).numpy(),
            suggested=suggested.numpy(),
            confidence=confidence.numpy(),
            strange=self.usual.of(pool.features).numpy(),
            evidence=evidence,
            rate=min(max(found.rate + more, 0.0), 1.0),
            interval=(low if low > _NONE else 0.0, high),
            transition=full.transition.numpy(),
            prior=found.prior.numpy(),
            notes=notes,
        )


@dataclass(frozen=True, repr=False)
class Audit:
    """A run's sites, and how to look at their samples. root: the folder below which their ids are
    image files.
    """

    folder: Path
    sites: list[Findings]
    prepared: Prepared
    columns: tuple[str, ...] | None = None
    root: Path | None = None

    def __repr__(self) -> str:
        """A line for each site, of many only the first."""
        lines = [f"audit of {visible(str(self.folder))}: {count(len(self.sites), 'site')}"]
        lines += map(repr, self.sites[:_MOST_SHOWN])
        more = len(self.sites) - _MOST_SHOWN
        return "\n".join([*lines, *([f"and {more} more: audit.sites"] if more > 0 else [])])

    def _repr_html_(self) -> str:
        return str(from_above("report.notebook", "sites", self.sites))

    def inputs(self, site: int, places: IntArray) -> npt.NDArray[Any]:
        """(m, ...) the samples of a site as they came."""
        clients = self.prepared.federation.clients
        rows = torch.from_numpy(clients.partition[site][places])
        return clients.x[rows].numpy()

    @property
    def typical(self) -> tuple[FloatArray, FloatArray] | None:
        """Mean and sd of each of a table's columns on the clean set; of images and texts, None."""
        federation, clean = self.prepared.federation, self.prepared.federation.validation.x
        layout, network = federation.layout, self.prepared.setting.network
        if clean.ndim != 2 or network.tokens or layout.ids or layout.words is not None:
            return None
        return clean.double().mean(0).numpy(), clean.double().std(0).numpy()

    def scores(self, threshold: float = 0.5, correct: float = 0.9) -> dict[str, float] | None:
        """Against the truth of all sites, as `results.findings.scores` has it."""
        return scores(self.sites, threshold, correct)

    def to_frame(self, threshold: float | None = None, correct: float | None = None) -> Any:
        """A pandas DataFrame with a row for each sample, as the sites' audit.csv have it."""
        drop, least = self.thresholds(threshold, correct)
        return data_frame([one for site in self.sites for one in site.lines(least, drop, True)])

    def write(
        self,
        folder: str | os.PathLike[str] | None = None,
        *,
        threshold: float | None = None,
        correct: float | None = None,
        format: Literal["csv", "parquet"] = "csv",
    ) -> Path:
        """Write what `gcfl audit` writes, and return the folder: by default `audit` of the run's.

        A folder for each site with audit.csv (or audit.parquet), audit.json and cleaned.csv;
        audit.html, the page of all sites; and audit.json: what was found at each of them, and how
        right it is where the truth is known. threshold: a label is called wrong above this
        probability; correct: it is corrected where another one is at least so likely, else dropped;
        unset: as the run's settings say. Files that an earlier audit wrote there are replaced.
        """
        if format not in ("csv", "parquet"):
            raise ConfigError(f"format must be 'csv' or 'parquet', got {format!r}")
        if format == "parquet":
            need_parquet()
        out = self.folder / "audit" if folder is None else Path(folder)
        asked = self.thresholds(threshold, correct)
        from_above("report.audit_folder", "write_audit", self, out, *asked, format)
        return out

    def thresholds(self, threshold: float | None, correct: float | None) -> tuple[float, float]:
        """(threshold, correct) as asked, else those of the run."""
        asked = {"threshold": threshold, "correct": correct}
        for name, value in asked.items():
            number = isinstance(value, int | float)
            if value is not None and not (number and 0 <= value <= 1):
                raise ConfigError(f"{name} must be in [0, 1], got {value!r}")
        own = self.prepared.experiment.audit
        return (
            own.threshold if threshold is None else threshold,
            own.correct if correct is None else correct,
        )


def check_audit(experiment: Experiment) -> None:
    """A sentence where nothing can judge the sites' labels, or what that tells is not covered."""
    if experiment.privacy.clean_epsilon is not None:
        raise ConfigError(
            "an audit compares samples with the clean set, which tells more of it than "
            "privacy.clean_epsilon covers"
        )
    if experiment.privacy.client_epsilon is not None and experiment.audit.share != "none":
        raise ConfigError(
            f"audit.share = {experiment.audit.share!r} tells more of the clients than "
            "privacy.client_epsilon covers"
        )
    if not experiment.assembled().server.shares:
        raise ConfigError(
            "an audit needs one model that all sites trained; with "
            f"{experiment.method} every client has its own"
        )


def audit_run(folder: RunFolder, experiment: Experiment, given: Given) -> Audit:
    """Every client of a finished run."""
    groups, _ = folder.read_model()
    check_audit(experiment)
    source, federation = federate(experiment, given)
    prepared = prepare(experiment, given, (source, federation))
    held = [one["samples"] for one in folder.read_clients()]
    if held and held != prepared.holdings["sizes"]:
        raise ConfigError(
            f"the samples of {folder.path} are not here: sites that bring their own data judge "
            "them there (audit.at_end)"
        )
    federation = prepared.federation  # as the method saw it
    judge = Judge.of(prepared.setting, groups["model"], federation.classes, federation.validation)
    memory, helped = _memory(folder), contributions(folder.records())
    sites = []
    names = federation.clients.names
    for client in range(len(federation.clients)):
        shard = federation.clients.shard(client)
        found = judge.findings(
            names[client] if names else f"client-{client}",
            shard,
            source.ids_of(shard.ids),
            memory.get(client, {}).get("labels", {}),
            experiment.seed,
        )
        if client in helped:
            found = replace(found, contribution=asdict(helped[client]))
        if (truth := federation.truth) is not None:
            spoiled = truth.hit_by("attribute")[shard.ids]
            odd = spoiled | truth.hit_by("open")[shard.ids]
            wrong, right = truth.noisy[shard.ids] & ~spoiled, truth.labels[shard.ids]
            found = replace(found, truth=wrong, odd=odd, right=right)
        sites.append(found)
    # What noise has spoiled is shown as it was trained on.
    root = None if "attribute" in experiment.data.kinds else source.root
    return Audit(folder.path, sites, prepared, source.columns, root)


def _memory(folder: RunFolder) -> Mapping[int, Groups]:
    """What the clients remember; nothing where that was not kept."""
    checkpoint = Checkpoint(folder.checkpoint)
    return checkpoint.read()[1] if checkpoint.exists() else {}
