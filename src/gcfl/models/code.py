"""Models of one's own code: from Python, from a file, or from a package that can be imported.

A maker (a class or function) is called under the run's seed, with `shape` and `classes` by name
where it has parameters of these names, and with model.arguments.
"""

from __future__ import annotations

import ast
import copy
import hashlib
import importlib
import importlib.util
import inspect
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from gcfl.base import rng
from gcfl.base.errors import ModelError, did_you_mean, one_line

# A module, or a class or function that makes one, which is called under the run's seed.
ModelGiven = nn.Module | Callable[..., nn.Module]
GIVEN = "the class or function given as model"


def is_code(name: str) -> bool:
    """Whether this is file.py:make or package.module:Class, not the name of a network of ours."""
    return ":" in name or name.endswith(".py")


def module_of(
    given: ModelGiven | None,
    seed: int,
    shape: tuple[int, ...],
    classes: int,
    arguments: Mapping[str, Any] | None = None,
) -> nn.Module | None:
    """The module that came from Python, as a copy of its own; None where none did."""
    if given is None or isinstance(given, nn.Module):
        if given is not None and arguments:
            raise ModelError("model.arguments are for a class or function, not for a module")
        return copy.deepcopy(given)
    if not callable(given):
        raise ModelError(
            "model must be a name, a torch module or a function that makes one, got "
            f"{type(given).__name__}"
        )
    with rng.isolated(seed, "init"):
        return _called(given, GIVEN, shape, classes, arguments or {})


def made_by(
    name: str,
    seed: int,
    shape: tuple[int, ...],
    classes: int,
    arguments: Mapping[str, Any] | None = None,
) -> nn.Module:
    """What file.py:make or package.module:Class makes. This runs the code."""
    place, maker = _split(name)
    with _on_path(_root(place)):
        with rng.isolated(0, "import"):  # what a file draws when it is read is nobody's
            found: Any = _imported(place)
        for step in maker.split("."):
            names = [one for one in vars(found) if not one.startswith("_")]
            if not hasattr(found, step):
                near = did_you_mean(step, names)
                raise ModelError(f"model.name {name!r}: {place} has no {step!r}{near}")
            found = getattr(found, step)
        if isinstance(found, nn.Module) or not callable(found):
            raise ModelError(
                f"model.name {name!r} must be a class or function that makes the model, got "
                f"{type(found).__name__}"
            )
        with rng.isolated(seed, "init"):
            return _called(found, name, shape, classes, arguments or {})


def whole_name(name: str) -> str:
    """With a whole path where the code lies in a file of one's own, so that it is found from any
    folder; what is installed keeps its name.
    """
    place, maker = _split(name)
    if place.endswith(".py"):
        return f"{_file(place)}:{maker}"
    with _on_path(Path.cwd()), rng.isolated(0, "import"):
        origin = getattr(_imported(place), "__file__", None)
    own = origin is not None and Path(origin).is_relative_to(Path.cwd())
    return f"{origin}:{maker}" if own and "site-packages" not in str(origin) else name


def check_named(name: str, folder: Path) -> None:
    """Whether the code that a run folder names as its model may be run. The folder may be a
    stranger's, so that it must not choose what is called: a class or function that a file of one's
    own defines, outside the folder, or an installed class that is a torch module.
    """
    place, maker = _split(name)
    if not place.endswith(".py"):
        with _on_path(Path.cwd()), rng.isolated(0, "import"):
            found: Any = _imported(place)
            for step in maker.split("."):
                found = getattr(found, step, None)
        good = isinstance(found, type) and issubclass(found, nn.Module)
    else:
        path = _file(place).resolve()
        if path.is_relative_to(folder.resolve()):
            raise ModelError(f"{folder} names code of its own as its model, which is never run")
        paths = sysconfig.get_paths()
        libraries = ("stdlib", "platstdlib", "purelib", "platlib")
        installed = [Path(paths[kind]).resolve() for kind in libraries]
        good = maker in _defined(path) and not any(map(path.is_relative_to, installed))
    if not good:
        raise ModelError(
            f"{folder} names {name} as its model, which is neither a torch module nor defined in a "
            "file of your own, and is not run"
        )


