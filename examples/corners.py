"""Harris corners of two photographs: a stencil pipeline with halos, planned, checked, run by four worker processes.

    python examples/corners.py                       # needs scikit-learn (the photographs) and pillow (the picture)
    tapestry plan examples/corners.py:corners --machine cpu-4 --set y=427 x=640

First this computer is measured, quickly, and what the plan does on it, so that the prediction is one of this computer
(--machine cpu-4 takes a described machine instead, and says how far off it is here).

The result is compared with the reference and with scipy.ndimage. Leaves build/corners.png (the photograph with its
corners), build/corners.plan.json and build/corners.html (shard map of every tensor over the photograph, and the
timeline, predicted against measured).

Harris and Stephens, "A combined corner and edge detector", Alvey Vision Conference 1988: R = det M - k trace(M)^2, M
the Gaussian-weighted sum of products of gradients.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tapestry as tp
from tapestry import Tensor, f32

if TYPE_CHECKING:
    import numpy as np

    from tapestry.planner import Plan

WORKERS, STEPS = 4, 15
SIGMA, RADIUS, K = 1.5, 4, 0.05
GAUSS = [math.exp(-0.5 * (t / SIGMA) ** 2) for t in range(-RADIUS, RADIUS + 1)]
WEIGHTS = [w / sum(GAUSS) for w in GAUSS]


@tp.op
def luma(rgb: f32[Tensor, "y x 3"]) -> f32[Tensor, "y x"]:
    """Brightness of a photograph with values 0...255, scaled to 0...1 (ITU-R BT.601 weights)."""
    y, x = tp.indices("y x")
    return (0.299 * rgb[y, x, 0] + 0.587 * rgb[y, x, 1] + 0.114 * rgb[y, x, 2]) * (1 / 255)


@tp.op
def sobel_x(a: f32[Tensor, "y x"]) -> f32[Tensor, "y x"]:
    """Horizontal gradient; outside the image is 0."""
    y, x = tp.indices("y x")
    right = a.get[y - 1, x + 1] + 2 * a.get[y, x + 1] + a.get[y + 1, x + 1]
    left = a.get[y - 1, x - 1] + 2 * a.get[y, x - 1] + a.get[y + 1, x - 1]
    return right - left


@tp.op
def sobel_y(a: f32[Tensor, "y x"]) -> f32[Tensor, "y x"]:
    """Vertical gradient; outside the image is 0."""
    y, x = tp.indices("y x")
    below = a.get[y + 1, x - 1] + 2 * a.get[y + 1, x] + a.get[y + 1, x + 1]
    above = a.get[y - 1, x - 1] + 2 * a.get[y - 1, x] + a.get[y - 1, x + 1]
    return below - above


@tp.op
def blur_y(a: f32[Tensor, "y x"]) -> f32[Tensor, "y x"]:
    """Gaussian window down the columns."""
    y, x = tp.indices("y x")
    total = WEIGHTS[RADIUS] * a[y, x]
    for t in range(1, RADIUS + 1):
        total = total + WEIGHTS[RADIUS + t] * (a.get[y - t, x] + a.get[y + t, x])
    return total


@tp.op
def blur_x(a: f32[Tensor, "y x"]) -> f32[Tensor, "y x"]:
    """Gaussian window along the rows."""
    y, x = tp.indices("y x")
    total = WEIGHTS[RADIUS] * a[y, x]
    for t in range(1, RADIUS + 1):
        total = total + WEIGHTS[RADIUS + t] * (a.get[y, x - t] + a.get[y, x + t])
    return total


@tp.op
def harris(xx: f32[Tensor, "y x"], yy: f32[Tensor, "y x"], xy: f32[Tensor, "y x"]) -> f32[Tensor, "y x"]:
    """det M - k trace(M)^2."""
    y, x = tp.indices("y x")
    trace = xx[y, x] + yy[y, x]
    return xx[y, x] * yy[y, x] - xy[y, x] * xy[y, x] - K * trace * trace


@tp.op
def peaks(r: f32[Tensor, "y x"], *, threshold: float) -> f32[Tensor, "y x"]:
    """The response where it is the largest of its 3 x 3 neighbourhood and above the threshold, else 0."""
    y, x = tp.indices("y x")
    around = r[y, x]
    for dy, dx in ((-1, -1), (-1, 0), (-1, 1), (0, -1), (0, 1), (1, -1), (1, 0), (1, 1)):
        around = tp.maximum(around, r.get[y + dy, x + dx])
    return tp.where((r[y, x] >= around) & (r[y, x] > threshold), r[y, x], 0.0)


@tp.program
def corners(photo: f32[Tensor, "y x 3"], *, threshold: float = 0.5) -> dict[str, Tensor]:
    """Response and corners of one photograph."""
    grey = luma(photo)
    gx, gy = sobel_x(grey), sobel_y(grey)
    xx = blur_x(blur_y(gx * gx))
    yy = blur_x(blur_y(gy * gy))
    xy = blur_x(blur_y(gx * gy))
    response = harris(xx, yy, xy)
    return {"response": response, "corners": peaks(response, threshold=threshold)}


def by_scipy(photo: np.ndarray) -> np.ndarray:
    """The same response in float64 by scipy.ndimage: nothing of tapestry."""
    from scipy import ndimage

    grey = photo.astype("float64") @ [0.299, 0.587, 0.114] / 255
    gx = ndimage.sobel(grey, axis=1, mode="constant")
    gy = ndimage.sobel(grey, axis=0, mode="constant")

    def window(a: np.ndarray) -> np.ndarray:
        smooth: np.ndarray = ndimage.gaussian_filter(a, SIGMA, mode="constant", radius=RADIUS)
        return smooth

    xx, yy, xy = window(gx * gx), window(gy * gy), window(gx * gy)
    response: np.ndarray = xx * yy - xy * xy - K * (xx + yy) ** 2
    return response


def draw(photo: np.ndarray, found: np.ndarray, path: Path) -> int:
    """Mark the corners on the photograph; returns how many."""
    import numpy as np
    from PIL import Image, ImageDraw

    image = Image.fromarray(photo.astype("uint8")).resize((photo.shape[1] * 2, photo.shape[0] * 2))
    pen = ImageDraw.Draw(image)
    rows, columns = np.nonzero(found)
    for y, x in zip(rows.tolist(), columns.tolist(), strict=True):
        pen.ellipse((2 * x - 4, 2 * y - 4, 2 * x + 5, 2 * y + 5), outline=(255, 40, 40), width=2)
    image.save(path)
    return len(rows)


def main() -> None:
    """Plan, check, run and compare both photographs; write the first one's files."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--build", type=Path, default=Path("build"), help="folder for the results")
    parser.add_argument("--engine", choices=("torchrun", "local"), default="torchrun")
    parser.add_argument("--machine", help="a machine that is described, instead of probing this one")
    options = parser.parse_args()
    try:
        options.build.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"--build {options.build}: {error.strerror}")
    from sklearn.datasets import load_sample_images

    photos = [photo.astype("float32") for photo in load_sample_images().images]
    made = planned(photos[0].shape, options.engine, options.machine)  # both photographs have one size
    print(made)
    print(made.check())
    for number, photo in enumerate(photos):
        process(made, photo, options.engine, options.build if number == 0 else None)


