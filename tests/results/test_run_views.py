"""A run in the hand: printed, as frames, as a plot, its mistakes."""

from __future__ import annotations

import matplotlib
import numpy as np
import pytest

import gcfl
from gcfl.base.errors import ConfigError, DataError
from helpers import run


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return run(
        tmp_path_factory.mktemp("runs"), method="fedavg", rounds=4, clean={"contribution": True}
    )


def test_it_prints_what_matters(made):
    text = repr(made)
    assert f"accuracy {made.accuracy:.4f}" in text
    assert "CPU-seconds" in text
    assert text.endswith(f"finished, {made.folder}")


def test_in_a_notebook_it_shows_its_curve(made):
    html = made._repr_html_()
    assert f"<td>{100 * made.accuracy:.2f}</td>" in html
    assert "<svg" in html
    assert "<script" not in html


def test_the_plot_is_the_curve(made):
    with matplotlib.rc_context({"backend": "agg"}):
        axes = made.plot()
        accuracy = axes.lines[0]
        assert accuracy.get_xdata().tolist() == [1, 2, 3, 4]
        assert accuracy.get_ydata() == pytest.approx([100 * value for value in made.curve])
        assert made.plot(axes) is axes
        matplotlib.pyplot.close(axes.figure)


def test_frames(made):
    rounds, clients, classes = (made.to_frame(kind) for kind in ("rounds", "clients", "classes"))
    assert rounds["accuracy"].tolist() == made.curve
    assert rounds["round"].tolist() == [0, 1, 2, 3]
    assert clients["samples"].tolist() == [one["samples"] for one in made.clients]
    assert (clients["rounds"] == 4).all()
    assert classes["class"].tolist() == list(made.model.classes)
    assert classes["accuracy"].tolist() == pytest.approx(made.final.per_class, nan_ok=True)
    with pytest.raises(ConfigError, match="kind must be rounds, clients, classes or confusion"):
        made.to_frame("seeds")


def test_confusion_of_a_loaded_run_is_its_accuracy(made):
    loaded = gcfl.load(made.folder)
    counts = loaded.confusion()
    assert counts.shape == (10, 10)
    assert np.trace(counts) / counts.sum() == pytest.approx(made.accuracy)
    totals = counts.sum(axis=1)
    per_class = [hit / n if n else None for hit, n in zip(np.diag(counts), totals, strict=True)]
    assert per_class == pytest.approx(made.final.per_class)
    frame = loaded.to_frame("confusion")
    assert frame.to_numpy().tolist() == counts.tolist()


def test_what_the_run_has_said_confusion_does_not_say_again(tmp_path, caplog):
    path = tmp_path / "t.csv"
    rows = [f"{n % 2 + n / 200:.3f},{n * n % 7},1,{n % 2}" for n in range(100)]
    path.write_text("\n".join(["a,b,c,label", *rows]))
    made = gcfl.run("fedavg", str(path), "logistic", rounds=1, clients=2, out=tmp_path / "runs")
    assert "cut from t.csv" in caplog.text or "cut from t" in caplog.text
    assert "the same value in every row of c" in caplog.text
    caplog.clear()
    assert made.confusion().sum() > 0
    assert caplog.text == ""


def test_confusion_of_arrays(tmp_path):
    draw = np.random.default_rng(0)
    y = np.array(["cat", "dog"])[np.arange(200) % 2]
    x = draw.normal(size=(200, 4)).astype(np.float32) + 2.0 * (y == "dog")[:, None]
    made = gcfl.run(
        "fedavg", (x, y), "logistic", rounds=3, clients=2, validation=20, test=50, out=tmp_path
    )
    assert np.trace(made.confusion()) / 50 == pytest.approx(made.accuracy)
    loaded = gcfl.load(made.folder)
    with pytest.raises(ConfigError, match=r"run\.confusion\(x, y\)"):
        loaded.confusion()
    answers = loaded.predict(x)
    wanted = [[((y == a) & (answers == b)).sum() for b in ("cat", "dog")] for a in ("cat", "dog")]
    assert loaded.confusion(x, y).tolist() == wanted
    assert loaded.predict_proba(x).argmax(1).tolist() == (answers == "dog").astype(int).tolist()
    with pytest.raises(DataError, match="does not know: 'cow'"):
        loaded.confusion(x[:1], ["cow"])
