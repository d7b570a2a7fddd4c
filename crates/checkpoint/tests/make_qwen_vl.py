"""Writes tiny random Qwen2.5-VLs and Qwen3-VLs as Hugging Face publishes them, and what transformers makes of images and texts with them.

    python make_qwen_vl.py [NAME...]

`make_gemma3.py` has written the images and knows the tokenizer.
"""

import sys

import torch
from PIL import Image
from safetensors.torch import save_file
from transformers import (
    Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration, Qwen3VLConfig, Qwen3VLForConditionalGeneration,
)
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from make_gemma3 import DATA, IMAGES, STEPS, tokenizer

SPECIALS = [
    "<|endoftext|>", "<|im_end|>", "<|im_start|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>",
    "<|pad|>",
]
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}{% for item in message['content'] %}"
    "{% if item['type'] == 'image' %}{{ '<|vision_start|><|image_pad|><|vision_end|>' }}{% elif 'text' in item %}"
    "{{ item['text'] }}{% endif %}{% endfor %}{% endif %}{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
CASES = {
    "qwen2_5_vl": dict(
        text=dict(
            hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            rope_parameters=dict(rope_type="default", rope_theta=10000.0, mrope_section=[1, 1, 2]),
        ),
        vision=dict(
            depth=3, hidden_size=16, intermediate_size=24, num_heads=2, patch_size=4, window_size=16, out_hidden_size=32,
            fullatt_block_indexes=[1],
        ),
        size=dict(shortest_edge=256, longest_edge=2304), tied=True,
        prompts=[["noise.png", "What is that?"], ["wide.png", "Both?", "grey.png"], ["Nothing to see."]],
    ),
    "qwen2_5_vl_other": dict(
        text=dict(
            hidden_size=48, intermediate_size=64, num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=1,
            rope_parameters=dict(rope_type="default", rope_theta=1000000.0, mrope_section=[2, 3, 3]),
        ),
        vision=dict(
            depth=2, hidden_size=24, intermediate_size=20, num_heads=3, patch_size=3, window_size=18, out_hidden_size=48,
            fullatt_block_indexes=[0], spatial_merge_size=3, temporal_patch_size=1,
        ),
        size=dict(shortest_edge=81, longest_edge=1500), tied=False,
        prompts=[["grey.png", "palette.png", "Compare."], ["Look:", "alpha.png"]],
    ),
    "qwen3_vl": dict(
        text=dict(
            hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
            rope_parameters=dict(rope_type="default", rope_theta=10000.0, mrope_section=[4, 2, 2]),
        ),
        vision=dict(
            depth=3, hidden_size=16, intermediate_size=24, num_heads=2, patch_size=4, out_hidden_size=32,
            deepstack_visual_indexes=[0, 1], num_position_embeddings=25,
        ),
        size=dict(shortest_edge=256, longest_edge=2304), tied=True,
        prompts=[["noise.png", "What is that?"], ["wide.png", "Both?", "grey.png"], ["Nothing to see."]],
    ),
    "qwen3_vl_other": dict(
        text=dict(
            hidden_size=48, intermediate_size=64, num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=1, head_dim=12,
            rope_parameters=dict(rope_type="default", rope_theta=1000000.0, mrope_section=[2, 1, 3]),
        ),
        vision=dict(
            depth=2, hidden_size=24, intermediate_size=20, num_heads=3, patch_size=3, out_hidden_size=48,
            deepstack_visual_indexes=[1], num_position_embeddings=16, spatial_merge_size=3, temporal_patch_size=1,
        ),
        size=dict(shortest_edge=81, longest_edge=1500), tied=False,
        prompts=[["grey.png", "palette.png", "Compare."], ["Look:", "alpha.png"]],
    ),
}
# Configuration, model, and the numbers that its pictures are brought to.
KINDS = {
    "qwen2_5_vl": (Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration, {}),
    "qwen3_vl": (Qwen3VLConfig, Qwen3VLForConditionalGeneration, dict(image_mean=[0.5] * 3, image_std=[0.5] * 3)),
}


