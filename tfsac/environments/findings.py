"""What a check of an environment finds: the lines of its report."""

from __future__ import annotations

from typing import NamedTuple

OK, WARNING, PROBLEM = "ok", "warning", "problem"


class Finding(NamedTuple):
    """One line of a report: "ok", "warning" or "problem", and what it is about."""

    kind: str
    text: str


class EnvironmentReport(NamedTuple):
    """What `check_environment` found; printed, a line for each finding.

    Attributes:
        name: of the environment.
        findings: in the order in which they were looked for.
    """

    name: str
    findings: tuple[Finding, ...]

    @property
    def problems(self) -> list[str]:
        """What hinders training."""
        return [text for kind, text in self.findings if kind == PROBLEM]

    @property
    def warnings(self) -> list[str]:
        """What may be meant so."""
        return [text for kind, text in self.findings if kind == WARNING]

    @property
    def usable(self) -> bool:
        """Whether there is no problem."""
        return not self.problems

    def __str__(self) -> str:
        lines = [f"  {kind:<8} {text}" for kind, text in self.findings]
        counts = [
            f"{len(x)} {word}{'s' * (len(x) != 1)}"
            for x, word in ((self.problems, PROBLEM), (self.warnings, WARNING))
            if x
        ]
        verdict = "usable" if self.usable else "not usable"
        return "\n".join([f"{self.name}:", *lines, f"{verdict}{': ' if counts else ''}{', '.join(counts)}"])