def planned(shape: tuple[int, ...], engine: str, machine: str | None) -> Plan:
    """A plan over four workers: on a described machine, or on this one, probed."""
    from tapestry.planner import plan
    from tapestry.planner.probe.here import measured_program, probe_machine

    program = corners.bind(y=shape[0], x=shape[1])
    if machine is not None:
        return plan(program, machine, mesh=(WORKERS,))
    here = probe_machine(name="here", engine=engine, ranks=WORKERS, quick=True, say=print)
    return measured_program(here, program, engine=engine, quick=True, say=print)[1]


def process(made: Plan, photo: np.ndarray, engine: str, build: Path | None) -> None:
    """One photograph, from its run to the comparison."""
    import numpy as np

    from tapestry.reference import evaluate

    run = made.run({"photo": photo}, engine=engine, repeat=STEPS)
    response, found = run.outputs["response"], run.outputs["corners"]
    exact, reference = by_scipy(photo), evaluate(made.program, {"photo": photo})
    scale, predicted = float(np.abs(exact).max()), made.document.predicted.makespan_s
    print(
        f"ran by {WORKERS} workers ({engine}) in {run.wall_s * 1e3:.1f} ms, the median of {STEPS} steps; "
        f"predicted {predicted * 1e3:.1f} ms, measured over predicted {run.wall_s / predicted:.2f}"
    )
    print(f"bytes moved: {run.bytes_moved:,} counted, {made.document.traffic.bytes_total:,} planned")
    print(f"largest error of the response, of its largest value {scale:.3g}:")
    print(f"  against the reference      {_error(response, reference['response'], scale):.2e}")
    print(f"  against scipy.ndimage      {_error(response, exact, scale):.2e}")
    if build is not None:
        write(made, run, photo, found, build)


def _error(got: np.ndarray, want: np.ndarray, scale: float) -> float:
    import numpy as np

    return float(np.abs(got - want).max() / scale)


def write(made: Plan, run: Any, photo: np.ndarray, found: np.ndarray, build: Path) -> None:
    """The picture, the plan and the page."""
    from tapestry.planner.views.html import plan_html

    count = draw(photo, found, build / "corners.png")
    made.save(build / "corners.plan.json")
    (build / "corners.html").write_text(plan_html(made, run=run, background=photo.astype("uint8")))
    print(f"{count} corners: {build / 'corners.png'}, {build / 'corners.plan.json'}, {build / 'corners.html'}")


if __name__ == "__main__":
    main()
