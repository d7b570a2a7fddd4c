#!/usr/bin/env python3
"""Makes cases of networks that people export: small ones of each kind, with weights drawn at random.

    VENV/bin/python network_cases.py OUT [--filter GLOB]... [--zip FILE]

A case is named NETWORK_FORM. Forms are `f32`, `static` (8 bits by XNNPACK's quantiser, with a calibration) and `dynamic`
(8-bit activations and weights), all three delegated to XNNPACK, and `portable`, which has no delegate. The outputs are those
of ExecuTorch's own runtime, which must agree with PyTorch eager. It needs `torchvision` beside the other packages. What OUT
has already is kept.
"""

import et_env  # first: it puts stand-ins in place
import torch
from case_files import make_all
from torch import nn
from torch.nn import functional as F
from xnnpack_cases import lowered, pt2e

FORMS = ("f32", "static", "dynamic", "portable")
FLOAT_TOLERANCE = 2e-4
# A code of an activation at the edge of two may fall otherwise, and moves all that follows.
DYNAMIC_TOLERANCE = 5e-2


class First(nn.Module):
    """A model of `transformers` as a function of tensors that gives one tensor."""

    def __init__(self, model, output, **fixed):
        super().__init__()
        self.model, self.output, self.fixed = model, output, fixed

    def forward(self, *inputs):
        return self.model(*inputs, **self.fixed)[self.output]


class Named(nn.Module):
    """The same, where inputs have names."""

    def __init__(self, model, output, names, **fixed):
        super().__init__()
        self.model, self.output, self.names, self.fixed = model, output, names, fixed

    def forward(self, *inputs):
        return self.model(**dict(zip(self.names, inputs)), **self.fixed)[self.output]


class Unet(nn.Module):
    """Two steps down, two up by transposed convolutions, with what was before beside what came back."""

    def __init__(self, width=8):
        super().__init__()
        self.in_, self.down, self.low = self.pair(3, width), self.pair(width, 2 * width), self.pair(2 * width, 4 * width)
        self.up, self.out = self.pair(4 * width, 2 * width), self.pair(2 * width, width)
        self.grow_low = nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2)
        self.grow = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.head = nn.Conv2d(width, 5, 1)

    @staticmethod
    def pair(inputs, outputs):
        return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(),
                             nn.Conv2d(outputs, outputs, 3, padding=1), nn.ReLU())

    def forward(self, x):
        x = self.in_(x)
        down = self.down(F.max_pool2d(x, 2))
        low = self.low(F.max_pool2d(down, 2))
        up = self.up(torch.cat([self.grow_low(low), down], 1))
        return self.head(self.out(torch.cat([self.grow(up), x], 1)))


class Recurrent(nn.Module):
    """A recurrent network of two layers with a head over its last step."""

    def __init__(self, kind, **settings):
        super().__init__()
        self.cells = kind(12, 16, num_layers=2, batch_first=True, **settings)
        self.head = nn.Linear(32 if settings.get("bidirectional") else 16, 6)

    def forward(self, x):
        return self.head(self.cells(x)[0])


class Separable(nn.Module):
    """A network over sound: convolutions of one axis, dilated, with gates."""

    def __init__(self):
        super().__init__()
        self.in_ = nn.Conv1d(1, 16, 16, stride=8)
        self.blocks = nn.ModuleList([nn.Sequential(
            nn.Conv1d(16, 32, 1), nn.PReLU(), nn.GroupNorm(1, 32),
            nn.Conv1d(32, 32, 3, padding=2**at, dilation=2**at, groups=32), nn.PReLU(), nn.Conv1d(32, 16, 1))
            for at in range(2)])
        self.out = nn.ConvTranspose1d(16, 1, 16, stride=8)

    def forward(self, sound):
        x = coded = F.relu(self.in_(sound))
        for block in self.blocks:
            x = x + block(x)
        return self.out(coded * torch.sigmoid(x))


def image(*shape):
    return (torch.rand(*(shape or (1, 3, 64, 64))),)


def tokens(*more, length=12, vocabulary=64):
    return (torch.randint(2, vocabulary, (1, length)), *more)


def mobilenet_v2():
    from torchvision.models import MobileNetV2

    return MobileNetV2(20, inverted_residual_setting=[[1, 16, 1, 1], [6, 24, 2, 2], [6, 32, 2, 2]], dropout=0), image()


def mobilenet_v3():
    from torchvision.models.mobilenetv3 import InvertedResidualConfig, MobileNetV3

    rows = [(16, 3, 16, 16, True, "RE", 2, 1), (16, 3, 72, 24, False, "RE", 2, 1), (24, 5, 96, 40, True, "HS", 2, 1),
            (40, 5, 240, 40, True, "HS", 1, 1)]
    return MobileNetV3([InvertedResidualConfig(*row, 1.0) for row in rows], 64, 20), image()


