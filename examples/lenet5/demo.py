"""Classify the held-out digits with LeNet-5, compiled for the CPU and for Cambricon-X.

    make demo        or, with Tilewright installed:   python examples/lenet5/demo.py [DIRECTORY]

Everything that is made (packages, traces, disassembly) is left in DIRECTORY [build/demo].
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track

import tilewright
from tilewright.cli.asm import disassemble_package
from tilewright.errors import TilewrightError
from tilewright.graph.interpreter import interpret

HERE = Path(__file__).parent
MODEL = HERE / "lenet5.onnx"
console = Console(highlight=False, soft_wrap=True)


def scaled(images: np.ndarray) -> np.ndarray:
    """Pixels 0..16 to 0..1, as the network was trained."""
    return images.astype(np.float32) / 16


def float_guesses(images: np.ndarray) -> np.ndarray:
    """The class of every image by the model itself, in float32."""
    model = tilewright.load(MODEL)
    guesses = []
    for image in track(images, "float32 reference", console=console, transient=True):
        outputs = interpret(model.module, model.weights, {"image": image[None]})
        guesses.append(int(outputs["probabilities"].argmax()))
    return np.array(guesses)


def demonstrate(target: str, place: Path, held_out: dict[str, np.ndarray]) -> np.ndarray:
    """Compile for a target, classify all images, and say what that took; returns the classes."""
    with console.status(f"compiling for {target}") as status:
        executable = tilewright.compile(
            MODEL,
            target,
            calibration={"image": scaled(held_out["calibration"])},
            directory=place / target,
            progress=lambda what, done, total: status.update(f"compiling for {target}: {what}"),
        )
    images = scaled(held_out["images"])
    guesses, seconds = [], []
    for image in track(images, f"running on {target}", console=console, transient=True):
        outputs = executable.run({"image": image[None]}, profile=True)
        guesses.append(int(outputs["probabilities"].argmax()))
        seconds.append(executable.profile.seconds or 0.0)
    trace = place / f"{target}-trace.json"
    first = {"image": images[:1]}
    check = executable.check(first, executable.run(first, trace=trace))
    found = executable.summary()
    console.print(f"\n[bold]{target}[/bold]: {executable.manifest.machine['description']}")
    right = int((np.array(guesses) == held_out["labels"]).sum())
    console.print(f"  accuracy     {right / len(images):.4f}  ({right} of {len(images)})")
    if "cycles" in found:
        time = 1e6 * found["cycles"] / found["clock_hz"]
        console.print(
            f"  time         {found['cycles']:,} cycles, {time:.1f} microseconds an image"
        )
        taken = f"{found['efficiency']:.1%}"
    else:
        middle = float(np.median(seconds))
        console.print(f"  time         {1e6 * middle:.1f} microseconds an image (median)")
        taken = f"{found['granule_bound_cycles'] / (middle * found['clock_hz']):.1%}"
    console.print(
        f"  bound        {found['bound_cycles']:,.0f} cycles physical,"
        f" {found['granule_bound_cycles']:,.0f} with the machine's rounding; efficiency {taken}"
    )
    console.print(
        f"  memory       {found['peak_memory_bytes']:,} bytes"
        f" (lower bound {found['lower_bound_memory_bytes']:,})"
    )
    word = "passed" if check.passed else "FAILED"
    console.print(f"  check        {word} against the interpreter, {check.mismatches} mismatches")
    for name, path in where(target, place, trace).items():
        console.print(f"  {name:<12} {path}")
    if not check.passed:
        raise SystemExit(1)
    return np.array(guesses)


def where(target: str, place: Path, trace: Path) -> dict[str, Path]:
    """The files that a reader wants to open."""
    package = place / target
    found = {"package": package}
    if (sources := package / "program" / "src").is_dir():
        found["C"] = sources
    words = package / "program" / "program.bin"
    if words.exists():
        listing = place / f"{target}.asm"
        listing.write_text(disassemble_package(package))
        found |= {"words": words, "disassembly": listing}
    return found | {"trace": trace}


def main() -> None:
    place = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("build/demo")
    place.mkdir(parents=True, exist_ok=True)
    with np.load(HERE / "held_out.npz", allow_pickle=False) as file:
        held_out = {name: file[name] for name in file.files}
    labels = held_out["labels"]
    console.print(f"LeNet-5 on {len(labels)} handwritten digits that it has never seen")
    reference = float_guesses(scaled(held_out["images"]))
    right = int((reference == labels).sum())
    console.print(f"  float32      {right / len(labels):.4f}  ({right} of {len(labels)})")
    for target in ("cpu", "cambricon-x"):
        guesses = demonstrate(target, place, held_out)
        apart = abs(int((guesses == labels).sum()) - right)
        console.print(f"  against float32: {apart} image{'s' * (apart != 1)} apart")
        if apart > 1:
            raise SystemExit(f"{target} is {apart} images away from float32")


if __name__ == "__main__":
    try:
        main()
    except TilewrightError as error:
        raise SystemExit(str(error)) from None
