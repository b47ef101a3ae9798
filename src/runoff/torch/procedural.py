"""Procedural images: scenes computed from random numbers, without any photograph.

A scene is a textured background, covered by leaves (overlapping polygonal, round, lobed or hollow shapes, each with a
texture and shading) and strokes (curved lines, as in digits and characters). Textures are noise with a random spectrum,
gratings and checks, random functions of the coordinates, outputs of random convolutional generators, or fractals.
Everything is computed for many images at a time.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

SIZE, TEXTURE = 48, 64  # sides of a scene and of a texture in pixels
LEAVES, STROKES, POINTS = 24, 3, 8  # at most per scene; points of the polyline that draws a stroke
KINDS = ("noise", "gratings", "functions", "generators", "fractals")


class Draws:
    """A seeded random number generator on a device."""

    def __init__(self, seed: int, device: torch.device) -> None:
        self.device = device
        self.generator = torch.Generator(device).manual_seed(seed)
        self.host = np.random.default_rng(seed)  # for numbers that the host needs without waiting for the device

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0) -> Tensor:
        """Return uniform numbers from `low` to `high`."""
        return low + (high - low) * torch.rand(shape, device=self.device, generator=self.generator)

    def normal(self, *shape: int) -> Tensor:
        """Return standard normal numbers."""
        return torch.randn(shape, device=self.device, generator=self.generator)

    def chance(self, probability: float, *shape: int) -> Tensor:
        """Return booleans that are true with this probability."""
        return self.uniform(*shape) < probability

    def integers(self, below: int, *shape: int) -> Tensor:
        """Return uniform integers from 0 to `below` - 1."""
        return torch.randint(below, shape, device=self.device, generator=self.generator)

    def order(self, n: int) -> Tensor:
        """Return the integers from 0 to `n` - 1 in random order."""
        return torch.randperm(n, device=self.device, generator=self.generator)

    def colours(self, *shape: int) -> Tensor:
        """Return colours with values from 0 to 1, (*shape, 3): most near gray, some saturated."""
        gray, strength = self.uniform(*shape, 1), self.uniform(*shape, 1) ** 2
        return (gray + 0.7 * strength * self.uniform(*shape, 3, low=-1)).clamp(0, 1)


# -- textures ----------------------------------------------------------------------------------------------------------


def textures(draws: Draws, n: int, kinds: tuple[str, ...] = KINDS) -> Tensor:
    """Return textures with mean 0, (n, 3, TEXTURE, TEXTURE): half are noise, the other kinds share the rest equally."""
    makers = {"gratings": gratings, "functions": functions, "generators": generators, "fractals": fractals}
    others = [kind for kind in kinds if kind != "noise"]
    each = n // (2 * len(others)) if others else 0
    parts = [makers[kind](draws, each) for kind in others if each]
    return torch.cat([noise(draws, n - each * len(parts)), *parts])


def coloured(draws: Draws, z: Tensor) -> Tensor:
    """Return random colour mixtures of three fields, (n, 3, height, width), standardised; the first weighs most."""
    z = (z - z.mean((2, 3), keepdim=True)) / (z.std((2, 3), keepdim=True) + 1e-6)
    mix = draws.normal(len(z), 3, 3) * torch.tensor([2.5, 1.0, 1.0], device=z.device)
    mix = mix / mix.norm(dim=2, keepdim=True)
    return 0.2 * torch.stack([(mix[:, i, :, None, None] * z).sum(1) for i in range(3)], dim=1)


def noise(draws: Draws, n: int) -> Tensor:
    """Return noise with a random power-law spectrum, stretched in a random direction; a quarter is two-valued."""
    frequency = torch.fft.fftfreq(TEXTURE, device=draws.device)
    turn = draws.uniform(n, 1, 1, high=math.pi)
    stretch = torch.exp(1.5 * draws.uniform(n, 1, 1) * draws.chance(0.5, n, 1, 1))
    cos, sin, fx, fy = torch.cos(turn), torch.sin(turn), frequency[None, None, :], frequency[None, :, None]
    u, v = (fx * cos + fy * sin) * stretch, (fy * cos - fx * sin) / stretch
    fall = (u * u + v * v).sqrt().clamp_min(1 / TEXTURE) ** -draws.uniform(n, 1, 1, low=0.5, high=2.7)
    spectrum = torch.fft.fft2(draws.normal(n, 3, TEXTURE, TEXTURE)) * fall[:, None]
    z = coloured(draws, torch.fft.ifft2(spectrum).real)
    return torch.where(draws.chance(0.25, n, 1, 1, 1), 0.16 * torch.sign(z), z)


def gratings(draws: Draws, n: int) -> Tensor:
    """Return sine or square waves in one or two directions: stripes, checks, dots."""
    x, y = _coordinates(draws.device, TEXTURE)
    turn, waves = draws.uniform(n, 2, 1, 1, high=math.pi), torch.exp(draws.uniform(n, 2, 1, 1, low=0.7, high=3.0))
    phase = draws.uniform(n, 2, 1, 1, high=2 * math.pi)
    wave = torch.sin(waves * (x * torch.cos(turn) + y * torch.sin(turn)) + phase)
    both = draws.chance(0.5, n, 1, 1)
    z = torch.where(both, wave[:, 0] * wave[:, 1], wave[:, 0])
    z = torch.where(draws.chance(0.5, n, 1, 1), torch.sign(z + draws.uniform(n, 1, 1, low=-0.5, high=0.5)), z)
    return coloured(draws, torch.stack([z, z, z], dim=1))


def functions(draws: Draws, n: int, width: int = 12) -> Tensor:
    """Return random functions of the coordinates: networks of sine layers with random weights."""
    x, y = _coordinates(draws.device, TEXTURE)
    x, y = (line + draws.uniform(n, 1, 1, low=-1.5, high=1.5) for line in (x, y))
    points = torch.stack([x, y, (x * x + y * y).sqrt(), torch.ones_like(x)], dim=1).view(n, 4, -1)
    h = torch.sin(torch.matmul(draws.normal(n, width, 4) * draws.uniform(n, 1, 1, low=1, high=6), points))
    for _ in range(2):
        h = torch.sin(torch.matmul(draws.normal(n, width, width) * draws.uniform(n, 1, 1, low=0.3, high=1.2), h))
    return coloured(draws, torch.matmul(draws.normal(n, 3, width), h).view(n, 3, TEXTURE, TEXTURE))


def generators(draws: Draws, n: int, width: int = 8) -> Tensor:
    """Return outputs of random convolutional generators, one per image: noise at several scales, filtered and bent."""
    z = draws.normal(n, width, 4, 4)
    while z.shape[3] < TEXTURE:
        z = F.interpolate(z, scale_factor=2.0, mode="bilinear", align_corners=False)
        size = z.shape[3]
        z = z + draws.normal(n, width, size, size) * draws.uniform(n, width, 1, 1) ** 3 * (8 / size)
        kernels = draws.normal(n, width, width, 9)
        kernels[..., 4] *= 4  # the middle: mostly mixtures of channels, or the finest scale would dominate
        # Products over patches: a convolution with as many groups as images is slow.
        patches = F.unfold(F.pad(z, (1, 1, 1, 1), mode="replicate"), 3)
        z = torch.matmul(kernels.flatten(2), patches).view(n, width, size, size)
        z = (z - z.mean((2, 3), keepdim=True)) / (z.std((2, 3), keepdim=True) + 1e-4)
        z = F.leaky_relu(z + draws.uniform(n, width, 1, 1, low=-1), 0.1)
    return coloured(draws, torch.matmul(draws.normal(n, 3, width), z.flatten(2)).view(n, 3, TEXTURE, TEXTURE))


def fractals(draws: Draws, n: int, turns: int = 20) -> Tensor:
    """Return Julia sets of z^2 + c with c near the edge of the Mandelbrot set: time to escape, and two orbit traps."""
    x, y = _coordinates(draws.device, TEXTURE)
    turn, zoom = draws.uniform(n, 1, 1, high=2 * math.pi), torch.exp(draws.uniform(n, 1, 1, low=-2.5, high=0.5))
    cos, sin = zoom * torch.cos(turn), zoom * torch.sin(turn)
    re = cos * x - sin * y + draws.uniform(n, 1, 1, low=-1)
    im = sin * x + cos * y + draws.uniform(n, 1, 1, low=-1)
    # The edge of the main cardioid, and a little beyond it.
    angle, off = draws.uniform(n, 1, 1, high=2 * math.pi), draws.uniform(n, 1, 1, low=0.95, high=1.15)
    a = off * (torch.cos(angle) / 2 - torch.cos(2 * angle) / 4)
    b = off * (torch.sin(angle) / 2 - torch.sin(2 * angle) / 4)
    trap_x, trap_y = draws.uniform(n, 1, 1, low=-1), draws.uniform(n, 1, 1, low=-1)
    escape, point, line = torch.zeros_like(re), torch.full_like(re, 9.0), torch.full_like(re, 9.0)
    for _ in range(turns):
        # Clamped: points that have escaped would overflow, and their traps no longer change.
        re, im = (re * re - im * im + a).clamp(-8, 8), (2 * re * im + b).clamp(-8, 8)
        far = re * re + im * im
        escape = escape + torch.exp(-far)
        point = torch.minimum(point, (re - trap_x) ** 2 + (im - trap_y) ** 2)
        line = torch.minimum(line, (re * trap_x + im * trap_y).abs())
    return coloured(draws, torch.stack([escape, torch.log(point + 1e-3), torch.log(line + 1e-3)], dim=1))


# -- scenes ------------------------------------------------------------------------------------------------------------


def scenes(draws: Draws, n: int, pool: Tensor, strokes: float = 0.3) -> Tensor:
    """Return scenes with values from 0 to 1, (n, 3, SIZE, SIZE); `strokes` is the share of scenes with strokes."""
    layers, shading = _leaves(draws, n)
    n_textures = 4  # per scene, shared by its layers
    which = draws.integers(len(pool), n, n_textures)
    top, left = draws.host.integers(TEXTURE - SIZE + 1, size=2).tolist()
    texture = pool[:, :, top : top + SIZE, left : left + SIZE][which]  # (n, n_textures, 3, SIZE, SIZE)
    index = (layers % n_textures)[:, None, None].expand(-1, 1, 3, -1, -1)
    texture = texture.gather(1, index)[:, 0]
    flat = layers.view(n, 1, -1)
    colour = _per_pixel(draws.colours(n, LEAVES + 1).transpose(1, 2), flat)
    strength = _per_pixel(draws.uniform(n, 1, LEAVES + 1, high=1.4), flat)
    image = colour * shading[:, None] + texture * strength
    if strokes:
        layers = _strokes(draws, n, strokes)
        ink = _per_pixel(draws.colours(n, STROKES + 1).transpose(1, 2), layers.view(n, 1, -1))
        image = torch.where(layers[:, None] > 0, ink, image)
    return image.clamp(0, 1)


def _per_pixel(values: Tensor, layers: Tensor) -> Tensor:
    """Return the values of each pixel's layer, (n, c, SIZE, SIZE), from values by layer, (n, c, layers)."""
    return values.gather(2, layers.expand(-1, values.shape[1], -1)).view(len(values), -1, SIZE, SIZE)


