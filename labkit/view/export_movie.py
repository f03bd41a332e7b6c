"""Frames as a moving picture: GIF by Pillow, MP4 by ffmpeg where it is installed.

In: PNG files as bytes. Out: one file.
"""

from __future__ import annotations

import importlib.util
import io
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from labkit.formats import whole_file

if TYPE_CHECKING:
    from PIL import Image

HOLD_S = 1.5
"""The last frame stays so long before a GIF begins again."""

_PALETTE_FRAMES = 8
_EXACT_COLOURS = 160


def check_gif() -> None:
    """Refuse a GIF where Pillow is missing."""
    if importlib.util.find_spec("PIL") is None:
        raise ValueError(
            "a .gif is written by Pillow, which is not installed: pip install 'labkit[export]'; or export .html"
        )


def check_mp4() -> None:
    """Refuse an MP4 where ffmpeg is missing."""
    if shutil.which("ffmpeg") is None:
        raise ValueError("an .mp4 is written by ffmpeg, which is not on the PATH: install it, or export .gif or .html")


def write_gif(frames: Sequence[bytes], path: Path, *, frames_per_second: int) -> Path:
    """One palette for all frames, without dithering: patterns stay clean and what does not move stays equal."""
    from PIL import Image

    images = [Image.open(io.BytesIO(frame)).convert("RGB") for frame in frames]
    palette = _palette(images[:: max(1, len(images) // _PALETTE_FRAMES)])
    plain = list(_in_palette(images, palette))
    durations = [round(1000 / frames_per_second)] * (len(plain) - 1) + [round(1000 * HOLD_S)]
    with whole_file(path) as file:
        plain[0].save(file, "GIF", save_all=True, append_images=plain[1:], duration=durations, loop=0, optimize=False)
    return path


def _palette(images: Sequence[Image.Image]) -> np.ndarray:
    """256 colours, (256, 3): the most frequent ones exactly, so that plain fills stay what they are, then a mix."""
    from PIL import Image

    sheet = Image.fromarray(np.concatenate([np.asarray(image) for image in images]))
    colours, counts = np.unique(_codes(sheet), return_counts=True)
    exact = colours[np.argsort(-counts, kind="stable")][:_EXACT_COLOURS]
    others = np.array(sheet.quantize(256 - _EXACT_COLOURS).getpalette(), np.uint8).reshape(-1, 3)
    return np.concatenate([_channels(exact), others])[:256]


def _in_palette(images: Sequence[Image.Image], palette: np.ndarray) -> Iterator[Image.Image]:
    """Each colour as the nearest one of the palette; Pillow's own search is not exact."""
    from PIL import Image

    nearest = np.full(1 << 24, -1, np.int16)  # of each colour its number in the palette, once it was needed
    for image in images:
        codes = _codes(image)
        new = np.unique(codes[nearest[codes] < 0])
        apart = _channels(new).astype(np.int32)[:, None] - palette.astype(np.int32)
        nearest[new] = (apart**2).sum(axis=2).argmin(axis=1)
        made = Image.fromarray(nearest[codes].astype(np.uint8))
        made.putpalette(palette.tobytes())
        yield made


def _codes(image: Image.Image) -> np.ndarray:
    """Every pixel as one number, (height, width)."""
    red, green, blue = np.moveaxis(np.asarray(image, np.uint32), 2, 0)
    return red << 16 | green << 8 | blue


def _channels(codes: np.ndarray) -> np.ndarray:
    return np.stack([codes >> 16, codes >> 8 & 255, codes & 255], axis=1).astype(np.uint8)


def write_mp4(frames: Sequence[bytes], path: Path, *, frames_per_second: int) -> Path:
    """H.264 as all players and slides take it: even sizes, 4:2:0."""
    even = "pad=ceil(iw/2)*2:ceil(ih/2)*2,format=yuv420p"
    command = [
        "ffmpeg",
        "-loglevel",
        "error",
        "-y",
        "-f",
        "image2pipe",
        "-c:v",
        "png",
        "-framerate",
        str(frames_per_second),
    ]
    command += ["-i", "-", "-vf", even, "-c:v", "libx264", "-crf", "18", "-movflags", "+faststart", "-f", "mp4"]
    with whole_file(path) as file:
        done = subprocess.run([*command, file.name], input=b"".join(frames), stderr=subprocess.PIPE)
    if done.returncode:
        raise RuntimeError(f"ffmpeg could not write {path}: {done.stderr.decode(errors='replace').strip()[-300:]}")
    return path
