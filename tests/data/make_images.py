#!/usr/bin/env python3
"""Writes images.safetensors: small image files of every kind, and the pixels that Pillow reads in them.

    tests/data/make_images.py tests/data/images.safetensors

"NAME.file" holds the bytes of a PNG or JPEG file, "NAME.rgb" what Pillow's convert("RGB") makes of them
(of 16-bit grey, which Pillow cuts off at 255, the upper bytes). "resize.from" is an image,
"resize.HxW" that image after Image.resize(bilinear), and "crop.HxW" after torchvision's Resize and
CenterCrop for evaluation, worked out as torchvision does. PNG files are put together here, since Pillow
does not write all colour types. The tests need neither Pillow nor this script.
"""
import io
import struct
import sys
import zlib

import numpy as np
from PIL import Image
from safetensors.numpy import save_file

tensors = {}
random = np.random.default_rng(7)


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def rows(samples, depth):
    """Samples [h, w, channels] packed into rows, each with filter 0 in front."""
    data = b""
    for row in samples.reshape(samples.shape[0], -1):
        if depth == 16:
            data += b"\0" + row.astype(">u2").tobytes()
        elif depth == 8:
            data += b"\0" + row.astype("u1").tobytes()
        else:
            bits = "".join(format(int(v), f"0{depth}b") for v in row)
            bits += "0" * (-len(bits) % 8)
            data += b"\0" + bytes(int(bits[i:i + 8], 2) for i in range(0, len(bits), 8))
    return data


ADAM7 = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]


def png(name, channels, depth, colour, interlaced=False, palette=None, transparent=None, height=5, width=7):
    most = len(palette) // 3 if palette else 2**depth
    samples = random.integers(0, most, (height, width, channels))
    if interlaced:
        data = b"".join(rows(samples[y::dy, x::dx], depth) for y, x, dy, dx in ADAM7 if samples[y::dy, x::dx].size)
    else:
        data = rows(samples, depth)
    file = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0,
                                                             int(interlaced)))
    if palette:
        file += chunk(b"PLTE", palette)
    if transparent:
        file += chunk(b"tRNS", transparent)
    file += chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")
    if depth == 16:
        upper = (samples >> 8).astype("u1")
        rgb = np.repeat(upper[:, :, :1], 3, 2) if channels < 3 else upper[:, :, :3]
        if channels >= 3:
            assert (np.asarray(Image.open(io.BytesIO(file)).convert("RGB")) == rgb).all()
    else:
        rgb = np.asarray(Image.open(io.BytesIO(file)).convert("RGB"))
    add(name, file, rgb)


def add(name, file, rgb=None):
    if rgb is None:
        rgb = np.asarray(Image.open(io.BytesIO(file)).convert("RGB"))
    tensors[name + ".file"] = np.frombuffer(file, "u1").copy()
    tensors[name + ".rgb"] = np.ascontiguousarray(rgb)


def jpeg(name, image, **options):
    file = io.BytesIO()
    image.save(file, "JPEG", **options)
    add(name, file.getvalue())


for depth in 1, 2, 4, 8, 16:
    png(f"png.grey{depth}", 1, depth, 0)
    if depth <= 8:
        colours = random.integers(0, 256, 3 * min(2**depth, 11), "u1").tobytes()
        png(f"png.palette{depth}", 1, depth, 3, palette=colours, transparent=b"\x10\xff")
    if depth >= 8:
        png(f"png.grey_alpha{depth}", 2, depth, 4)
        png(f"png.rgb{depth}", 3, depth, 2, transparent=b"\0\1\0\2\0\3")
        png(f"png.rgba{depth}", 4, depth, 6)
png("png.interlaced", 3, 8, 2, interlaced=True, height=9, width=11)
png("png.interlaced_grey1", 1, 1, 0, interlaced=True, height=3, width=2)
png("png.one_pixel", 4, 8, 6, height=1, width=1)

y, x = np.mgrid[0:21, 0:30]
photo = np.stack([127 + 100 * np.sin(x / 5), 8 * x, 255 - 9 * y], 2).clip(0, 255).astype("u1")
photo = Image.fromarray(photo)
jpeg("jpeg.rgb", photo, quality=90, subsampling=0)
jpeg("jpeg.subsampled", photo, quality=75, subsampling=2)
jpeg("jpeg.progressive", photo, quality=80, progressive=True)
jpeg("jpeg.grey", photo.convert("L"), quality=85)
jpeg("jpeg.cmyk", photo.convert("CMYK"), quality=90)
jpeg("jpeg.stored_as_rgb", photo, quality=90, keep_rgb=True)
jpeg("jpeg.restarts", photo, quality=80, restart_marker_blocks=2)
jpeg("jpeg.small", photo.crop((0, 0, 9, 5)), quality=30, subsampling=2, optimize=True)
# Adobe's YCCK: the CMYK file with its marker's transform set to 2, so that the first three inks are YCbCr.
ycck = bytes(tensors["jpeg.cmyk.file"])
place = ycck.index(b"Adobe") + 11
assert ycck[place] == 0
add("jpeg.ycck", ycck[:place] + b"\2" + ycck[place + 1:])

source = Image.fromarray(random.integers(0, 256, (23, 31, 3), "u1"))
tensors["resize.from"] = np.asarray(source).copy()
for height, width in (9, 12), (23, 40), (50, 31), (46, 62), (1, 1), (24, 7):
    tensors[f"resize.{height}x{width}"] = np.asarray(source.resize((width, height), Image.BILINEAR)).copy()
# Resize(8/7 of the side) and CenterCrop; of a wide image and of a high one.
for name, image in ("crop", source), ("crop_high", source.transpose(Image.TRANSPOSE)):
    w, h = image.size
    for side in 8, 14, 21:
        short = round(side * 8 / 7)
        new_w, new_h = (int(short * w / h), short) if w > h else (short, int(short * h / w))
        top, left = int(round((new_h - side) / 2.0)), int(round((new_w - side) / 2.0))
        resized = image.resize((new_w, new_h), Image.BILINEAR)
        tensors[f"{name}.{side}x{side}"] = np.asarray(resized.crop((left, top, left + side, top + side))).copy()

save_file(tensors, sys.argv[1])
