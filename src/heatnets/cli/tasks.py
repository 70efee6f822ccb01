"""What a problem file and the command line ask for, and a certified point in JSON types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from heatnets._core.errors import HeatnetsError, InputError
from heatnets.cli import point_files, terminal

if TYPE_CHECKING:
    from heatnets.certify.certificate import Certificate
    from heatnets.io.problem_files import CertifyRequest, ProblemFile
    from heatnets.solution import Solution
    from heatnets.solvers.options import SolveOptions

    CertifiedPoint = tuple[CertifyRequest, Certificate]

INTERVAL = ("value", "low", "high", "halfwidth")


class Task(NamedTuple):
    """What a problem file and the command line ask for."""

    file: ProblemFile
    requests: list[CertifyRequest]
    options: dict[str, Any]
    checked: SolveOptions

    @classmethod
    def read(
        cls,
        file: Path,
        at: Path | None,
        arguments: Mapping[str, Any],
        changes: Any = None,
        lines: str | None = None,
    ) -> Task:
        """Read the problem file and the file of points; errors are raised before any work.

        Args:
            file: the problem file.
            at: the file of points, or None.
            arguments: keywords of `hn.solve`, which replace those of the file.
            changes: other values for keys of the file.
            lines: what standard input held, if `at` is - and it was read before.
        """
        import heatnets as hn
        from heatnets.io.problem_files import CertifyRequest, check_options

        problem_file = hn.read(file, changes)
        problem, requests = problem_file.problem, list(problem_file.points)
        options = {**problem_file.options, **arguments}
        if at is not None:
            t, x, _ = problem.as_points(*point_files.read(at, problem, lines))
            requests += [CertifyRequest(float(a), b, {}) for a, b in zip(t, x, strict=True)]
        return cls(problem_file, requests, options, check_options(problem, options))

    def certify(
        self, u: Solution, console: Any, translate: Callable[[str], str] = str
    ) -> tuple[list[CertifiedPoint], list[str]]:
        """The certificates of all points, and messages about those that failed.

        `translate` puts the reasons into the words of the problem file.
        """
        certificates, failed = list["CertifiedPoint"](), list[str]()
        with terminal.CountBar(console, "certificates", len(self.requests)) as next_call:
            for request in self.requests:
                options = {"seed": u.stats["seed"], **request.options}
                try:
                    cert = u.certify(request.t, request.x, progress=next_call(), **options)
                    reasons = tuple(map(translate, cert.reasons))
                    certificates.append((request, replace(cert, reasons=reasons)))
                except HeatnetsError as error:
                    failed.append(f"no certificate at t = {request.t:g}: {error}")
        return certificates, failed


def check_apart(*paths: Path | None) -> None:
    """Raise `InputError` if two of the files of a command are the same one."""
    given = [path.resolve() for path in paths if path is not None and str(path) != "-"]
    if len(set(given)) < len(given):
        raise InputError(
            "two of FILE, --out, --at, --report and --values are the same file: name them apart."
        )


def flag(u: Solution, request: CertifyRequest) -> str:
    """A note if the point lies outside the region."""
    import numpy as np

    return point_files.flags(u.problem, np.array([request.t]), request.x[None])[0]


def describe_point(u: Solution, request: CertifyRequest, cert: Certificate) -> dict[str, Any]:
    """A certified point in JSON types; None for a value that may not be shown.

    A value may be shown if it is certified, or if the network solves the problem.
    """
    solved, certified = u.solved is not False, bool(cert.certified)
    return {
        "t": request.t,
        "x": request.x.tolist(),
        **{k: float(getattr(cert, k)) if solved or certified else None for k in INTERVAL},
        "certified": certified,
        "network": float(cert.network) if solved else None,
        "outside": bool(cert.outside) if solved else None,
        "confidence": cert.confidence,
        "samples": int(cert.samples),
        "reasons": list(cert.reasons),
        "note": flag(u, request),
    }
