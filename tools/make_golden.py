#!/usr/bin/env python3
"""Makes a miniature model with reference outputs, as `sluice check` reads them.

usage: make_golden.py OUT MODEL_TYPE [KEY=JSON ...]

MODEL_TYPE is one of transformers' causal language models; KEY=JSON overrides values of its config. Weights are random and
stored in bf16; the reference is transformers in float32 with eager attention from those rounded weights. Needs torch,
transformers and safetensors.
"""
import json
import sys
from pathlib import Path

if len(sys.argv) < 3 or sys.argv[1].startswith("-"):
    sys.exit(__doc__)

import torch  # noqa: E402
from safetensors.torch import save_file  # noqa: E402
from transformers import AutoConfig, AutoModelForCausalLM  # noqa: E402

SMALL = dict(
    vocab_size=320, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=256, bos_token_id=1, eos_token_id=2, pad_token_id=0,
    attn_implementation="eager")


def randomize(model, generator):
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() < 2:
                base = 1.0 if "norm" in name.lower() or "ln" in name.lower() else 0.0
                value = (base if "weight" in name else 0.0) + 0.1 * noise
            else:
                value = noise * (0.7 / parameter.shape[-1] ** 0.5)
            parameter.copy_(value.to(torch.bfloat16).float())
        for name, buffer in model.named_buffers():
            if buffer.is_floating_point() and "correction_bias" in name:
                buffer.copy_((0.1 * torch.randn(buffer.shape, generator=generator)).to(torch.bfloat16).float())


def main():
    out, model_type = Path(sys.argv[1]), sys.argv[2]
    overrides = dict(SMALL)
    for item in sys.argv[3:]:
        key, _, value = item.partition("=")
        overrides[key] = json.loads(value)
    overrides = {key: value for key, value in overrides.items() if value != "unset"}
    config = AutoConfig.for_model(model_type, **overrides)
    generator = torch.Generator().manual_seed(11)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    randomize(model, generator)
    out.mkdir(parents=True, exist_ok=True)

    vocab = config.get_text_config().vocab_size
    cases, tensors = [], {}
    for index, length in enumerate([1, 7, 33, 70]):
        prompt = torch.randint(3, vocab, (1, length), generator=generator)
        with torch.no_grad():
            logits = model(prompt).logits[0].float()
            tokens, greedy = prompt, []
            for _ in range(12):
                last = model(tokens, use_cache=False).logits[0, -1].float()
                greedy.append(int(last.argmax()))
                tokens = torch.cat([tokens, last.argmax().view(1, 1)], dim=1)
        tensors[f"logits.{index}"] = logits.contiguous()
        cases.append(dict(prompt=prompt[0].tolist(), greedy=greedy))
    save_file(tensors, out / "golden.safetensors")
    (out / "golden.json").write_text(json.dumps(dict(cases=cases, reference="transformers float32 eager, weights in bf16")))
    model.to(torch.bfloat16).save_pretrained(out)


if __name__ == "__main__":
    main()
