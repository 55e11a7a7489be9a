"""The command that prints what a shell needs to complete tfsac's commands, flags and values."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from typing import NamedTuple

from absl import flags

from tfsac.cli.command import COMMANDS, UsageError, command, help_of

FOLDERS = ("run_dir", "checkpoint_restore_dir", "card")
FILES = ("out", "dump_mp4", "plot_actions")


class Completed(NamedTuple):
    """One flag of a command.

    Attributes:
        name, help: of the flag.
        boolean: whether it stands without a value.
        repeated: whether it may be given several times.
        values: to choose from; empty for any.
        kind: "folder", "file", or "preset" for a file beside the values; "" for none of these.
    """

    name: str
    help: str
    boolean: bool
    repeated: bool
    values: tuple[str, ...]
    kind: str


@command("print a script for completion by bash, zsh or fish", lambda f: None, "bash | zsh | fish")
def completion(f: flags.FlagValues, rest: list[str]) -> int:
    """Prints the script of a shell."""
    scripts: dict[str, Callable[[], str]] = {"bash": bash, "zsh": zsh, "fish": fish}
    if len(rest) != 1 or rest[0] not in scripts:
        raise UsageError(f"The completion is for one shell, bash, zsh or fish. Received: {' '.join(rest) or 'none'}")
    print(scripts[rest[0]]())
    return 0


def completed(name: str) -> Iterator[Completed]:
    """Yields the flags of a command."""
    from tfsac.catalog import preset_names

    COMMANDS[name].define(f := flags.FlagValues())
    for flag_name in f:
        flag = f[flag_name]
        values = tuple(flag.parser.enum_values) if isinstance(flag, flags.EnumFlag) else ()
        kind = "folder" if flag_name in FOLDERS else "file" if flag_name in FILES else ""
        if flag_name == "preset":
            values, kind = tuple(preset_names()), "preset"
        yield Completed(flag_name, help_of(flag), flag.boolean, isinstance(flag, flags.MultiFlag), values, kind)


def words_of(name: str) -> tuple[str, ...]:
    """Returns the words that a command takes, as far as they are known."""
    return ("bash", "zsh", "fish") if name == "completion" else ()


def bash() -> str:
    """Returns the script of bash."""
    flags_of, values_of = [], []
    for name in COMMANDS:
        listed = list(completed(name))
        flags_of.append(
            f"        {name}) "
            f"flags={shlex.quote(' '.join(f'--{flag.name}' + ('' if flag.boolean else '=') for flag in listed))} ;;"
        )
        for flag in listed:
            kind = {"folder": " kind=-d", "file": " kind=-f", "preset": " kind=-f"}.get(flag.kind, "")
            values = "true false" if flag.boolean else " ".join(flag.values)
            if values or kind:
                values_of.append(f"        {name}:--{flag.name}) values={shlex.quote(values)}{kind} ;;")
    return BASH.format(commands=" ".join(COMMANDS), flags="\n".join(flags_of), values="\n".join(values_of))


def zsh() -> str:
    """Returns the script of zsh."""
    described = [_zsh_quoted(f"{name}:{entry.help}") for name, entry in COMMANDS.items()]
    cases = []
    for name, entry in COMMANDS.items():
        lines = []
        for flag in completed(name):
            text = flag.help.replace("[", r"\[").replace("]", r"\]").replace(":", r"\:")
            action = {"folder": "_files -/", "file": "_files", "preset": "_tfsac_presets"}.get(
                flag.kind
            ) or f"({' '.join(flag.values)})"
            value = "" if flag.boolean else f"=[{text}]:{flag.name}:{action if action != '()' else ' '}"
            lines.append(_zsh_quoted(f"{'*' if flag.repeated else ''}--{flag.name}{value or f'[{text}]'}"))
        if entry.words:
            known = words_of(name)
            lines.append(_zsh_quoted(f"*:word:{f'({chr(32).join(known)})' if known else '_files -/'}"))
        cases.append(f"    {name}) _arguments " + " \\\n      ".join(lines or ["'*: :'"]) + " ;;")
    names = " ".join(next(flag.values for flag in completed("train") if flag.name == "preset"))
    return ZSH.format(described="\n    ".join(described), cases="\n".join(cases), presets=names)


def fish() -> str:
    """Returns the script of fish."""
    lines = [
        "# Completion of tfsac by fish: tfsac completion fish > ~/.config/fish/completions/tfsac.fish",
        "complete -c tfsac -f",
    ]
    for name, entry in COMMANDS.items():
        lines.append(f"complete -c tfsac -n __fish_use_subcommand -a {name} -d {_fish_quoted(entry.help)}")
        seen = f"complete -c tfsac -n '__fish_seen_subcommand_from {name}'"
        for flag in completed(name):
            chosen = f" -a {_fish_quoted(' '.join(flag.values))}" if flag.values else ""
            value = "" if flag.boolean else f" -r{' -F' if flag.kind else ' -f'}{chosen}"
            lines.append(f"{seen} -l {flag.name}{value} -d {_fish_quoted(flag.help)}")
        if entry.words:
            known = words_of(name)
            lines.append(f"{seen} -a {_fish_quoted(' '.join(known))}" if known else f"{seen} -F")
    return "\n".join(lines)


def _zsh_quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


BASH = """# Completion of tfsac by bash. In ~/.bashrc: source <(tfsac completion bash)
_tfsac() {{
    local line=${{COMP_LINE:0:COMP_POINT}} flags= values= kind= prefix= found=
    local word=${{line##*[[:space:]]}}
    local -a words
    read -ra words <<< "$line"
    [[ -n $word ]] || words+=("")
    local command=${{words[1]}} before=${{words[${{#words[@]}}-2]}}
    COMPREPLY=()
    if [[ ${{#words[@]}} -le 2 || ( $command == help && ${{#words[@]}} -eq 3 ) ]]; then
        COMPREPLY=($(compgen -W "{commands} help --help --version" -- "$word"))
        return
    fi
    case $command in
{flags}
    esac
    local flag=$before
    case $word in
    --*=*) flag=${{word%%=*}} prefix=$flag= word=${{word#*=}} ;;
    -*)
        COMPREPLY=($(compgen -W "$flags --help" -- "$word"))
        [[ ${{COMPREPLY[0]}} == *= ]] && compopt -o nospace 2> /dev/null
        return ;;
    esac
    case $command:$flag in
{values}
        completion:*) values="bash zsh fish" ;;
        plot:*|compare:*) kind=-d ;;
    esac
    COMPREPLY=()
    while IFS= read -r found; do COMPREPLY+=("$found"); done < <(compgen ${{kind:-}} -W "$values" -- "$word")
    [[ -n $kind ]] && compopt -o filenames 2> /dev/null
    # Where bash takes the equals sign for the end of a word, only what follows is replaced.
    [[ $COMP_WORDBREAKS == *=* ]] || COMPREPLY=("${{COMPREPLY[@]/#/$prefix}}")
}}
complete -F _tfsac tfsac"""

ZSH = """#compdef tfsac
# Completion of tfsac by zsh. In ~/.zshrc, after compinit: source <(tfsac completion zsh)
_tfsac_presets() {{
  _alternative 'names:preset:({presets})' 'files:file:_files -g "*.(py|json)"'
}}
_tfsac() {{
  local -a commands
  commands=(
    {described}
  )
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  local name=$words[2]
  shift words
  (( CURRENT-- ))
  case $name in
{cases}
  esac
}}
compdef _tfsac tfsac"""
