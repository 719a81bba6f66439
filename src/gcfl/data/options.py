"""[data]: which samples, who holds them, which labels are wrong; what does not go together."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator

from gcfl.base.dates import checked_format
from gcfl.base.errors import ConfigError
from gcfl.base.options import Count, Options, Size, at_least, within
from gcfl.data.corruption import chosen
from gcfl.data.noise import Kind
from gcfl.data.source import Source, label_files, read_text

Rate = Annotated[float, AfterValidator(within(0, 1, high_open=True))]


def different(kinds: list[Kind]) -> list[Kind]:
    if not kinds or len(set(kinds)) != len(kinds):
        raise ValueError(f"must name at least one kind, each once, got {kinds}")
    return kinds


def names(value: Any) -> Any:
    if not isinstance(value, list):
        raise ValueError('must be a list such as ["fog", "frost"]')
    return value


def column_names(value: Any) -> Any:
    """A list, or, on a command line, names with commas between them."""
    if isinstance(value, str):
        value = [name.strip() for name in value.split(",")]
    if not isinstance(value, list) or not value:
        raise ValueError('must be a list of columns such as ["age", "sex"]')
    return value


class DataOptions(Options):
    """[data]"""

    source: str = "digits"
    """a name of `gcfl list data`, or a path to files of a kind that it lists"""
    label: str = "label"
    """tables: the column of the labels"""
    columns: Annotated[list[str], BeforeValidator(column_names)] | None = None
    """tables: only these columns are features"""
    drop: Annotated[list[str], BeforeValidator(column_names)] | None = None
    """tables: columns that are no features"""
    schema_file: str | None = None
    """tables: a JSON file that says what each column holds (`gcfl data schema` writes one)"""
    encode_by: Literal["clean", "all"] = "clean"
    """tables without a schema file: whose values and medians the encoding knows, which travels with
    the model: those of the server's clean set alone, or also the clients'
    """
    max_categories: Annotated[int, AfterValidator(within(2, 4096))] = 50
    """tables: texts of more values than this are hashed into so many features"""
    date_format: Annotated[str, AfterValidator(checked_format)] | None = None
    """tables: how texts write dates, by the letters of strptime, such as %d/%m/%Y; unset: ISO's
    way, or the month by its English name, and 1/2/2024 is a text
    """
    image_size: Annotated[int, AfterValidator(at_least(4))] = 32
    """image folders: pixels per side after resizing"""
    channels: Literal["first", "last", "grey", "none"] | None = None
    """arrays of images: where their channels are: before or after the pixels, or nowhere (grey);
    none: no images; unset: as the shape tells
    """
    text: str | None = None
    """tables, Hugging Face: the column of texts, which alone is read, as token ids"""
    length: Count = 64
    """texts: words of each that are read; shorter ones are filled up with 0"""
    tokens: bool | None = None
    """samples are token ids: whole numbers for an embedding, never scaled; unset: where the model
    begins with one
    """
    broken: Literal["skip", "refuse"] = "skip"
    """an image that cannot be read is left out and named (up to a tenth of them), or an error"""
    samples: Annotated[int, AfterValidator(at_least(10))] | None = None
    """use only so many samples of the source (blobs: draw so many)"""
    clients: Count = 10
    """how many clients share the data; unset, with data.group: one for each group"""
    partition: Literal["dirichlet", "iid", "shards", "quantity", "groups", "given"] = "dirichlet"
    """who holds what: by class shares, evenly, few classes, uneven sizes, groups, a file"""
    alpha: Annotated[float, AfterValidator(within(0, 1e6, low_open=True))] = 0.4
    """Dirichlet concentration (dirichlet: per class; quantity: of the sizes): small is skewed"""
    classes_per_client: Count = 2
    """shards: how many classes a client holds"""
    group: str | None = None
    """tables: the column of the groups"""
    owners: str | None = None
    """given: a file with the client's name of every sample, one per line"""
    min_size: Count = 10
    """fewest samples of a client"""
    noise: Rate = 0.0
    """share of each client's samples that is noisy (open: of the classes, irrelevant)"""
    noise_kind: Kind | Annotated[list[Kind], AfterValidator(different)] = "uniform"
    """wrong labels, or spoiled samples (attribute); or several kinds, in equal parts"""
    noise_rates: list[Rate] | None = None
    """a rate for each client instead of one for all"""
    noise_spread: Annotated[float, AfterValidator(within(0, 1))] = 0.0
    """each client's rate is drawn from noise ± noise_spread"""
    noise_file: str | None = None
    """confusion: a text table, row c = how often class c is taken for each; given: an observed
    label per line, for every sample
    """
    labels: str | None = None
    """labels in place of the clients' own: a CSV with columns id and label, or a folder with an
    audit's cleaned.csv files; samples without a line are dropped
    """
    corruptions: Annotated[list[str], BeforeValidator(names)] | None = None
    """attribute: which; unset: the paper's nine (images), missing, scale, gaussian (tables)"""
    severity: Annotated[int, AfterValidator(within(1, 5))] = 5
    """attribute: how strong, 1 to 5"""
    validation_noise: Rate = 0.0
    """the same noise for the server's set, which is clean unless asked"""
    test_noise: Rate = 0.0
    """the same noise for the test set, which is clean unless asked"""
    validation: Size | str = 0.1
    """the server's clean set: a share of the source, a count, or the path of a file of its own"""
    validation_balanced: bool = False
    """equal classes in the clean set; of an official test set, the test part is cut first"""
    test: Size | str = 0.15
    """the clean test set: a share of the source, a count, or the path of a file of its own"""
    client_test: Rate = 0.0
    """share of each client's samples that it keeps out of training and tests the final model on;
    at least one of its samples stays on either side
    """
    normalise: bool = True
    """scale inputs by mean and sd of the server's clean set"""

    @property
    def client_per_group(self) -> bool:
        """Whether every group of a table's column is a client: where nobody says how many."""
        named = self.group is not None and self.partition == "groups"
        return named and "clients" not in self.model_fields_set

    @property
    def kinds(self) -> list[Kind]:
        """The noises to make, in the order named."""
        return [self.noise_kind] if isinstance(self.noise_kind, str) else self.noise_kind


