#!/usr/bin/env python3
"""Makes tests/image/data/cases.json: small pictures of every format with the pixels that Pillow reads from them, and
resizes of one of them by Pillow's filters.

usage: make_image_cases.py

A case of "decode" has a file and the RGB it must give; one of "resize" a size, a filter and the RGB; bytes are in base64.
Grey pictures of 16 bits are the exception: Pillow cuts their values off at 255, the reference is their upper byte. Needs
Pillow and numpy.
"""
import base64
import io
import json
import sys
from pathlib import Path

if len(sys.argv) > 1:
    sys.exit(__doc__)

import numpy  # noqa: E402
from PIL import Image, ImageOps  # noqa: E402

OUT = Path(__file__).resolve().parent.parent / "tests/image/data/cases.json"


def text(data):
    return base64.b64encode(data).decode()


def photograph(width, height):
    """Soft gradients with noise and an edge, asymmetric in every direction."""
    y, x = numpy.mgrid[0:height, 0:width].astype(float)
    noise = numpy.random.default_rng(5).normal(0, 6, (height, width, 3))
    red = 255 * x / width
    green = 128 + 100 * numpy.sin(x / 5) * numpy.cos(y / 4)
    blue = 255 * (y > 0.3 * height + 0.2 * x)
    return Image.fromarray(numpy.clip(numpy.stack([red, green, blue], -1) + noise, 0, 255).astype(numpy.uint8))


def stored(image, kind, **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def decode_cases():
    photo = photograph(29, 19)
    alpha = photo.copy()
    alpha.putalpha(photo.convert("L"))
    deep = numpy.asarray(photo.convert("L")).astype(numpy.uint16) * 251 + 77
    exif = Image.Exif()
    files = {
        "jpeg": stored(photo, "JPEG", quality=90),
        "jpeg progressive": stored(photo, "JPEG", quality=70, progressive=True),
        "jpeg grey": stored(photo.convert("L"), "JPEG"),
        "jpeg cmyk": stored(photo.convert("CMYK"), "JPEG", quality=95),
        "png": stored(photo, "PNG"),
        "png alpha": stored(alpha, "PNG"),
        "png grey alpha": stored(alpha.convert("LA"), "PNG"),
        "png palette": stored(photo.convert("P", palette=Image.Palette.ADAPTIVE, colors=13), "PNG"),
        "png one bit": stored(photo.convert("1"), "PNG"),
        "png grey 16": stored(Image.fromarray(deep), "PNG"),
        "webp": stored(photo, "WEBP", quality=80),
        "webp alpha": stored(alpha, "WEBP", lossless=True),
        "gif": stored(photo.convert("P", palette=Image.Palette.ADAPTIVE, colors=200), "GIF", interlace=1),
        "gif two colours": stored(photo.convert("1"), "GIF", interlace=0),
    }
    for orientation in range(2, 9):
        exif[0x0112] = orientation
        files[f"jpeg orientation {orientation}"] = stored(photo, "JPEG", quality=60, exif=exif)
    exif[0x0112] = 6
    files["png orientation 6"] = stored(photo, "PNG", exif=exif)
    files["webp orientation 6"] = stored(photo, "WEBP", lossless=True, exif=exif)
    for name, data in files.items():
        image = ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB")
        pixels = image.tobytes()
        if name == "png grey 16":
            pixels = numpy.repeat((deep >> 8).astype(numpy.uint8)[..., None], 3, -1).tobytes()
        yield dict(name=name, file=text(data), width=image.width, height=image.height, rgb=text(pixels))


def resize_cases():
    photo = photograph(41, 30)
    filters = dict(bilinear=Image.Resampling.BILINEAR, bicubic=Image.Resampling.BICUBIC, lanczos=Image.Resampling.LANCZOS)
    for name, resample in filters.items():
        for width, height in ((17, 11), (60, 44), (41, 13), (5, 30), (36, 9), (45, 12), (31, 10)):
            resized = photo.resize((width, height), resample)
            yield dict(filter=name, width=width, height=height, rgb=text(resized.tobytes()))


def main():
    photo = photograph(41, 30)
    cases = dict(decode=list(decode_cases()), resize=list(resize_cases()),
                 resize_input=dict(width=photo.width, height=photo.height, rgb=text(photo.tobytes())))
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(cases, indent=1) + "\n")
    print(f"{OUT}: {OUT.stat().st_size} bytes")


main()