def write(name, case):
    torch.manual_seed(7)
    folder = DATA / name
    of_config, of_model, shade = KINDS[name.removesuffix("_other")]
    config = of_config(
        text_config=dict(
            vocab_size=272, max_position_embeddings=256, rms_norm_eps=1e-6, eos_token_id=1, bos_token_id=0, **case["text"]
        ),
        vision_config=case["vision"], image_token_id=5, video_token_id=6, vision_start_token_id=3, vision_end_token_id=4,
        tie_word_embeddings=case["tied"],
    )
    config._attn_implementation = "eager"
    model = of_model(config).eval()
    for key, parameter in model.named_parameters():
        size = 0.2 if "embed" in key and "patch" not in key or parameter.ndim < 2 else 0.3
        parameter.data = torch.randn_like(parameter) * size
        if "norm" in key or "ln_q" in key:
            parameter.data += 1
        parameter.data = parameter.data.half().float()
    folder.mkdir(parents=True, exist_ok=True)
    state = model.state_dict()
    if case["tied"]:
        state.pop("lm_head.weight")
    save_file({key: value.half().contiguous() for key, value in state.items()}, str(folder / "model.safetensors"),
              metadata={"format": "pt"})
    model.config.architectures = [of_model.__name__]
    model.config.save_pretrained(folder)
    of = case["vision"]
    front = Qwen2VLImageProcessorPil(
        size=case["size"], patch_size=of["patch_size"], merge_size=of.get("spatial_merge_size", 2),
        temporal_patch_size=of.get("temporal_patch_size", 2), **shade,
    )
    front.save_pretrained(folder)
    words = tokenizer(SPECIALS, dict(pad_token="<|endoftext|>", eos_token="<|im_end|>"), {})
    words.chat_template = TEMPLATE
    words.save_pretrained(folder)
    expected = {}
    for number, prompt in enumerate(case["prompts"]):
        names = [part for part in prompt if part.endswith(".png")]
        content = [dict(type="image") if part in names else dict(type="text", text=part) for part in prompt]
        text = words.apply_chat_template([dict(role="user", content=content)], add_generation_prompt=True, tokenize=False)
        given = {}
        if names:
            seen = front([Image.open(IMAGES / part) for part in names], return_tensors="pt")
            expected[f"{number}.pixels"], grids = seen["pixel_values"], seen["image_grid_thw"]
            expected[f"{number}.grids"] = grids
            given = dict(pixel_values=seen["pixel_values"], image_grid_thw=grids)
            parts = text.split("<|image_pad|>")
            counts = [int(grid.prod()) // front.merge_size**2 for grid in grids]
            text = parts[0] + "".join("<|image_pad|>" * count + part for count, part in zip(counts, parts[1:]))
        ids = words(text, return_tensors="pt", add_special_tokens=False)["input_ids"]
        expected[f"{number}.prompt"] = ids[0]
        with torch.no_grad():
            if names:
                seen = model.get_image_features(**given)
                # Rows for the first layers of the text model lie behind those that stand for tokens.
                more = [torch.cat(list(level)) for level in getattr(seen, "deepstack_features", None) or []]
                expected[f"{number}.rows"] = torch.cat([torch.cat(list(seen.pooler_output)), *more], dim=1)
            logits, tokens = [], []
            for _ in range(STEPS):
                kinds = (ids == 5).int()
                model.model.rope_deltas = None
                out = model(input_ids=ids, mm_token_type_ids=kinds, use_cache=False, **given).logits[0, -1]
                logits.append(out)
                tokens.append(int(out.argmax()))
                ids = torch.cat([ids, torch.tensor([[tokens[-1]]])], dim=1)
        print(name, number, text.replace("\n", "|"), tokens)
        expected[f"{number}.logits"] = torch.stack(logits)
        expected[f"{number}.tokens"] = torch.tensor(tokens)
    expected = {key: value.contiguous() for key, value in expected.items()}
    save_file(expected, str(DATA / f"{name}_expected.safetensors"))


for name in sys.argv[1:] or CASES:
    write(name, CASES[name])