def resnet():
    from torchvision.models.resnet import BasicBlock, ResNet

    return ResNet(BasicBlock, [1, 1, 1, 1], num_classes=20), image()


def resnext():
    from torchvision.models.resnet import Bottleneck, ResNet

    return ResNet(Bottleneck, [1, 1, 1, 1], num_classes=20, groups=4, width_per_group=8), image()


def efficientnet():
    from torchvision.models.efficientnet import EfficientNet, FusedMBConvConfig, MBConvConfig

    rows = [FusedMBConvConfig(1, 3, 1, 16, 16, 1), MBConvConfig(1, 3, 1, 16, 16, 1), MBConvConfig(6, 3, 2, 16, 24, 1),
            MBConvConfig(6, 5, 2, 24, 40, 2)]
    return EfficientNet(rows, 0.0, num_classes=20), image()


def vit():
    from torchvision.models import VisionTransformer

    return VisionTransformer(32, 8, 2, 4, 32, 64, num_classes=20), image(1, 3, 32, 32)


def swin():
    from torchvision.models import SwinTransformer

    return SwinTransformer([4, 4], 16, [1, 2], [2, 4], [4, 4], num_classes=20), image(1, 3, 32, 32)


def convnext():
    from torchvision.models.convnext import CNBlockConfig, ConvNeXt

    return ConvNeXt([CNBlockConfig(16, 32, 1), CNBlockConfig(32, None, 1)], num_classes=20), image(1, 3, 32, 32)


def shufflenet():
    from torchvision.models import ShuffleNetV2

    return ShuffleNetV2([1, 1, 1], [8, 16, 32, 64, 64], 20), image()


def densenet():
    from torchvision.models import DenseNet

    return DenseNet(8, (2, 2), 16, num_classes=20), image()


def segmentation():
    from torchvision.models.segmentation.deeplabv3 import DeepLabHead

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = nn.Sequential(nn.Conv2d(3, 24, 3, 4, 1), nn.BatchNorm2d(24), nn.ReLU())
            self.head = DeepLabHead(24, 5, atrous_rates=(2, 4))

        def forward(self, x):
            return F.interpolate(self.head(self.stem(x)), x.shape[-2:], mode="bilinear", align_corners=False)

    return Model(), image()


BERT = dict(vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
            max_position_embeddings=32)


def bert():
    from transformers import BertConfig, BertModel

    return First(BertModel(BertConfig(**BERT)), 0, return_dict=False), tokens(torch.ones(1, 12, dtype=torch.int64))


def distilbert():
    from transformers import DistilBertConfig, DistilBertModel

    config = DistilBertConfig(vocab_size=64, dim=32, n_layers=2, n_heads=2, hidden_dim=64, max_position_embeddings=32)
    return First(DistilBertModel(config), 0, return_dict=False), tokens(torch.ones(1, 12, dtype=torch.int64))


def mobilebert():
    from transformers import MobileBertConfig, MobileBertModel

    config = MobileBertConfig(**BERT, embedding_size=16, intra_bottleneck_size=16, num_feedforward_networks=2)
    return First(MobileBertModel(config), 0, return_dict=False), tokens(torch.ones(1, 12, dtype=torch.int64))


def whisper():
    from transformers import WhisperConfig, WhisperModel

    config = WhisperConfig(
        vocab_size=64, num_mel_bins=8, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=64, decoder_ffn_dim=64, max_source_positions=32,
        max_target_positions=24, pad_token_id=0, bos_token_id=1, eos_token_id=1, decoder_start_token_id=1)
    return WhisperModel(config)


def whisper_encoder():
    return First(whisper().encoder, 0, return_dict=False), (torch.randn(1, 8, 64),)


def whisper_decoder():
    names = ("input_ids", "encoder_hidden_states")
    model = Named(whisper().decoder, 0, names, use_cache=False, return_dict=False)
    return model, (*tokens(length=6), torch.randn(1, 32, 32))


def t5_encoder():
    from transformers import T5Config, T5EncoderModel

    config = T5Config(vocab_size=64, d_model=32, d_kv=16, d_ff=64, num_layers=2, num_heads=2)
    return First(T5EncoderModel(config), 0, return_dict=False), tokens()


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=64, n_positions=32, n_embd=32, n_layer=2, n_head=2)
    return First(GPT2LMHeadModel(config), 0, use_cache=False, return_dict=False), tokens()


def clip_vision():
    from transformers import CLIPVisionConfig, CLIPVisionModel

    config = CLIPVisionConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
                              image_size=32, patch_size=8)
    return First(CLIPVisionModel(config), 1, return_dict=False), image(1, 3, 32, 32)


