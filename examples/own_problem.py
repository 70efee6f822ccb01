"""A problem stated in a file, own_problem.toml, as `heatnets solve` reads it."""

from pathlib import Path

import heatnets as hn

stated = hn.read(Path(__file__).with_suffix(".toml"))
problem = stated.problem


def main(out: Path | None = None) -> dict[str, float]:
    u = hn.solve(problem, **stated.options)
    t, x, _ = stated.points[0]
    sure, truth = u.certify(t, x), float(hn.exact_values(problem, t, x))
    print(f"u(1, x)    {sure.value:.4f}")
    print(f"exact      {truth:.4f}")
    print(f"error, L2  {hn.measure(u).l2:.0e}")
    if out is not None:
        hn.plots.save(hn.plots.slices(u), out)
    numbers = {
        "value": u(t, x),
        "exact": truth,
        "error": hn.measure(u).l2,
        "low": sure.low,
        "high": sure.high,
    }
    return {name: float(number) for name, number in numbers.items()}


if __name__ == "__main__":
    main(Path("own_problem.png"))
