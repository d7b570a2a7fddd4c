"""Models that are no language models, with random weights, as programs of torch.export.

    make_vision.py OUT [NAME ...]

writes NAME.pt2 and NAME.npy (an input) for every name, or for all: mobilenet-v2, resnet-18, vit-tiny, bert-small, whisper-tiny. The
shapes are those that were published; batch 1, f32, in inference mode.
"""

import pathlib
import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


def conv(channels, filters, kernel=1, stride=1, groups=1, activation=None):
    """A convolution without bias, its batch norm, and what follows."""
    layers = [
        nn.Conv2d(channels, filters, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(filters),
    ]
    return nn.Sequential(*layers, *([activation] if activation else []))


class Inverted(nn.Module):
    """Widen, filter each channel, narrow (MobileNetV2)."""

    def __init__(self, channels, filters, stride, factor):
        super().__init__()
        wide = channels * factor
        widen = [conv(channels, wide, activation=nn.ReLU6())] if factor > 1 else []
        depthwise = conv(wide, wide, 3, stride, groups=wide, activation=nn.ReLU6())
        self.layers = nn.Sequential(*widen, depthwise, conv(wide, filters))
        self.residual = stride == 1 and channels == filters

    def forward(self, x):
        return x + self.layers(x) if self.residual else self.layers(x)


class MobileNetV2(nn.Module):
    BLOCKS = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]

    def __init__(self):
        super().__init__()
        layers, channels = [conv(3, 32, 3, 2, activation=nn.ReLU6())], 32
        for factor, filters, count, stride in self.BLOCKS:
            for at in range(count):
                layers.append(Inverted(channels, filters, stride if at == 0 else 1, factor))
                channels = filters
        layers.append(conv(channels, 1280, activation=nn.ReLU6()))
        self.layers, self.head = nn.Sequential(*layers), nn.Linear(1280, 1000)

    def forward(self, x):
        x = F.adaptive_avg_pool2d(self.layers(x), 1)
        return self.head(torch.flatten(x, 1))


class Basic(nn.Module):
    """Two convolutions and a shortcut (ResNet-18)."""

    def __init__(self, channels, filters, stride):
        super().__init__()
        self.first = conv(channels, filters, 3, stride, activation=nn.ReLU())
        self.second = conv(filters, filters, 3)
        self.short = conv(channels, filters, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x):
        return F.relu(self.second(self.first(x)) + self.short(x))


class ResNet18(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = conv(3, 64, 7, 2, activation=nn.ReLU())
        blocks, channels = [], 64
        for filters in (64, 128, 256, 512):
            for stride in (1 if filters == channels else 2, 1):
                blocks.append(Basic(channels, filters, stride))
                channels = filters
        self.blocks, self.head = nn.Sequential(*blocks), nn.Linear(512, 1000)

    def forward(self, x):
        x = self.blocks(F.max_pool2d(self.stem(x), 3, 2, 1))
        return self.head(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))


class Layer(nn.Module):
    """Attention and a feed-forward block, with the norms before or behind them."""

    def __init__(self, width, heads, inner, norm_first):
        super().__init__()
        self.heads, self.norm_first = heads, norm_first
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def attend(self, x):
        batch, length, width = x.shape
        split = lambda y: y.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
        y = F.scaled_dot_product_attention(split(self.query(x)), split(self.key(x)), split(self.value(x)))
        return self.out(y.transpose(1, 2).reshape(batch, length, width))

    def feed(self, x):
        return self.down(F.gelu(self.up(x)))

    def forward(self, x):
        if self.norm_first:
            x = x + self.attend(self.norm1(x))
            return x + self.feed(self.norm2(x))
        x = self.norm1(x + self.attend(x))
        return self.norm2(x + self.feed(x))


class ViTTiny(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, 192, 16, 16)
        self.first, self.places = nn.Parameter(torch.randn(1, 1, 192)), nn.Parameter(torch.randn(1, 197, 192) * 0.02)
        self.layers = nn.Sequential(*(Layer(192, 3, 768, True) for _ in range(12)))
        self.norm, self.head = nn.LayerNorm(192), nn.Linear(192, 1000)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.first, x], 1) + self.places
        return self.head(self.norm(self.layers(x))[:, 0])


class BertSmall(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(30522, 512), nn.Parameter(torch.randn(1, 128, 512) * 0.02)
        self.norm = nn.LayerNorm(512)
        self.layers = nn.Sequential(*(Layer(512, 8, 2048, False) for _ in range(4)))

    def forward(self, tokens):
        return self.layers(self.norm(self.words(tokens) + self.places))


class WhisperTiny(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv1d(80, 384, 3, 1, 1), nn.Conv1d(384, 384, 3, 2, 1)
        self.places = nn.Parameter(torch.randn(1, 1500, 384) * 0.02)
        self.layers = nn.Sequential(*(Layer(384, 6, 1536, True) for _ in range(4)))
        self.norm = nn.LayerNorm(384)

    def forward(self, x):
        x = F.gelu(self.second(F.gelu(self.first(x)))).transpose(1, 2)
        return self.norm(self.layers(x + self.places))


IMAGE = (1, 3, 224, 224)
MODELS = {
    "mobilenet-v2": (MobileNetV2, lambda: torch.randn(IMAGE)),
    "resnet-18": (ResNet18, lambda: torch.randn(IMAGE)),
    "vit-tiny": (ViTTiny, lambda: torch.randn(IMAGE)),
    "bert-small": (BertSmall, lambda: torch.randint(0, 30522, (1, 128))),
    "whisper-tiny": (WhisperTiny, lambda: torch.randn(1, 80, 3000)),
}


def model(name):
    """The model of that name and an input, the same in every process."""
    torch.manual_seed(0)
    kind, example = MODELS[name]
    made = kind().eval()
    for module in made.modules():
        if isinstance(module, nn.BatchNorm2d):
            # Statistics as training leaves them: neither 0 nor 1.
            nn.init.uniform_(module.running_mean, -0.1, 0.1)
            nn.init.uniform_(module.running_var, 0.5, 1.5)
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.uniform_(module.bias, -0.1, 0.1)
    return made, example()


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[2:] or MODELS:
        if name not in MODELS:
            sys.exit(f"make_vision: no model {name}; there are {', '.join(MODELS)}")
        made, example = model(name)
        with torch.no_grad():
            expected = made(example)
        torch.export.save(torch.export.export(made, (example,)), folder / f"{name}.pt2")
        np.save(folder / f"{name}.npy", example.numpy())
        np.save(folder / f"{name}.out.npy", expected.numpy())


if __name__ == "__main__":
    main()
