"""Models written for tinygrad 0.12 from their published descriptions, against `transformers`.

Random weights of tiny models are copied by name. The scores, and the gradients of one step, are
equal; with a batch that is sharded over two devices, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from test.devices import device_names
from test.models.bert import Bert, Vit
from test.models.diffusion_unet import DiffusionUnet
from test.models.gpt2 import GPT2
from test.models.llama import Llama
from test.models.mamba import Mamba
from test.models.t5 import T5
from test.models.whisper import Whisper
from tinygrad import Tensor
from tinygrad.nn.state import get_state_dict, load_state_dict

torch: Any = pytest.importorskip("torch", reason="compares with torch")
transformers: Any = pytest.importorskip("transformers", reason="compares with transformers")

VOCAB, BATCH, SEQ = 40, 2, 7
COMMON = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": VOCAB,
}
TOKENS = np.random.default_rng(0).integers(3, VOCAB, (BATCH, SEQ))
SOURCE = np.random.default_rng(1).integers(3, VOCAB, (BATCH, 5))
SEGMENTS = (np.arange(SEQ) > 3).astype(np.int64) * np.ones((BATCH, 1), np.int64)
IMAGE = np.random.default_rng(2).normal(size=(BATCH, 3, 8, 8)).astype(np.float32)
SOUND = np.random.default_rng(3).normal(size=(BATCH, 8, 12)).astype(np.float32)

NOISE = np.random.default_rng(4).normal(size=(BATCH, 4, 8, 8)).astype(np.float32)
TEXT = np.random.default_rng(5).normal(size=(BATCH, 3, 12)).astype(np.float32)
STEPS = np.array([3, 700])


def llama() -> Any:
    config = transformers.LlamaConfig(**COMMON, num_key_value_heads=2)
    return transformers.LlamaForCausalLM(config)


def mixtral() -> Any:
    config = transformers.MixtralConfig(
        **COMMON, num_key_value_heads=2, num_local_experts=4, rms_norm_eps=1e-6
    )
    return transformers.MixtralForCausalLM(config)


def gpt2() -> Any:
    sizes = {"n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": 12}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=VOCAB, **sizes))


def bert() -> Any:
    config = transformers.BertConfig(**COMMON, max_position_embeddings=12)
    return transformers.BertModel(config)


def vit() -> Any:
    sizes = {name: value for name, value in COMMON.items() if name != "vocab_size"}
    config = transformers.ViTConfig(**sizes, image_size=8, patch_size=4, num_labels=5)
    return transformers.ViTForImageClassification(config)


def t5() -> Any:
    sizes = {"d_model": 16, "d_kv": 4, "d_ff": 32, "num_layers": 2, "num_heads": 4}
    return transformers.T5ForConditionalGeneration(transformers.T5Config(vocab_size=VOCAB, **sizes))


def whisper() -> Any:
    sides = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in
             {"layers": 2, "attention_heads": 4, "ffn_dim": 32}.items()}  # fmt: skip
    config = transformers.WhisperConfig(
        **sides, d_model=16, vocab_size=VOCAB, num_mel_bins=8, max_source_positions=6,
        max_target_positions=12, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        decoder_start_token_id=1, suppress_tokens=None, begin_suppress_tokens=None,
    )  # fmt: skip
    return transformers.WhisperForConditionalGeneration(config)


def mamba() -> Any:
    sizes = {"hidden_size": 16, "state_size": 4, "num_hidden_layers": 2, "conv_kernel": 3}
    config = transformers.MambaConfig(vocab_size=VOCAB, expand=2, time_step_rank=2, **sizes)
    return transformers.MambaForCausalLM(config)


def diffusion_unet() -> Any:
    diffusers = pytest.importorskip("diffusers", reason="compares with diffusers")
    return diffusers.UNet2DConditionModel(
        sample_size=8, block_out_channels=(8, 16), layers_per_block=1, cross_attention_dim=12,
        attention_head_dim=2, norm_num_groups=4,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
    )  # fmt: skip


# ours, theirs, the inputs by the names of theirs, the output of theirs
Case = tuple[Callable[[], Any], Callable[[], Any], dict[str, np.ndarray], str]
CASES: dict[str, Case] = {
    "llama": (Llama, llama, {"input_ids": TOKENS}, "logits"),
    "mixtral": (lambda: Llama(experts=4, theta=1e6), mixtral, {"input_ids": TOKENS}, "logits"),
    "gpt2": (GPT2, gpt2, {"input_ids": TOKENS}, "logits"),
    "bert": (
        Bert,
        lambda: transformers.BertModel(
            transformers.BertConfig(**COMMON, max_position_embeddings=12)
        ),
        {"input_ids": TOKENS, "token_type_ids": SEGMENTS},
        "pooler_output",
    ),
    "vit": (Vit, vit, {"pixel_values": IMAGE}, "logits"),
    "t5": (T5, t5, {"input_ids": SOURCE, "decoder_input_ids": TOKENS}, "logits"),
    "whisper": (Whisper, whisper, {"input_features": SOUND, "decoder_input_ids": TOKENS}, "logits"),
    "mamba": (Mamba, mamba, {"input_ids": TOKENS}, "logits"),
    "stable diffusion": (
        DiffusionUnet,
        diffusion_unet,
        {"sample": NOISE, "timestep": STEPS, "encoder_hidden_states": TEXT},
        "sample",
    ),
}


def random_reference(make: Callable[[], Any]) -> Any:
    """A model of torch whose weights are all random, those of norms and biases too."""
    torch.manual_seed(0)
    model = make().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return model


def loss_of(scores: Any) -> Any:
    return (scores * scores).mean() + scores.mean()


def compare(case: Case, devices: tuple[str, ...] | None) -> None:
    ours, theirs, inputs, output = case
    reference, model = random_reference(theirs), ours()
    names = get_state_dict(model)
    weights = {name: x for name, x in reference.state_dict().items() if name in names}
    load_state_dict(model, {k: Tensor(x.numpy()) for k, x in weights.items()}, verbose=False)
    arguments = [Tensor(x.astype(np.int32) if x.dtype == np.int64 else x) for x in inputs.values()]
    if devices is not None:
        arguments = [x.shard(devices, axis=0) for x in arguments]
        for weight in names.values():
            weight.shard_(devices)
    for weight in names.values():
        weight.requires_grad = True
    scores = model(*arguments)
    loss_of(scores).backward()
    Tensor.realize(scores, *(weight.grad for weight in names.values()))
    expected = reference(**{name: torch.tensor(x) for name, x in inputs.items()})[output]
    np.testing.assert_allclose(scores.numpy(), expected.detach().numpy(), rtol=2e-4, atol=2e-5)
    loss_of(expected).backward()
    for name, parameter in reference.named_parameters():
        if name in names and parameter.grad is not None:
            found, wanted = names[name].grad.numpy(), parameter.grad.numpy()
            np.testing.assert_allclose(
                found, wanted, rtol=1e-3, atol=1e-4 * max(1, abs(wanted).max()), err_msg=name
            )


# the others compile longer
QUICK = {"llama", "gpt2", "vit"}


@pytest.mark.parametrize(
    "name", [pytest.param(x, marks=[] if x in QUICK else [pytest.mark.slow]) for x in CASES]
)
def test_a_published_model_has_the_scores_and_gradients_of_transformers(name: str) -> None:
    compare(CASES[name], None)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama", "whisper"])
def test_a_published_model_on_two_devices_equals_transformers(name: str) -> None:
    compare(CASES[name], device_names(2))
