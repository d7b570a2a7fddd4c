"""Cases from ExecuTorch's own MLX operator tests.

    make_ops.py OUT [--filter GLOB]... [--jobs N] [--seed S] [--large]

Every configuration of every operator test becomes one case, exported as the
test exports it and judged with the test's tolerances. The tests themselves do
the work: generate_test_files() runs with its file writers replaced, so that
what it would have put on disk is caught here instead.
"""

import et_env  # first: stand-ins and silence

import argparse
import contextlib
import fnmatch
import functools
import importlib
import io
import multiprocessing
import random
import re
import tempfile
from pathlib import Path
from unittest import mock

import numpy
import torch

MLX = "executorch.backends.mlx"
TEST_MODULES = (
    f"{MLX}.test.test_ops",
    f"{MLX}.custom_kernel_ops.test.test_gated_delta_rule",
    f"{MLX}.custom_kernel_ops.test.test_tq_norm",
    f"{MLX}.custom_kernel_ops.test.test_tq_dequant",
    f"{MLX}.custom_kernel_ops.test.test_tq4_compress",
    f"{MLX}.custom_kernel_ops.gguf.test.test_linear",
    f"{MLX}.custom_kernel_ops.gguf.test.test_embedding",
)
TESTS_OWN_SEED = 42
DRAWS = 8  # seeds tried on a sampling program
LARGE = ("gguf_*_k5376*", "gguf_*_k21504*")  # ten cases, 690 MB of 800
FOREIGN = ("metal_kernel_*",)  # run Metal source that only the test has

test_utils = importlib.import_module(f"{MLX}.test.test_utils")
test_ops = importlib.import_module(f"{MLX}.test.test_ops")
test_sample = importlib.import_module(f"{MLX}.test.test_sample")
# The tests' mock of a model config is older than this field of transformers'.
test_ops.MockModelConfig.per_layer_config = property(
    lambda config: [config] * config.num_hidden_layers
)


class SmallVocabularySample(test_utils.OpTestCase):
    """The end-to-end checks of ExecuTorch's sampling test, as operator tests."""

    skip_comparison = True
    probabilities = (0.5, 0.3, 0.15, 0.05)

    def __init__(self, name, model, limit):
        self.name = name
        self.model = model
        self.limit = limit

    @classmethod
    def get_test_configs(cls):
        return [
            cls("sample_top_p_small", test_sample.TopPSampleModel, 0.9),
            cls("sample_top_k_small", test_sample.TopKSampleModel, 2),
        ]

    def create_model(self):
        return self.model()

    def create_inputs(self):
        logits = torch.tensor([self.probabilities]).log()
        return logits, torch.tensor(1.0), torch.tensor(0), torch.tensor(self.limit)


def operator_tests():
    """(case name, test) for every configuration, in a fixed order."""
    classes = []
    for module_name in TEST_MODULES:
        for item in vars(importlib.import_module(module_name)).values():
            is_test = isinstance(item, type) and issubclass(item, test_utils.OpTestCase)
            # a class may have two names: the tests make some of theirs in loops
            if is_test and item.__module__ == module_name and item not in classes:
                classes.append(item)
    classes.append(SmallVocabularySample)
    tests = []
    for cls in classes:
        several = getattr(cls, "get_test_configs", None)
        tests.extend(several() if several else [cls()])

    named, uses = [], {}
    for test in tests:
        name = et_env.case_name(test.name)
        uses[name] = uses.get(name, 0) + 1
        named.append((name if uses[name] == 1 else f"{name}.{uses[name]}", test))
    return named


def in_words(test) -> str:
    """The test's class with its configuration."""
    settings = {k: v for k, v in vars(test).items() if k not in ("name", "seed")}
    words = ", ".join(f"{k}={getattr(v, '__name__', v)}" for k, v in settings.items())
    return f"{type(test).__name__}({words})".replace("torch.", "")


def run_test(test, seed: int):
    """What the test makes: pte bytes, exported program, inputs, outputs."""
    exported, tensor_lists = [], []
    export = torch.export.export

    def keep_export(*args, **kwargs):
        exported.append(export(*args, **kwargs))
        return exported[-1]

    def keep_tensors(tensors, path):
        tensor_lists.append(list(tensors))

    # A stateful model is exported with the state that the expected outputs
    # started from, not with what the eager run left behind.
    reference = test.compute_expected_outputs

    def expected_outputs(model, inputs):
        state = {name: value.clone() for name, value in model.named_buffers()}
        outputs = reference(model, tuple(map(copied, inputs)))
        if isinstance(outputs, torch.Tensor):
            outputs = [outputs]
        outputs = [copied(value) for value in outputs]  # may be the state itself
        for name, value in model.named_buffers():
            value.copy_(state[name])
        return outputs

    test.seed = seed
    random.seed(seed)
    numpy.random.seed(seed)
    torch.manual_seed(seed)
    torch._dynamo.reset()
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(torch.export, "export", keep_export),
        mock.patch.object(test_utils, "save_tensors_to_bin", keep_tensors),
        mock.patch.object(test, "get_test_dir", lambda: Path(folder)),
        mock.patch.object(test, "compute_expected_outputs", expected_outputs),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        pte_path = test.generate_test_files()[0]
        pte_bytes = pte_path.read_bytes()
    inputs, outputs = tensor_lists
    return pte_bytes, exported[0], inputs, outputs


