"""Does a figure grow, and how fast: robust to single outliers, sure of what it says, and nothing of a curve assumed.

The slope is Theil and Sen's: the median of the slopes between all pairs of points; half of a third of the points may be
anything. Whether it is there at all is Mann and Kendall's question: do later points tend to lie higher, more often than
chance would have it?
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from recon.base.lazy import np

if TYPE_CHECKING:
    import numpy.typing as npt

_POINTS = 300  # pairs grow with the square
SURE = 2.58  # standard deviations: one series in a hundred without a trend looks as steep, up or down


@dataclass(frozen=True)
class Line:
    """`y = intercept + slope * x`, through the middle of the points."""

    slope: float
    intercept: float

    def at(self, x: float) -> float:
        """The line's y."""
        return self.intercept + self.slope * x


@dataclass(frozen=True)
class Trend:
    """A line over time, and how sure it is that there is one: `z` standard deviations, negative for falling."""

    line: Line
    z: float

    @property
    def rises(self) -> bool:
        """Whether later values are higher, beyond chance."""
        return self.line.slope > 0 and self.z > SURE


def theil_sen(x: Sequence[float], y: Sequence[float], most: int = _POINTS) -> Line | None:
    """The robust line through points; None when fewer than two x differ.

    Args:
        x: in any order.
        y: of the same length.
        most: of more points, so many evenly chosen by x are used.
    """
    xs, ys = np.asarray(x, float), np.asarray(y, float)
    order = np.argsort(xs, kind="stable")
    if len(order) > most:
        order = order[np.linspace(0, len(order) - 1, most).round().astype(int)]
    xs, ys = xs[order], ys[order]
    i, j = np.triu_indices(len(xs), 1)
    run = xs[j] - xs[i]
    apart = run > 0
    if not apart.any():
        return None
    slope = float(np.median((ys[j] - ys[i])[apart] / run[apart]))
    return Line(slope, float(np.median(ys - slope * xs)))


def trend(seconds: Sequence[float], values: Sequence[float], points: int = 60) -> Trend | None:
    """The trend of a figure over time; None when there are fewer than three instants.

    Neighbours are folded into `points` medians first: micro-batches that follow each other are no independent
    witnesses, and would make chance look sure.
    """
    x, y = _folded(np.asarray(seconds, float), np.asarray(values, float), points)
    line = theil_sen(x.tolist(), y.tolist())
    if len(x) < 3 or line is None:
        return None
    i, j = np.triu_indices(len(y), 1)
    score = float(np.sign(y[j] - y[i]).sum())
    n = len(y)
    ties = np.unique(y, return_counts=True)[1].astype(float)
    variance = (n * (n - 1) * (2 * n + 5) - float((ties * (ties - 1) * (2 * ties + 5)).sum())) / 18
    z = 0.0 if variance <= 0 or score == 0 else (score - np.sign(score)) / variance**0.5
    return Trend(line, float(z))


def _folded(
    x: npt.NDArray[np.floating[Any]], y: npt.NDArray[np.floating[Any]], points: int
) -> tuple[npt.NDArray[np.floating[Any]], npt.NDArray[np.floating[Any]]]:
    order = np.argsort(x, kind="stable")
    x, y = x[order], y[order]
    if len(x) <= points:
        return x, y
    parts = np.array_split(np.arange(len(x)), points)
    return np.array([np.median(x[p]) for p in parts]), np.array([np.median(y[p]) for p in parts])


def quantile(values: Sequence[float], q: float) -> float:
    """A quantile of what was measured, linear between neighbours."""
    return float(np.quantile(np.asarray(values, float), q))
