"""Writes tiny random Gemma 4 models that see, as Hugging Face publishes them, and what transformers makes of images and texts with
them: pixels, rows, logits and greedy tokens.

    python make_gemma4.py [NAME...]

`make_gemma3.py` has written the images but one, and knows the tokenizer.
"""

import json
import sys

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file
from transformers import Gemma4Config, Gemma4ForConditionalGeneration
from transformers.models.gemma4.image_processing_pil_gemma4 import Gemma4ImageProcessorPil, get_aspect_ratio_preserving_size

from make_gemma3 import DATA, IMAGES, STEPS, tokenizer

SPECIALS = ["<pad>", "<eos>", "<bos>", "<|turn>", "<turn|>", "<|image>", "<image|>", "<|image|>"]
ROW = "<|image|>"
# Heights and widths of images of many forms.
SIZES = [
    (1, 1), (7, 5), (480, 640), (640, 480), (100, 99), (50, 333), (3, 500), (1, 279), (1, 280), (1, 281), (2, 900), (600, 2), (999, 3),
    (37, 1200),
]
# In the manner of the published one: an image is what stands for each of its rows, between empty lines.
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{ '<|turn>' + message['role'] + '\n' }}"
    "{% if message['content'] is string %}{{ message['content'] | trim }}{% else %}{% for item in message['content'] %}"
    "{% if item['type'] == 'image' %}{{ '\n\n<|image|>\n\n' }}{% elif item['type'] == 'text' %}{{ item['text'] | trim }}"
    "{% endif %}{% endfor %}{% endif %}{{ '<turn|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|turn>model\n' }}{% endif %}"
)
CASES = {
    # In the manner of E2B: rows see what came before them, per-layer inputs, layers that share keys, projections that clip.
    "gemma4": dict(
        text=dict(
            hidden_size=32, intermediate_size=24, num_hidden_layers=5, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
            global_head_dim=16, sliding_window=24, num_kv_shared_layers=2, use_double_wide_mlp=True,
            layer_types=["sliding_attention", "sliding_attention", "full_attention", "sliding_attention", "full_attention"],
            hidden_size_per_layer_input=6, vocab_size_per_layer_input=272, pad_token_id=3, final_logit_softcapping=30.0,
        ),
        vision=dict(
            hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=3, head_dim=8,
            patch_size=2, pooling_kernel_size=3, position_embedding_size=210, use_clipped_linears=True,
        ),
        file="processor_config.json", seed=10,
        prompts=[["noise.png", "What is that?"], ["wide.png", "Both?", "grey.png"], ["Nothing to see."]],
    ),
    # In the manner of 31B: on sliding layers rows see each other, keys are values, what the tower gives is standardised.
    "gemma4_other": dict(
        text=dict(
            hidden_size=40, intermediate_size=48, num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=2, head_dim=16,
            global_head_dim=24, num_global_key_value_heads=1, attention_k_eq_v=True, sliding_window=20,
            layer_types=["sliding_attention", "full_attention", "full_attention"], hidden_size_per_layer_input=0,
            use_bidirectional_attention="vision", pad_token_id=0,
        ),
        vision=dict(
            hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
            patch_size=3, pooling_kernel_size=2, position_embedding_size=140, standardize=True, rms_norm_eps=1e-5,
            hidden_activation="gelu", rope_parameters=dict(rope_type="axial", rope_theta=30.0),
        ),
        file="preprocessor_config.json", seed=1,
        prompts=[["grey.png", "palette.png", "Compare."], ["Look:", "alpha.png"], ["thin.png", "Long?"]],
    ),
}


def images():
    """One so thin that it becomes a single line of squares."""
    random = np.random.default_rng(5)
    Image.fromarray(random.integers(0, 256, (2, 150, 3), dtype=np.uint8)).save(IMAGES / "thin.png")


def shake(model):
    """Numbers larger than at the start of a training, so that attention looks somewhere; in f16, as the file has them."""
    for key, value in model.state_dict().items():
        if key == "lm_head.weight":
            continue  # the embedding again
        if key.endswith(("input_min", "output_min", "input_max", "output_max")):
            # Where some of what passes is cut.
            number = (1.5 + torch.rand(())) * (-1 if key.endswith("min") else 1)
        elif key.endswith(("std_scale", "layer_scalar")):
            number = 0.5 + torch.rand(value.shape)
        elif "norm" in key:
            number = 1 + torch.randn(value.shape) * 0.1
        else:
            size = 0.06 if "embed_tokens" in key else 0.3 if value.ndim > 1 else 0.5
            number = torch.randn(value.shape) * size
        value.copy_(number.half().float())