def copied(value):
    return value.clone() if isinstance(value, torch.Tensor) else value


def kv_cache(test):
    """The off-graph cache that a session must be given before the first step."""
    capacity, layers, kv_heads, head_dim = map(int, test.kv_cache.split(",")[:4])
    return {
        "capacity": capacity,
        "layers": layers,
        "kv_heads": kv_heads,
        "head_dim": head_dim,
        "dtype": str(test.kv_dtype).removeprefix("torch."),
    }


def sampling_steps(inputs):
    """Steps for a program that draws tokens: draws, a repeat, a greedy step."""
    logits, temperature, *rest = inputs
    seed, limit = (rest + [None, None])[:2]
    top_k, top_p = logits.shape[-1], 1.0
    if limit is not None and limit.dtype.is_floating_point:
        top_p = float(limit)
    elif limit is not None:
        top_k = int(limit)
    allowed = sampling_support(logits / temperature, top_k, top_p)
    greedy = logits.argmax(-1)

    def step(seed_value, temperature, **rule):
        given = [logits, temperature]
        if seed is not None:
            given.append(torch.full_like(seed, seed_value))
        if limit is not None:
            given.append(limit)
        return {"inputs": given, "outputs": [greedy], **rule}

    draws = range(DRAWS if seed is not None else 1)
    steps = [step(s, temperature, rule="one_of", allowed=[allowed]) for s in draws]
    if seed is not None:
        steps.append(step(draws[-1], temperature, rule="repeat"))
    steps.append(step(0, torch.zeros_like(temperature), rule="exact"))
    return steps


def sampling_support(logits, top_k: int, top_p: float):
    """Which tokens can be drawn: a token stays among the top_k likeliest as long
    as those before it hold no more than top_p of the probability."""
    order = logits.argsort(-1, descending=True)[..., :top_k]
    probability = logits.gather(-1, order).softmax(-1)
    stays = probability.cumsum(-1) - probability <= top_p
    return torch.zeros_like(logits, dtype=torch.bool).scatter(-1, order, stays)


def make_case(out_dir, name, test, seed: int):
    pte_bytes, exported, inputs, outputs = run_test(test, seed)
    meta = {
        "kind": "op",
        "source": in_words(test),
        "atol": test.atol,
        "rtol": test.rtol,
    }
    if test.kv_cache is not None:
        meta["kv_cache"] = kv_cache(test)
    if test.skip_comparison:
        steps = sampling_steps(inputs)
    else:
        steps = [{"inputs": inputs, "outputs": outputs}]
    et_env.write_case(out_dir, name, meta, pte_bytes, exported, steps)


def attempt(job):
    """Make one case; the reason when it could not be made."""
    out_dir, index, seed = job
    name, test = TESTS[index]
    try:
        make_case(out_dir, name, test, seed)
    except Exception as error:  # whatever export or lowering raises is a reason
        reason = re.sub(r"\s+", " ", str(error)).strip()[:200]
        return name, f"{type(error).__name__}: {reason}"
    return name, None


def matches(name: str, globs) -> bool:
    return any(fnmatch.fnmatch(name, glob) for glob in globs)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument(
        "--filter", action="append", metavar="GLOB", help="on the case name; any one will do"
    )
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=TESTS_OWN_SEED)
    parser.add_argument("--large", action="store_true", help="the huge GGUF cases too")
    args = parser.parse_args()

    def wanted(name):
        left_out = FOREIGN if args.large else FOREIGN + LARGE
        return matches(name, args.filter or ["*"]) and not matches(name, left_out)

    jobs = [
        (args.out, index, args.seed)
        for index, (name, _) in enumerate(TESTS)
        if wanted(name)
    ]
    skipped = 0
    context = multiprocessing.get_context("fork")  # keeps the imported tests
    with context.Pool(args.jobs, maxtasksperchild=64) as pool:
        for name, reason in pool.imap(attempt, jobs):
            if reason is not None:
                skipped += 1
                print(f"skipped {name}: {reason}", flush=True)
    et_env.report(len(jobs) - skipped, skipped)


torch.set_num_threads(1)  # sums in one order on every machine
# Each export walks all operators anew to register the same ones: half the time.
torch._export.utils._materialize_cpp_cia_ops = functools.cache(
    torch._export.utils._materialize_cpp_cia_ops
)
TESTS = operator_tests()

if __name__ == "__main__":
    main()
