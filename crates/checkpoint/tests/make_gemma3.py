"""Writes tiny random Gemma 3 models that see, as Hugging Face publishes them, and what transformers makes of images and texts
with them: pixels, rows, logits and greedy tokens.

    python make_gemma3.py
"""

import json
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import Gemma3Config, Gemma3ForConditionalGeneration, Gemma3Processor, PreTrainedTokenizerFast
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil

DATA = Path(__file__).parent / "data"
IMAGES = DATA / "images"
SPECIALS = [
    "<pad>", "<eos>", "<bos>", "<start_of_turn>", "<end_of_turn>", "<start_of_image>", "<end_of_image>", "<image_soft_token>",
]
STEPS = 24
# In the manner of the published one: an image is a mark, texts are trimmed.
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{ '<start_of_turn>' + message['role'] + '\n' }}"
    "{% if message['content'] is string %}{{ message['content'] | trim }}{% else %}{% for item in message['content'] %}"
    "{% if item['type'] == 'image' %}{{ '<start_of_image>' }}{% elif item['type'] == 'text' %}{{ item['text'] | trim }}"
    "{% endif %}{% endfor %}{% endif %}{{ '<end_of_turn>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
)
# Sizes of towers and texts; prompts as images and texts in turn.
CASES = {
    "gemma3": dict(
        text=dict(
            hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
            sliding_window=6, layer_types=["sliding_attention", "full_attention", "sliding_attention"],
            query_pre_attn_scalar=8,
        ),
        vision=dict(
            hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=3, image_size=28, patch_size=7,
        ),
        tokens=4, size=None, mean=[0.5, 0.5, 0.5], std=[0.5, 0.5, 0.5],
        prompts=[["noise.png", "What is that?"], ["wide.png", "Both?", "grey.png"], ["Nothing to see."]],
    ),
    "gemma3_other": dict(
        text=dict(
            hidden_size=40, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, head_dim=16,
            sliding_window=64, layer_types=["sliding_attention", "full_attention"], query_pre_attn_scalar=20,
            final_logit_softcapping=30.0,
        ),
        vision=dict(
            hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2, image_size=24, patch_size=4,
            layer_norm_eps=1e-5, hidden_act="gelu",
        ),
        tokens=9, size=None, mean=[0.48, 0.45, 0.4], std=[0.27, 0.26, 0.28],
        prompts=[["grey.png", "palette.png", "Compare."], ["Look:", "alpha.png"]],
    ),
}


def images():
    """Files of several kinds and sizes."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(3)
    noise = random.integers(0, 256, (31, 45, 3), dtype=np.uint8)
    Image.fromarray(noise).save(IMAGES / "noise.png")
    y, x = np.mgrid[0:19, 0:83]
    wide = np.stack([x * 3 % 256, y * 13 % 256, (x + y) * 5 % 256], axis=-1).astype(np.uint8)
    Image.fromarray(wide).save(IMAGES / "wide.png")
    Image.fromarray(random.integers(0, 256, (52, 17), dtype=np.uint8)).save(IMAGES / "grey.png")
    alpha = random.integers(0, 256, (20, 20, 4), dtype=np.uint8)
    Image.fromarray(alpha).save(IMAGES / "alpha.png")
    Image.fromarray(wide).quantize(7).save(IMAGES / "palette.png")
    y, x = np.mgrid[0:40, 0:56]
    smooth = np.stack([x * 4, y * 6, 255 - x * 2 - y], axis=-1).clip(0, 255).astype(np.uint8)
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(smooth).save(IMAGES / "turned.jpg", quality=95, exif=exif)


def tokenizer(specials, ends, names):
    """Bytes, one merge, and these special tokens; `ends` are those with a role, `names` those that a processor looks for."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate(specials + letters + ["ĊĊ"])}
    model = Tokenizer(models.BPE(vocabulary, [("Ċ", "Ċ")]))
    model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    model.decoder = decoders.ByteLevel()
    made = PreTrainedTokenizerFast(tokenizer_object=model, extra_special_tokens=names, **ends)
    made.add_special_tokens({"additional_special_tokens": [name for name in specials if name not in ends.values()]})
    return made