def _leaves(draws: Draws, n: int) -> tuple[Tensor, Tensor]:
    """Return the index of the top leaf at each pixel, 0 for the background, and its shading, each (n, SIZE, SIZE)."""
    x, y = _coordinates(draws.device, SIZE)
    m = LEAVES
    order = torch.linspace(1, 0, m, device=draws.device)[:, None, None]  # large leaves at the bottom
    radius = 0.06 + 0.6 * order * draws.uniform(n, m, 1, 1) ** 2 + 0.05 * draws.uniform(n, m, 1, 1)
    aspect = torch.exp(0.9 * draws.uniform(n, m, 1, 1, low=-1))
    turn = draws.uniform(n, m, 1, 1, high=math.pi)
    dx, dy = x - draws.uniform(n, m, 1, 1, low=-1.2, high=1.2), y - draws.uniform(n, m, 1, 1, low=-1.2, high=1.2)
    cos, sin = torch.cos(turn), torch.sin(turn)
    u, v = (dx * cos + dy * sin) / (radius * aspect), (dy * cos - dx * sin) * (aspect / radius)
    # The power makes a diamond, an ellipse or nearly a rectangle; lobes modulate the edge.
    power = torch.tensor([1.0, 2.0, 8.0], device=draws.device)[draws.integers(3, n, m, 1, 1)]
    lobes = (draws.integers(5, n, m, 1, 1) + 3).float()
    depth = 0.4 * draws.uniform(n, m, 1, 1) * draws.chance(0.35, n, m, 1, 1)
    far = (u.abs() ** power + v.abs() ** power) ** (1 / power)
    edge = 1 + depth * torch.cos(lobes * torch.atan2(v, u)) - depth
    hollow = 0.6 * draws.chance(0.15, n, m, 1, 1)
    crowd = draws.uniform(n, 1, 1, 1, low=-0.1, high=1.4)  # from no leaf to all of them
    inside = (far < edge) & (far >= hollow * edge) & (draws.uniform(n, m, 1, 1) < crowd)
    number = torch.arange(1, m + 1, device=draws.device)[:, None, None]
    layers = (inside * number).amax(1)
    light = 1 + draws.uniform(n, m, 1, 1, low=-0.6, high=0.6) * u.clamp(-1, 1)
    light = torch.cat([torch.ones_like(light[:, :1]), light], dim=1).gather(1, layers[:, None])[:, 0]
    return layers, light


