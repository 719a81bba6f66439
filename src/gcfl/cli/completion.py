"""`gcfl completion bash|zsh|fish`: a script that completes verbs, flags, settings and their values.

It is made from the parser and from words.json beside this file, which holds the names that only
torch's rooms know, so that it answers at once. A test says where words.json is not what is there,
and `python -m gcfl.cli.completion` writes it anew.
"""

from __future__ import annotations

import argparse
import json
import shlex
from importlib import resources
from typing import Any

from gcfl.cli.settings import add_verb

_WORDS = "words.json"
_BASH = """\
_gcfl() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}} words=""
  case "$prev" in
{values}
    *)
      case "${{COMP_WORDS[1]}} ${{COMP_WORDS[2]}}" in
{verbs}
        *) words={top} ;;
      esac ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
  if [[ $cur != -* && ${{#COMPREPLY[@]}} -eq 0 ]]; then
    COMPREPLY=($(compgen -f -- "$cur"))
  fi
}}
complete -o filenames -F _gcfl gcfl
"""
_HELP = """\
Print a script that completes verbs, flags, settings and their values. For example:
  gcfl completion bash > ~/.local/share/bash-completion/completions/gcfl
  gcfl completion zsh >> ~/.zshrc
  gcfl completion fish > ~/.config/fish/completions/gcfl.fish
"""


def add(verbs: Any, common: argparse.ArgumentParser) -> None:
    about = "a script that completes commands in a shell: bash, zsh or fish"
    parser = add_verb(verbs, common, "completion", _print, about, description=_HELP)
    parser.add_argument("shell", choices=["bash", "zsh", "fish"])
    parser.set_defaults(verbs=verbs)


def _print(options: argparse.Namespace, _: list[str]) -> None:
    lines = flags(options.verbs)
    if options.shell == "fish":
        print("\n".join(_fish(lines)))
        return
    if options.shell == "zsh":
        print("autoload -U +X compinit bashcompinit && compinit && bashcompinit")
    print(_bash(lines))


def flags(verbs: Any) -> dict[str, list[str]]:
    """By verb, or by 'verb action': what may follow it."""
    known = words()
    settings = [f"--{name}" for name in (*known["short"], *known["settings"])]
    found: dict[str, list[str]] = {}

    def walk(path: str, parser: argparse.ArgumentParser) -> None:
        found[path] = list(settings) if parser.get_default("takes_settings") else []
        for action in parser._actions:
            found[path] += [one for one in action.option_strings if one.startswith("--")]
            if isinstance(action.choices, dict):  # verbs that this one leads to
                found[path] += list(action.choices)
                for name, inner in action.choices.items():
                    walk(f"{path} {name}", inner)
            elif action.choices and not action.option_strings:
                found[path] += list(map(str, action.choices))

    for name, parser in verbs.choices.items():
        walk(name, parser)
    return found


def words() -> dict[str, Any]:
    """methods, data, models: names. short: everyday settings, by their short names. settings: every
    setting's choices, none where it has no list of them.
    """
    text = resources.files("gcfl.cli").joinpath(_WORDS).read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def _choices() -> dict[str, list[str]]:
    """By flag, what its value may be."""
    known = words()
    found = {f"--{name}": values for name, values in known["settings"].items() if values}
    found |= {"--method": known["methods"], "--data": known["data"], "--model": known["models"]}
    return found


def _bash(lines: dict[str, list[str]]) -> str:
    # longer paths first: 'data list' before 'data'
    ordered = sorted(lines.items(), key=lambda pair: -len(pair[0].split()))
    verbs = [
        f"        {shlex.quote(path) if ' ' in path else path}"
        f"{'' if ' ' in path else chr(92) + ' *'}) words={shlex.quote(' '.join(options))} ;;"
        for path, options in ordered
    ]
    values = [
        f"    {flag}) words={shlex.quote(' '.join(choices))} ;;"
        for flag, choices in _choices().items()
    ]
    top = shlex.quote(" ".join(path for path in lines if " " not in path))
    return _BASH.format(values="\n".join(values), verbs="\n".join(verbs), top=top)


def _fish(lines: dict[str, list[str]]) -> list[str]:
    choices = _choices()
    top = " ".join(path for path in lines if " " not in path)
    found = [f"complete -c gcfl -n __fish_use_subcommand -f -a {shlex.quote(top)}"]
    for path, options in lines.items():
        seen = " ; and ".join(f"__fish_seen_subcommand_from {word}" for word in path.split())
        start = f"complete -c gcfl -n {shlex.quote(seen)}"
        plain = [one for one in options if not one.startswith("--")]
        found += [f"{start} -a {shlex.quote(' '.join(plain))}"] if plain else []
        for flag in (one for one in options if one.startswith("--")):
            values = f" -x -a {shlex.quote(' '.join(choices[flag]))}" if flag in choices else ""
            found.append(f"{start} -l {flag[2:]}{values}")
    return found


def collected() -> dict[str, Any]:
    """What words.json must hold, asked of those who know."""
    from gcfl.cli.listing import choices_of
    from gcfl.data import SOURCES
    from gcfl.experiment import SHORT, every_setting
    from gcfl.methods import WORDS
    from gcfl.models import MODELS

    return {
        "methods": list(WORDS),
        "data": list(SOURCES),
        "models": list(MODELS),
        "short": list(SHORT),
        "settings": {name: choices_of(name) for name in every_setting()},
    }


if __name__ == "__main__":
    with resources.as_file(resources.files("gcfl.cli").joinpath(_WORDS)) as path:
        path.write_text(json.dumps(collected(), indent=1) + "\n", encoding="utf-8")