def write(name, case):
    torch.manual_seed(case["seed"])
    folder = DATA / name
    config = Gemma4Config(
        text_config=dict(
            vocab_size=272, max_position_embeddings=512, rms_norm_eps=1e-6, eos_token_id=[1, 4], bos_token_id=2, **case["text"]
        ),
        vision_config=case["vision"], audio_config=None, boi_token_id=5, eoi_token_id=6, image_token_id=7, eos_token_id=[1, 4],
        # None of the vocabulary: what an answer writes by chance is no place for a video.
        video_token_id=300, audio_token_id=301, boa_token_id=302, eoa_token_index=303,
    )
    config._attn_implementation = "eager"
    model = Gemma4ForConditionalGeneration(config).eval()
    shake(model)
    folder.mkdir(parents=True, exist_ok=True)
    state = {key: value.half().contiguous() for key, value in model.state_dict().items() if key != "lm_head.weight"}
    save_file(state, str(folder / "model.safetensors"), metadata={"format": "pt"})
    model.config.architectures = ["Gemma4ForConditionalGeneration"]
    model.config.save_pretrained(folder)
    of = case["vision"]
    squares = of["pooling_kernel_size"]
    front = Gemma4ImageProcessorPil(patch_size=of["patch_size"], pooling_kernel_size=squares, max_soft_tokens=70)
    said = front.to_dict() if case["file"].startswith("pre") else dict(image_processor=front.to_dict())
    (folder / case["file"]).write_text(json.dumps(said, indent=1, sort_keys=True) + "\n")
    ends = dict(pad_token="<pad>", eos_token="<eos>", bos_token="<bos>")
    names = dict(boi_token="<|image>", eoi_token="<image|>", image_token=ROW)
    words = tokenizer(SPECIALS, ends, names)
    words.chat_template = TEMPLATE
    words.save_pretrained(folder)
    # What images are brought to with the published sizes.
    sizes = [get_aspect_ratio_preserving_size(*size, patch_size=16, max_patches=280 * 9, pooling_kernel_size=3) for size in SIZES]
    expected = dict(sizes=torch.tensor([[*size, *brought] for size, brought in zip(SIZES, sizes)]))
    for number, prompt in enumerate(case["prompts"]):
        shown = [part for part in prompt if part.endswith(".png")]
        content = [dict(type="image") if part in shown else dict(type="text", text=part) for part in prompt]
        text = words.apply_chat_template([dict(role="user", content=content)], add_generation_prompt=True, tokenize=False)
        given = {}
        if shown:
            seen = front([Image.open(IMAGES / part) for part in shown], return_tensors="pt")
            given = dict(pixel_values=seen["pixel_values"], image_position_ids=seen["image_position_ids"])
            counts = [int(count) for count in seen["num_soft_tokens_per_image"]]
            is_patch = (given["image_position_ids"] >= 0).all(dim=-1)
            # Patches of all images, one behind the other, and the column and the row of each.
            expected[f"{number}.pixels"] = given["pixel_values"][is_patch]
            expected[f"{number}.places"] = given["image_position_ids"][is_patch]
            expected[f"{number}.counts"] = torch.tensor(counts)
            parts = text.split(ROW)
            text = parts[0] + "".join(f"<|image>{ROW * count}<image|>{part}" for count, part in zip(counts, parts[1:]))
        ids = words(text, return_tensors="pt", add_special_tokens=False)["input_ids"]
        expected[f"{number}.prompt"] = ids[0]
        with torch.no_grad():
            if shown:
                expected[f"{number}.rows"] = torch.cat(list(model.model.get_image_features(**given).pooler_output))
            logits, tokens = [], []
            for _ in range(STEPS):
                out = model(input_ids=ids, mm_token_type_ids=(ids == 7).int(), use_cache=False, **given).logits[0, -1]
                logits.append(out)
                tokens.append(int(out.argmax()))
                ids = torch.cat([ids, torch.tensor([[tokens[-1]]])], dim=1)
        print(name, number, shown and counts, tokens)
        expected[f"{number}.logits"] = torch.stack(logits)
        expected[f"{number}.tokens"] = torch.tensor(tokens)
    expected = {key: value.contiguous() for key, value in expected.items()}
    save_file(expected, str(DATA / f"{name}_expected.safetensors"))


if __name__ == "__main__":
    images()
    for name in sys.argv[1:] or CASES:
        write(name, CASES[name])
