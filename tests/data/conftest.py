from __future__ import annotations

import pytest


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A data home of the test's own."""
    monkeypatch.setenv("GCFL_DATA_HOME", str(tmp_path / "home"))
    return tmp_path / "home"