def digest(options: DataOptions) -> str:
    """A hash of the files that the settings name beside the data, or nothing."""
    beside = (options.owners, options.noise_file, options.schema_file)
    paths = [path for path in beside if path is not None]
    paths += map(str, label_files(options.labels)) if options.labels is not None else ()
    if not paths:
        return ""
    texts = "\x1f".join(read_text(path, "data") for path in paths)
    return hashlib.sha256(texts.encode()).hexdigest()[:16]


def check(source: Source, options: DataOptions) -> None:
    """Settings that contradict each other, or that nothing would use: told before any work."""
    kinds = set(options.kinds)
    if len(kinds & {"confusion", "open", "given"}) > 1:
        raise ConfigError(f"data.noise_kind {options.noise_kind!r} cannot be combined")
    if {"open", "given"} & kinds:
        for purpose in ("validation", "test"):
            if getattr(options, f"{purpose}_noise"):
                raise ConfigError(
                    f"data.{purpose}_noise cannot be had with data.noise_kind 'open' or 'given'"
                )
    _check_unused(options)
    if "attribute" in kinds:
        chosen(source.x, options.corruptions)
    if "open" in kinds and options.noise:
        share, classes = options.noise / len(options.kinds), len(source.classes)
        if round(share * classes) == 0:
            raise ConfigError(
                f"data.noise has no effect: open-set noise of {share:g} takes none of {classes} "
                "classes; raise it"
            )


def _check_unused(options: DataOptions) -> None:
    kinds, rates = set(options.kinds), options.noise_rates is not None
    if (rates or options.noise_spread) and ("open" in kinds or kinds == {"given"}):
        raise ConfigError(
            "data.noise_rates and data.noise_spread have no effect with data.noise_kind "
            f"{options.noise_kind!r}"
        )
    if rates and (options.noise or options.noise_spread):
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
    if options.columns is not None and options.drop is not None:
        raise ConfigError(
            "data.columns names all features, so data.drop has no effect: use one of them"
        )
    for name in ("columns", "drop", "schema_file", "date_format"):
        if options.text is not None and getattr(options, name) is not None:
            raise ConfigError(f"data.{name} has no effect with data.text: no other column is read")
    if options.date_format is not None and options.schema_file is not None:
        raise ConfigError(
            "data.date_format has no effect with data.schema_file, where a column of the kind date "
            f'can say "format": "{options.date_format}"'
        )
    if options.owners is not None and options.partition != "given":
        raise ConfigError("data.owners has no effect without data.partition 'given'")
