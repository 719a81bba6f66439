from __future__ import annotations

import pytest

import gcfl
from gcfl.base.errors import ConfigError, GcflError
from gcfl.data import DataOptions, build, read

pytestmark = pytest.mark.usefixtures("home")


@pytest.mark.parametrize(
    "options",
    [
        {"noise_kind": "open", "noise_spread": 0.1},
        {"noise_kind": "given", "noise": 0.2},
        {"noise_kind": "given", "noise_rates": [0.1]},
        {"noise": 0.2, "noise_rates": [0.1] * 10},
        {"noise_spread": 0.2, "noise_rates": [0.1] * 10},
        {"noise_kind": "pair", "noise_file": "seen.txt"},
        {"noise_kind": "open", "noise": 0.04},
        {"noise_kind": "similar", "noise_file": "matrix.txt"},
        {"noise_kind": "mistakes", "corruptions": ["fog"]},
        {"owners": "owners.txt"},
    ],
)
def test_settings_that_a_kind_of_noise_would_ignore_are_refused(options):
    with pytest.raises(ConfigError, match="no effect"):
        build(read(DataOptions(), 0), DataOptions(**options), 0)


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        (
            {"noise_kind": "attribute", "corruptions": ["fogg"]},
            ConfigError,
            "'fogg', which is none for images.*fog",
        ),
        (
            {"noise_kind": "attribute", "source": "blobs", "corruptions": ["fog"]},
            ConfigError,
            "'fog', which is none for tables",
        ),
        ({"corruptions": ["fog"]}, ConfigError, "no effect without"),
        ({"noise_kind": ["open", "given"]}, ConfigError, "cannot be combined"),
        (
            {"noise_kind": "open", "noise": 0.2, "test_noise": 0.1},
            ConfigError,
            "data.test_noise cannot be had",
        ),
    ],
)
def test_what_does_not_fit_is_refused(options, kind, message):
    options = DataOptions(**options)
    with pytest.raises(kind, match=message):
        build(read(options, 0), options, 0)


@pytest.mark.parametrize("kinds", [[], ["pair", "pair"], ["uniform", "sideways"]])
def test_lists_of_kinds_are_checked(kinds):
    with pytest.raises(GcflError, match="noise_kind"):
        gcfl.run("fedavg", noise_kind=kinds)


def test_corruptions_are_a_list():
    with pytest.raises(
        ConfigError, match=r'corruptions must be a list such as \["fog", "frost"\], got \'fog\''
    ):
        gcfl.run("fedavg", data={"corruptions": "fog", "noise_kind": "attribute"})
