"""The commands for policies that others get: card writes a model card, load plays one."""

from __future__ import annotations

from absl import flags

from tfsac.cli.command import command, counted, required, switch, text, texts, whole
from tfsac.cli.results import print_evaluation


def _card_flags(f: flags.FlagValues) -> None:
    texts(
        f, "run_dir", "the folder of a run, of a sweep or of its combination; several runs differ in their seeds alone"
    )
    text(f, "out", "a new folder")
    whole(f, "episodes", 20, "number of episodes, of every run")
    whole(f, "seed", 0, "of the episodes", least=0)
    text(f, "license", "identifier for the card, such as apache-2.0")


@command("write the best policy of a run as a model card, for others", _card_flags)
def card(f: flags.FlagValues, rest: list[str]) -> int:
    """Writes a folder in the layout of a Hugging Face model repository."""
    run_dirs, out = required(f, "run_dir"), required(f, "out")
    from tfsac.cards.writing import write_card

    written_card = write_card(run_dirs, out, f.episodes, f.seed, f.license)
    results = written_card.results
    for run in results["runs"] if len(results["runs"]) > 1 else ():
        print(f"seed {run['seed']:<4} mean {run['mean']:.2f}  std {run['std']:.2f}")
    if len(results["runs"]) > 1:
        exported, choice_mean = results["exported_seed"], results["choice_mean"]
        print(f"export  seed {exported}, whose mean in other episodes is the highest: {choice_mean:.2f}")
    print(f"return  mean {results['mean']:.2f}  std {results['std']:.2f}  over {counted(f.episodes, 'episode')}")
    for name, reason in written_card.left_out.items():
        print(f"without {name}: {reason}")
    print(f"card    {written_card.path}")
    return 0


def _load_flags(f: flags.FlagValues) -> None:
    text(f, "card", "the folder of a model card")
    whole(f, "episodes", None, "number of episodes (default: the card's)")
    switch(f, "stochastic", "sample actions instead of taking the policy's mode")
    whole(f, "seed", None, "of the episodes (default: the card's)", least=0)
    switch(f, "render", "open a window")
    text(f, "dump_mp4", "write a video (.mp4 or .gif) to this file")


@command("play the policy of a model card", _load_flags)
def load(f: flags.FlagValues, rest: list[str]) -> int:
    """Prints the returns of episodes beside those that the card tells."""
    folder = required(f, "card")
    from tfsac import api
    from tfsac.cards.card import load_card

    loaded = load_card(folder)
    try:
        evaluation = loaded.evaluate(f.episodes, not f.stochastic, f.seed, "human" if f.render else "", f.dump_mp4)
    except api.DrawingError as error:
        print_evaluation(error.evaluation, len(error.evaluation.returns))
        raise
    print_evaluation(evaluation, len(evaluation.returns))
    if results := loaded.results:
        episodes = counted(len(results["returns"]), "episode")
        print(f"card    mean {results['mean']:.2f}  std {results['std']:.2f}  over {episodes}")
    if f.dump_mp4:
        print(f"video   {f.dump_mp4}")
    return 0
