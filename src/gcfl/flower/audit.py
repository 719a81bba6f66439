"""The audit at the end of a run on Flower. The server sends every site what judging takes: the
final model, the classes' names, and of its clean set the class means and quantiles that tell how
strange an input is. Each site judges its own samples and writes what it found into its own folder.

What comes back is what `audit.share` asks for, or the less that the site allows; by default
nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt
import torch
from flwr.app import MessageType, RecordDict
from flwr.serverapp import Grid

from gcfl.base.data_types import IntArray, Shard, Tree
from gcfl.base.files import locked, write_atomic, write_json
from gcfl.base.seal import sealed
from gcfl.data import Source
from gcfl.engine.audit import Judge
from gcfl.engine.checkpoint import Checkpoint
from gcfl.engine.prepare import Prepared
from gcfl.flower.transport import FACTS, accepted_of, ask, contents_of, records_of
from gcfl.labels.strangeness import Strangeness
from gcfl.methods import NEVER, AuditOptions, Setting
from gcfl.report.audit_page import audit_page
from gcfl.results.findings import Findings, write_findings
from gcfl.results.folder import RunFolder
from gcfl.results.shared import read_share

log = logging.getLogger("gcfl")
ACTION = "audit"
_KIND = f"{MessageType.QUERY}.{ACTION}"


@dataclass(frozen=True)
class Request:
    """What the server sends one client. accepted: the last round of which it accepted its answer.
    usual: means and quantiles of the clean set.
    """

    client: int
    accepted: int
    model: Tree
    usual: Tree
    classes: tuple[str, ...]
    notes: tuple[str, ...]
    options: AuditOptions

    def to_records(self) -> RecordDict:
        facts = {
            "client": self.client,
            "accepted": self.accepted,
            "classes": list(self.classes),
            "notes": list(self.notes),
            "share": self.options.share,
            "threshold": self.options.threshold,
            "correct": self.options.correct,
        }
        return records_of("model", self.model, {"usual": self.usual}, facts)

    @classmethod
    def read(cls, records: RecordDict) -> Request:
        model, payload, facts = contents_of("model", records)
        options = {name: facts[name] for name in ("share", "threshold", "correct")}
        return cls(
            client=int(facts["client"]),
            accepted=int(facts["accepted"]),
            model=model,
            usual=payload["usual"],
            classes=tuple(facts["classes"]),
            notes=tuple(facts["notes"]),
            options=AuditOptions(**options),
        )

    def judge(self, setting: Setting) -> Judge:
        """At the site."""
        usual = Strangeness(self.usual["means"], self.usual["quantiles"])
        return Judge(setting, self.model, self.classes, usual, self.notes)


def write_at_site(
    found: Findings,
    folder: Path,
    options: AuditOptions,
    setting: Setting,
    shard: Shard,
    source: Source,
) -> None:
    """The four files, which nobody but the site's own user can read."""

    def inputs(_: int, places: IntArray) -> npt.NDArray[Any]:
        return shard.x[torch.from_numpy(places)].numpy()

    typical = None
    if setting.network.normaliser is not None and shard.x.ndim == 2:
        # As the site knows them anyway; where samples are not normalised, it does not.
        typical = tuple(one.double().cpu().numpy() for one in setting.network.normaliser)
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    write_findings(found, folder, options.correct, options.threshold)
    page = audit_page(
        f"Audit of {found.site}",
        [found],
        inputs,
        source.columns,
        typical,  # type: ignore[arg-type]
        threshold=options.threshold,
        correct=options.correct,
        root=source.root,
    )
    write_atomic(folder / "audit.html", page.encode(errors="backslashreplace"))
    for path in folder.iterdir():
        path.chmod(0o600)
    log.info("findings of this site: %s", folder / "audit.html")


def audit_sites(
    prepared: Prepared,
    folder: RunFolder,
    grid: Grid,
    names: tuple[str, ...],
    nodes: Callable[[], Mapping[int, int]],
    timeout: float | None,
) -> None:
    """Every site of a finished run, and sites.json. Asked again, only those that did not answer."""
    options = prepared.experiment.audit
    classes = tuple(map(str, prepared.federation.classes))
    asked = options.model_dump()
    before = folder.read_later(folder.sites)
    known: dict[int, dict[str, Any]] = {}
    if before.get("asked") == asked:
        known = {c: one for c, one in enumerate(before["sites"]) if "problem" not in one}
    missing = [client for client in range(len(names)) if client not in known]
    if not missing:
        return
    there = nodes()
    contents = {
        client: request.to_records()
        for client, request in _requests(prepared, folder, options).items()
        if client in missing and client in there
    }

    def read(records: RecordDict) -> dict[str, Any]:
        return read_share(dict(records.config_records[FACTS]), options.share, len(classes))

    answers, failures = ask(grid, there, contents, _KIND, read, timeout)
    sites = []
    for client, name in enumerate(names):
        entry = known.get(client, answers.get(client))
        if entry is None:
            problem = failures.get(client, "it has not come")
            log.warning("no findings of %s: %s", name, problem)
            entry = {"problem": problem}
        sites.append({**entry, "name": name})
    with locked(folder.path):
        told = {"asked": asked, "classes": classes, "sites": sites}
        write_json(folder.sites, sealed(told))
    done = sum("problem" not in one for one in sites)
    log.info("%d of %d sites have written their findings into their own folders", done, len(sites))


def _requests(prepared: Prepared, folder: RunFolder, options: AuditOptions) -> dict[int, Request]:
    federation, (groups, _) = prepared.federation, folder.read_model()
    judge = Judge.of(prepared.setting, groups["model"], federation.classes, federation.validation)
    usual = {"means": judge.usual.means, "quantiles": judge.usual.quantiles}
    accepted = accepted_of(Checkpoint(folder.checkpoint).read()[1])
    return {
        client: Request(
            client,
            accepted.get(client, NEVER),
            judge.model,
            usual,
            judge.classes,
            judge.notes,
            options,
        )
        for client in range(len(federation.clients))
    }
