#!/usr/bin/env python3
"""Makes a miniature model with reference outputs, as `sluice check` reads them.

usage: make_golden.py OUT MODEL_TYPE [KEY=JSON ...] [--lengths N,N,...] [--answer N] [--seed N]
       make_golden.py --families [NAME ...]

MODEL_TYPE is one of transformers' causal language models; KEY=JSON overrides values of its config. --families makes the
miniatures of golden_families.py, all or those named, in tests/golden/data: one for every file of src/models/arch.

Weights are random and stored in bf16; the reference is transformers in float32 with eager attention from those rounded
weights: logits of one pass over each prompt, and the tokens of a greedy `generate`, each by a model that has run nothing
before (ropes that change with the length keep a state). Needs torch, transformers and safetensors.
"""
import copy
import json
import shutil
import sys
from pathlib import Path

if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
    sys.exit(__doc__)

import torch  # noqa: E402
from golden_families import FAMILIES, TINY, UNSET, Recipe  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText  # noqa: E402

GAP = 0.005  # of the two best logits at every step of an answer: more than rounding on any machine
DATA = Path(__file__).resolve().parent.parent / "tests/golden/data"
SMALL = TINY | dict(vocab_size=320, hidden_size=64, intermediate_size=96, num_hidden_layers=3, max_position_embeddings=256)


def randomize(model, generator):
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() < 2:
                # Gains that are added to 1 start from 0: around 1 they would double the stream in every norm.
                gain = "norm" in name.lower() or "ln" in name.lower()
                base = 1.0 if gain and (parameter.numel() == 0 or parameter.abs().max() > 0) else 0.0
                value = (base if "weight" in name else 0.0) + 0.1 * noise
            else:
                value = noise * (0.7 / parameter.shape[-1] ** 0.5)
            parameter.copy_(value.to(torch.bfloat16).float())
        for name, buffer in model.named_buffers():
            if buffer.is_floating_point() and "correction_bias" in name:
                buffer.copy_((0.1 * torch.randn(buffer.shape, generator=generator)).to(torch.bfloat16).float())


def references(model, lengths, answer, generator):
    """Prompts of these lengths with their greedy answers, and the logits of every position."""
    vocab = model.config.get_text_config().vocab_size
    cases, tensors = [], {}
    for index, length in enumerate(lengths):
        prompt = torch.randint(3, vocab, (1, length), generator=generator)
        with torch.no_grad():
            logits = copy.deepcopy(model)(prompt).logits[0].float()
            greedy = copy.deepcopy(model).generate(
                prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=answer, do_sample=False,
                eos_token_id=None, pad_token_id=0, output_logits=True, return_dict_in_generate=True)
        gaps = [best[0] - best[1] for best in (row[0].topk(2).values for row in greedy.logits)]
        tensors[f"logits.{index}"] = logits.contiguous()
        cases.append(dict(prompt=prompt[0].tolist(), greedy=greedy.sequences[0, length:].tolist(),
                          smallest_gap=float(min(gaps))))
    return cases, tensors


def export_twin(out, recipe):
    """Rewrites config and weights as the family's own publication has them."""
    config, weights = json.loads((out / "config.json").read_text()), load_file(out / "model.safetensors")
    config, weights = recipe.export(config, weights)
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    save_file({name: weight.contiguous() for name, weight in weights.items()}, out / "model.safetensors")


def make(out, recipe, defaults, lengths=(1, 7, 33, 70), answer=12, seed=11, gap=0.0):
    """The first model from `seed` on whose answers are never a choice between logits closer than `gap`."""
    settings = {key: value for key, value in (defaults | recipe.config).items() if value != UNSET}
    smallest = -1.0
    while smallest < gap:
        config = AutoConfig.for_model(recipe.model_type, **settings)
        generator = torch.Generator().manual_seed(seed)
        kind = AutoModelForImageTextToText if "vision_config" in settings else AutoModelForCausalLM
        model = kind.from_config(config, attn_implementation="eager").float().eval()
        if recipe.adjust:
            recipe.adjust(model)
        randomize(model, generator)
        cases, tensors = references(model, lengths, answer, generator)
        smallest = min(case["smallest_gap"] for case in cases)
        seed += 1
    print(f"{out.name}: smallest gap of two best logits {smallest:.4f}, seed {seed - 1}", flush=True)
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    save_file(tensors, out / "golden.safetensors")
    reference = f"transformers' {recipe.model_type} in float32, eager, weights in bf16"
    (out / "golden.json").write_text(json.dumps(dict(cases=cases, reference=reference)))
    model.to(torch.bfloat16).save_pretrained(out)
    (out / "generation_config.json").unlink(missing_ok=True)
    if recipe.export:
        export_twin(out, recipe)


def main():
    if sys.argv[1] == "--families":
        for name in sys.argv[2:] or FAMILIES:
            make(DATA / name, FAMILIES[name], TINY, lengths=(1, 7, 33), gap=GAP)
        return
    items, options = sys.argv[3:], {"--lengths": "1,7,33,70", "--answer": "12", "--seed": "11"}
    for name in options:
        if name in items:
            at = items.index(name)
            options[name] = items[at + 1]
            del items[at:at + 2]
    overrides = {}
    for item in items:
        key, _, value = item.partition("=")
        overrides[key] = json.loads(value)
    make(Path(sys.argv[1]), Recipe(sys.argv[2], overrides), SMALL, lengths=list(map(int, options["--lengths"].split(","))),
         answer=int(options["--answer"]), seed=int(options["--seed"]))


if __name__ == "__main__":
    main()