def _defined(path: Path) -> list[str]:
    """The classes and functions that a file defines, without running it."""
    try:
        parsed = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, RecursionError, OSError) as error:
        raise ModelError(f"model.name: {path} cannot be read: {one_line(error)}") from None
    return [one.name for one in parsed.body if isinstance(one, ast.ClassDef | ast.FunctionDef)]


def file_of(name: str) -> Path | None:
    """The file that a name says, if it says one."""
    place, _ = _split(name)
    return Path(place).expanduser().absolute() if place.endswith(".py") else None


def renamed(name: str, path: str) -> str:
    """The same maker in another file."""
    return f"{path}:{_split(name)[1]}"


def in_package(path: Path) -> bool:
    return (path.parent / "__init__.py").exists()


def _split(name: str) -> tuple[str, str]:
    place, _, maker = name.rpartition(":")
    if not place or not maker:
        raise ModelError(
            f"model.name {name!r} must say what makes the model: file.py:make or "
            "package.module:Class"
        )
    return place, maker


def _file(place: str) -> Path:
    path = Path(place).expanduser().absolute()
    if not path.is_file():
        raise ModelError(f"model.name: there is no file {path}")
    return path


def _root(place: str) -> Path:
    """The folder that imports start from: the file's, or the one that its package lies in."""
    if not place.endswith(".py"):
        return Path.cwd()
    folder = _file(place).parent
    while (folder / "__init__.py").exists():
        folder = folder.parent
    return folder


@contextmanager
def _on_path(folder: Path) -> Iterator[None]:
    """Inside, modules of this folder can be imported; installed ones win."""
    there = str(folder) in sys.path
    if not there:
        sys.path.append(str(folder))
    try:
        yield
    finally:
        if not there and str(folder) in sys.path:
            sys.path.remove(str(folder))


def _imported(place: str) -> ModuleType:
    try:
        return _from_file(_file(place)) if place.endswith(".py") else importlib.import_module(place)
    except ModelError:
        raise
    except ModuleNotFoundError as error:
        parts = place.split(".")
        if error.name in [".".join(parts[:end]) for end in range(1, len(parts) + 1)]:
            raise ModelError(
                f"model.name: there is no module {error.name!r}, neither installed nor in "
                f"{Path.cwd()}"
            ) from None
        raise ModelError(f"model.name: importing {place} failed: {one_line(error)}") from error
    except (Exception, SystemExit) as error:  # somebody's own code raises what it likes
        raise ModelError(f"model.name: importing {place} failed: {one_line(error)}") from error


def _from_file(path: Path) -> ModuleType:
    """A file by itself is run anew, under a name of its own; one of a package is imported."""
    if in_package(path):
        inside = path.relative_to(_root(str(path))).with_suffix("")
        dotted = ".".join(part for part in inside.parts if part != "__init__")
        module = importlib.import_module(dotted)
        if not module.__file__ or Path(module.__file__).resolve() != path.resolve():
            raise ModelError(
                f"model.name: {path} is hidden by another module that is called {dotted!r}"
            )
        return module
    name = f"gcfl_model_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ModelError(f"model.name: {path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _called(
    maker: Callable[..., Any],
    name: str,
    shape: tuple[int, ...],
    classes: int,
    arguments: Mapping[str, Any],
) -> nn.Module:
    known: dict[str, Any] = dict(arguments)
    try:
        signature = inspect.signature(maker)
        named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        for key, fact in {"shape": shape, "classes": classes}.items():
            if key in signature.parameters and signature.parameters[key].kind in named:
                known.setdefault(key, fact)
        signature.bind(**known)
    except ValueError:  # what is not written in Python has no signature
        pass
    except TypeError as error:
        raise ModelError(
            f"{name} must work without arguments but shape, classes and model.arguments "
            f"({one_line(error)})"
        ) from error
    try:
        made = maker(**known)
    except (Exception, SystemExit) as error:  # somebody's own code raises what it likes
        raise ModelError(f"{name} failed: {one_line(error)}") from error
    if not isinstance(made, nn.Module):
        raise ModelError(f"{name} must return a torch module, got {type(made).__name__}")
    return made
