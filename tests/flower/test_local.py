"""`gcfl flower up`: what it refuses, and that nothing half-started stays."""

from __future__ import annotations

import pytest

pytest.importorskip("flwr", reason="flwr is not installed: pip install 'gcfl[flower]'")

from gcfl.base.errors import RunError
from gcfl.cli import main
from gcfl.flower import local


def test_a_federation_that_cannot_start_says_why_and_leaves_nothing(tmp_path, monkeypatch):
    def broken(*_):
        raise RunError("the SuperLink does not listen")

    monkeypatch.setattr(local, "start_link", broken)
    with pytest.raises(RunError, match="does not listen"):
        local.up(tmp_path / "place", 1)
    assert not (tmp_path / "place" / "up.json").exists()


@pytest.mark.parametrize("site", ["north", "no/rth=.", "=.", "superlink=."])
def test_sites_that_cannot_be_had(site, tmp_path, capsys):
    assert main(["flower", "up", "--in", str(tmp_path / "place"), "--site", site]) == 2
    assert "--site" in capsys.readouterr().err
    assert (
        main(["flower", "up", "--in", str(tmp_path / "place"), "--site", "a=.", "--site", "a=."])
        == 2
    )
    assert "the name is taken" in capsys.readouterr().err
