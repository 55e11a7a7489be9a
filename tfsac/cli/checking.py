"""The command that looks at an environment before it is trained in: check."""

from __future__ import annotations

from absl import flags

from tfsac.cli.command import command, text, whole
from tfsac.cli.learning import assignments, set_flag
from tfsac.errors import TfsacError


def _check_flags(f: flags.FlagValues) -> None:
    text(f, "level", "environment id, or MODULE:ID of your own")
    text(f, "preset", "take this preset's environment and agent, which must fit it")
    set_flag(f, "path=value, such as environment.kwargs.size=3")
    whole(f, "num_steps", 1000, "random steps")
    whole(f, "seed", 0, "of the episodes and the actions", least=0)


@command("check an environment with random steps", _check_flags)
def check(f: flags.FlagValues, rest: list[str]) -> int:
    """Prints everything that hinders training or may surprise; the exit status is 1 where something hinders."""
    from tfsac.catalog import load_preset
    from tfsac.environments import check_environments, maker, spec_of
    from tfsac.environments.report import PROBLEM
    from tfsac.parameters import Preset, RunParameters, for_level, override

    if not (f.level or f.preset):
        raise TfsacError("--level or --preset is required")
    preset = load_preset(f.preset) if f.preset else Preset()
    if f.level:
        preset = for_level(preset, f.level)
    preset = override(preset, changes := assignments(f))
    environment = preset.environment
    with_agent = bool(f.preset) or not all(path.startswith("environment.") for path in changes)
    print(f"tfsac check: {environment.level}, {f.num_steps} random steps, seed {f.seed}", flush=True)
    report = check_environments(environment, f.num_steps, f.seed)
    if report.usable and with_agent:
        try:
            (env := maker(environment)()).close()
            from tfsac.training.build import build_agent

            build_agent(preset, RunParameters(), spec_of(env))
        except (ValueError, TypeError) as error:
            report = report._replace(findings=(*report.findings, (PROBLEM, str(error))))
    print(report)
    return 0 if report.usable else 1