def wav2vec2():
    from transformers import Wav2Vec2Config, Wav2Vec2Model

    config = Wav2Vec2Config(
        vocab_size=32, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, conv_dim=(16, 16),
        conv_stride=(5, 2), conv_kernel=(10, 3), num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4,
        apply_spec_augment=False)
    return First(Wav2Vec2Model(config), 0, return_dict=False), (torch.randn(1, 400),)


NETWORKS = {
    "mobilenet_v2": mobilenet_v2,
    "mobilenet_v3": mobilenet_v3,
    "resnet": resnet,
    "vit": vit,
    "bert": bert,
    "whisper_encoder": whisper_encoder,
    "whisper_decoder": whisper_decoder,
    "efficientnet": efficientnet,
    "segmentation": segmentation,
    "unet": lambda: (Unet(), image(1, 3, 32, 32)),
    "lstm": lambda: (Recurrent(nn.LSTM), (torch.randn(1, 5, 12),)),
    "gru": lambda: (Recurrent(nn.GRU, bidirectional=True), (torch.randn(1, 5, 12),)),
    "mobilebert": mobilebert,
    "distilbert": distilbert,
    "separable": lambda: (Separable(), (torch.randn(1, 1, 400),)),
    "resnext": resnext,
    "swin": swin,
    "convnext": convnext,
    "shufflenet": shufflenet,
    "densenet": densenet,
    "t5_encoder": t5_encoder,
    "gpt2": gpt2,
    "clip_vision": clip_vision,
    "wav2vec2": wav2vec2,
}


def settled(model, inputs):
    """The model in evaluation, its norms with the statistics of a few runs, so that numbers keep a size."""
    model.train()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    floats = [x.is_floating_point() for x in inputs]
    if any(isinstance(module, nn.BatchNorm2d) for module in model.modules()):
        for _ in range(4):
            model(*(torch.rand((4, *x.shape[1:])) if is_float else x for x, is_float in zip(inputs, floats)))
    return model.eval()


def without_delegate(program):
    from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower

    edge = to_edge_transform_and_lower(program, partitioner=[], compile_config=EdgeCompileConfig(_check_ir_validity=False))
    return edge.to_executorch().buffer


def last_scales(program):
    """The scales of the grids that the outputs were last on."""
    [output] = [node for node in program.graph.nodes if node.op == "output"]
    found, seen, left = [], set(), list(output.all_input_nodes)
    while left:
        node = left.pop()
        if node in seen:
            continue
        seen.add(node)
        if "dequantize_per_tensor" in str(node.target):
            found.append(float(node.args[1]))
        else:
            left.extend(node.all_input_nodes)
    return found


@torch.no_grad()
def make(out, name, form):
    from executorch.extension.pybindings.portable_lib import _load_for_executorch_from_buffer

    case = f"{name}_{form}"
    if (out / case / "case.json").exists():
        return
    torch.manual_seed(42)
    model, inputs = NETWORKS[name]()
    model = settled(model, inputs)
    tolerance = FLOAT_TOLERANCE
    if form in ("static", "dynamic"):
        model = pt2e(model, inputs, form == "dynamic")
    program = torch.export.export(model, inputs)
    if form == "static":
        tolerance = max([tolerance, *(2.01 * scale for scale in last_scales(program))])
    elif form == "dynamic":
        tolerance = DYNAMIC_TOLERANCE
    pte = without_delegate(program) if form == "portable" else lowered(program, form)
    steps = []
    for given in (inputs, other_inputs(inputs)):
        eager = model(*given)
        own = torch.as_tensor(_load_for_executorch_from_buffer(pte).forward(list(given))[0]).clone()
        apart = (own.double() - eager.double()).abs().max().item()
        # The runtime rounds sums where PyTorch rounds what each operator gives.
        allowed = 0.1 if form in ("static", "dynamic") else FLOAT_TOLERANCE
        if not apart <= max(tolerance, allowed) * (1 + eager.abs().max().item()):
            raise et_env.CaseError(f"eager and the runtime are {apart:g} apart")
        steps.append({"inputs": list(given), "outputs": [own]})
    relative = 0.0 if form == "static" else tolerance
    meta = {"kind": "model", "source": f"{name}, {form}", "atol": tolerance, "rtol": relative}
    et_env.write_case(out, case, meta, pte, None, steps)


def other_inputs(inputs):
    """Further inputs of the same kind; masks stay as they are."""
    def other(x):
        if x.is_floating_point():
            return torch.rand_like(x) if x.dim() == 4 else torch.randn_like(x)
        return x if x.max() == x.min() else x.flip(-1)

    return tuple(other(x) for x in inputs)


def main():
    torch.set_num_threads(1)
    jobs = [(name, form) for form in FORMS for name in NETWORKS]
    make_all(__doc__, [(f"{name}_{form}", lambda out, job=(name, form): make(out, *job)) for name, form in jobs])


if __name__ == "__main__":
    main()
