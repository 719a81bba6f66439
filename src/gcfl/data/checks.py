"""Settings of [data] that contradict each other, or that nothing would use: told before any
work.
"""

from __future__ import annotations

from gcfl.base.errors import ConfigError
from gcfl.data.corruption import chosen
from gcfl.data.options import DataOptions
from gcfl.data.source import Source


def check(source: Source, options: DataOptions) -> None:
    kinds = set(options.kinds)
    if (
        {"open", "given"} <= kinds
        or {"confusion", "given"} <= kinds
        or {"confusion", "open"} <= kinds
    ):
        raise ConfigError(f"data.noise_kind {options.noise_kind!r} cannot be combined")
    if {"open", "given"} & kinds:
        for purpose in ("validation", "test"):
            if getattr(options, f"{purpose}_noise"):
                raise ConfigError(
                    f"data.{purpose}_noise cannot be had with data.noise_kind 'open' or 'given'"
                )
    _unused(options)
    if "attribute" in kinds:
        chosen(source.x, options.corruptions)
    if "open" in kinds and options.noise:
        share, classes = options.noise / len(options.kinds), len(source.classes)
        if round(share * classes) == 0:
            raise ConfigError(
                f"data.noise has no effect: open-set noise of {share:g} takes none of {classes} "
                "classes; raise it"
            )


def _unused(options: DataOptions) -> None:
    kinds = set(options.kinds)
    varied = options.noise_rates is not None or options.noise_spread > 0
    if varied and ("open" in kinds or kinds == {"given"}):
        raise ConfigError(
            "data.noise_rates and data.noise_spread have no effect with data.noise_kind "
            f"{options.noise_kind!r}"
        )
    if options.noise_rates is not None and (options.noise or options.noise_spread):
        name = "noise" if options.noise else "noise_spread"
        raise ConfigError(
            f"data.{name} has no effect with data.noise_rates, which names a rate for each client"
        )
    if kinds == {"given"} and options.noise:
        raise ConfigError(
            "data.noise has no effect with data.noise_kind 'given': the file says which labels are "
            "wrong"
        )
    if options.noise_file is not None and not {"given", "confusion"} & kinds:
        raise ConfigError(
            "data.noise_file has no effect without data.noise_kind 'given' or 'confusion'"
        )
    if options.corruptions is not None and "attribute" not in kinds:
        raise ConfigError("data.corruptions has no effect without data.noise_kind 'attribute'")
    if options.owners is not None and options.partition != "given":
        raise ConfigError("data.owners has no effect without data.partition 'given'")