def _strokes(draws: Draws, n: int, share: float) -> Tensor:
    """Return the index of the top stroke at each pixel, 0 for none, (n, SIZE, SIZE); strokes are Bezier curves."""
    x, y = _coordinates(draws.device, SIZE)
    controls = draws.uniform(n, STROKES, 4, 2, low=-0.9, high=0.9)
    t = torch.linspace(0, 1, POINTS, device=draws.device)[:, None]
    weights = torch.cat([(1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3], dim=1)
    points = (weights[:, :, None] * controls[:, :, None]).sum(3).view(n, STROKES, POINTS, 2)
    from_, to = points[:, :, :-1], points[:, :, 1:]
    along = to - from_
    length = (along * along).sum(3).clamp_min(1e-6)[..., None, None]
    dx, dy = x - from_[..., 0, None, None], y - from_[..., 1, None, None]
    ax, ay = along[..., 0, None, None], along[..., 1, None, None]
    place = ((dx * ax + dy * ay) / length).clamp(0, 1)
    distance = ((dx - place * ax) ** 2 + (dy - place * ay) ** 2).amin(2)  # (n, STROKES, SIZE, SIZE)
    thick = draws.uniform(n, 1, 1, 1, low=0.03, high=0.16)
    drawn = draws.chance(share, n, 1, 1, 1) & (draws.chance(0.6, n, STROKES, 1, 1))
    number = torch.arange(1, STROKES + 1, device=draws.device)[:, None, None]
    return ((distance < thick * thick) & drawn).mul(number).amax(1)


def _coordinates(device: torch.device, size: int) -> tuple[Tensor, Tensor]:
    """Return the coordinates x (across) and y (down) of the pixels, from -1 to 1."""
    line = torch.linspace(-1, 1, size, device=device)
    return line[None, :].expand(size, size), line[:, None].expand(size, size)
