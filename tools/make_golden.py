#!/usr/bin/env python3
"""Makes a miniature model with reference outputs, as `sluice check` reads them.

usage: make_golden.py OUT MODEL_TYPE [KEY=JSON ...] [--lengths N,N,...] [--answer N] [--seed N]

MODEL_TYPE is one of transformers' causal language models; KEY=JSON overrides values of its config. Weights are random and
stored in bf16; the reference is transformers in float32 with eager attention from those rounded weights: logits of one
pass over each prompt, and the tokens of a greedy `generate`, each by a model that has run nothing before (ropes that
change with the length keep a state). Needs torch, transformers and safetensors.
"""
import copy
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
    items, options = sys.argv[3:], {"--lengths": "1,7,33,70", "--answer": "12", "--seed": "11"}
    for name in options:
        if name in items:
            at = items.index(name)
            options[name] = items[at + 1]
            del items[at:at + 2]
    for item in items:
        key, _, value = item.partition("=")
        overrides[key] = json.loads(value)
    overrides = {key: value for key, value in overrides.items() if value != "unset"}
    config = AutoConfig.for_model(model_type, **overrides)
    generator = torch.Generator().manual_seed(int(options["--seed"]))
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    randomize(model, generator)
    out.mkdir(parents=True, exist_ok=True)

    vocab = config.get_text_config().vocab_size
    cases, tensors = [], {}
    for index, length in enumerate(map(int, options["--lengths"].split(","))):
        prompt = torch.randint(3, vocab, (1, length), generator=generator)
        with torch.no_grad():
            logits = copy.deepcopy(model)(prompt).logits[0].float()
            answer = copy.deepcopy(model).generate(
                prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=int(options["--answer"]), do_sample=False,
                eos_token_id=None, pad_token_id=0, output_logits=True, return_dict_in_generate=True)
        gaps = [best[0] - best[1] for best in (row[0].topk(2).values for row in answer.logits)]
        tensors[f"logits.{index}"] = logits.contiguous()
        cases.append(dict(prompt=prompt[0].tolist(), greedy=answer.sequences[0, length:].tolist(),
                          smallest_gap=float(min(gaps))))
    print("smallest gap of two best logits", min(case["smallest_gap"] for case in cases))
    save_file(tensors, out / "golden.safetensors")
    (out / "golden.json").write_text(json.dumps(dict(cases=cases, reference="transformers float32 eager, weights in bf16")))
    model.to(torch.bfloat16).save_pretrained(out)


if __name__ == "__main__":
    main()