def write(name, case):
    torch.manual_seed(11)
    folder = DATA / name
    config = Gemma3Config(
        text_config=dict(
            vocab_size=272, max_position_embeddings=256, rms_norm_eps=1e-6, eos_token_id=[1, 4], bos_token_id=2, pad_token_id=0,
            **case["text"],
        ),
        vision_config=dict(model_type="siglip_vision_model", vision_use_head=False, **case["vision"]),
        mm_tokens_per_image=case["tokens"], boi_token_index=5, eoi_token_index=6, image_token_index=7, eos_token_id=[1, 4],
    )
    config._attn_implementation = "eager"
    model = Gemma3ForConditionalGeneration(config).eval()
    for key, parameter in model.named_parameters():
        # Larger than at the start of a training, so that attention looks somewhere; in f16, as the file has them.
        # Smaller where it is the head too, or each token would follow itself.
        size = 0.06 if "embed_tokens" in key else 0.3 if parameter.ndim > 1 else 0.1
        parameter.data = torch.randn_like(parameter) * size
        if "layer_norm" in key and key.endswith("weight"):
            parameter.data += 1
        parameter.data = parameter.data.half().float()
    folder.mkdir(parents=True, exist_ok=True)
    state = {key: value.half().contiguous() for key, value in model.state_dict().items() if key != "lm_head.weight"}
    save_file(state, str(folder / "model.safetensors"), metadata={"format": "pt"})
    model.config.architectures = ["Gemma3ForConditionalGeneration"]
    model.config.save_pretrained(folder)
    size = case["vision"]["image_size"]
    front = Gemma3ImageProcessorPil(
        size=dict(height=size, width=size), image_mean=case["mean"], image_std=case["std"], do_pan_and_scan=None
    )
    ends = dict(pad_token="<pad>", eos_token="<eos>", bos_token="<bos>")
    names = dict(boi_token="<start_of_image>", eoi_token="<end_of_image>", image_token="<image_soft_token>")
    processor = Gemma3Processor(front, tokenizer(SPECIALS, ends, names), chat_template=TEMPLATE, image_seq_length=case["tokens"])
    processor.save_pretrained(folder)
    expected = {}
    for number, prompt in enumerate(case["prompts"]):
        names = [part for part in prompt if part.endswith(".png")]
        opened = [Image.open(IMAGES / part) for part in names]
        content = [dict(type="image") if part in names else dict(type="text", text=part) for part in prompt]
        message = [dict(role="user", content=content)]
        text = processor.apply_chat_template(message, add_generation_prompt=True)
        inputs = processor(text=text, images=[opened] if opened else None, return_tensors="pt", add_special_tokens=False)
        ids, pixels = inputs["input_ids"], inputs.get("pixel_values")
        kinds = inputs["token_type_ids"]
        expected[f"{number}.prompt"] = ids[0]
        with torch.no_grad():
            if pixels is not None:
                expected[f"{number}.pixels"] = pixels
                expected[f"{number}.rows"] = model.get_image_features(pixels).pooler_output
            logits, tokens = [], []
            for _ in range(STEPS):
                out = model(input_ids=ids, pixel_values=pixels, token_type_ids=kinds, use_cache=False).logits[0, -1]
                logits.append(out)
                tokens.append(int(out.argmax()))
                ids = torch.cat([ids, torch.tensor([[tokens[-1]]])], dim=1)
                kinds = torch.cat([kinds, torch.tensor([[0]])], dim=1)
        print(name, number, text.replace("\n", "|"), tokens)
        expected[f"{number}.logits"] = torch.stack(logits)
        expected[f"{number}.tokens"] = torch.tensor(tokens)
    expected = {key: value.contiguous() for key, value in expected.items()}
    save_file(expected, str(DATA / f"{name}_expected.safetensors"))


if __name__ == "__main__":
    images()
    for name, case in CASES.items():
        write(name, case)
