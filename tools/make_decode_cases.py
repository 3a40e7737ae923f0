#!/usr/bin/env python3
"""Writes tests/sampling/data/{processors,beams}.json: what transformers makes of random logits and of a table model.

Needs torch and transformers; run it only to make the data anew:  python tools/make_decode_cases.py
The processors are transformers' own where it has them; presence and frequency penalties, which it has not, are
their published formulas. They are applied in the order that src/sampling/processors.h and filters.h state.
"""
import json
import random
from pathlib import Path

import torch
from transformers import GenerationConfig, GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.generation import logits_process as lp
from transformers.modeling_outputs import CausalLMOutput

DATA = Path(__file__).resolve().parent.parent / "tests/sampling/data"
VOCAB = 48
EOS = [7, 11]


def presence_frequency(output, scores, presence, frequency):
    counts = torch.bincount(torch.tensor(output, dtype=torch.long), minlength=VOCAB).float()
    scores = scores - torch.tensor(frequency, dtype=torch.float32) * counts
    return scores - torch.tensor(presence, dtype=torch.float32) * (counts > 0)


def draw_params(rng):
    """A random subset of all fields, so that combinations are covered."""
    def some(value):
        return value if rng.random() < 0.35 else None
    words = [[rng.randrange(VOCAB) for _ in range(rng.randint(1, 3))] for _ in range(4)]
    params = {
        "allowed_tokens": some(sorted(rng.sample(range(VOCAB), 20)) + EOS),
        "bad_words": some(words),
        "min_tokens": some(rng.randint(1, 12)),
        "logit_bias": some([[t, rng.choice([-100.0, -3.5, 2.25, 5.0])] for t in rng.sample(range(VOCAB), 4)]),
        "repetition_penalty": some(rng.choice([0.7, 1.1, 1.3, 2.0])),
        "presence_penalty": some(rng.choice([-1.5, 0.5, 2.0])),
        "frequency_penalty": some(rng.choice([-0.75, 0.3, 1.0])),
        "temperature": some(rng.choice([0.3, 0.7, 1.4, 2.0])),
        "min_p": some(rng.choice([0.01, 0.05, 0.2])),
        "top_k": some(rng.choice([1, 3, 10, 40, 100])),
        "top_p": some(rng.choice([0.1, 0.5, 0.9, 0.99])),
        "typical_p": some(rng.choice([0.2, 0.7, 0.95])),
    }
    return {key: value for key, value in params.items() if value is not None}


def process(params, prompt, output, scores):
    ids = torch.tensor([prompt + output])
    row = scores[None]
    if "allowed_tokens" in params:
        row = lp.PrefixConstrainedLogitsProcessor(lambda batch, sent: params["allowed_tokens"], 1)(ids, row)
    if "bad_words" in params:
        row = lp.NoBadWordsLogitsProcessor(params["bad_words"])(ids, row)
    if "min_tokens" in params:
        row = lp.MinNewTokensLengthLogitsProcessor(len(prompt), params["min_tokens"], EOS)(ids, row)
    if "logit_bias" in params:
        row = lp.SequenceBiasLogitsProcessor({(t,): b for t, b in params["logit_bias"]})(ids, row)
    if "repetition_penalty" in params:
        row = lp.RepetitionPenaltyLogitsProcessor(params["repetition_penalty"])(ids, row)
    row = presence_frequency(output, row, params.get("presence_penalty", 0.0), params.get("frequency_penalty", 0.0))
    processed = row[0]
    for name, warper in (("temperature", lp.TemperatureLogitsWarper), ("min_p", lp.MinPLogitsWarper),
                         ("top_k", lp.TopKLogitsWarper), ("top_p", lp.TopPLogitsWarper),
                         ("typical_p", lp.TypicalLogitsWarper)):
        if name in params:
            row = warper(params[name])(ids, row)
    return processed, row[0].softmax(-1)


def processor_cases(count):
    rng = random.Random(5)
    generator = torch.Generator().manual_seed(5)
    cases = []
    while len(cases) < count:
        params = draw_params(rng)
        prompt = [rng.randrange(VOCAB) for _ in range(rng.randint(1, 12))]
        output = [rng.randrange(VOCAB) for _ in range(rng.randint(0, 12))]
        if "bad_words" in params and rng.random() < 0.7:  # let one of them be about to be completed
            history = prompt + output
            params["bad_words"].append(history[-2:] + [rng.randrange(VOCAB)])
        logits = (torch.randn(VOCAB, generator=generator) * 3).round(decimals=4)
        processed, probabilities = process(params, prompt, output, logits)
        if not torch.isfinite(processed).any():
            continue
        cases.append({
            "params": params, "prompt": prompt, "output": output, "logits": floats(logits, 7),
            "processed": floats(processed, 9), "probabilities": floats(probabilities, 6),
        })
    return cases


def floats(tensor, digits):
    """What is masked is null; whole numbers are written without a fraction."""
    rounded = [float(f"{x:.{digits}g}") if x > float("-inf") else None for x in tensor.tolist()]
    return [int(x) if x is not None and x == int(x) else x for x in rounded]


class TableConfig(PretrainedConfig):
    model_type = "table"

    def __init__(self, vocab_size=8, **kwargs):
        super().__init__(**kwargs)
        self.vocab_size = vocab_size
        self.num_hidden_layers = 1


class TableModel(PreTrainedModel, GenerationMixin):
    """table[previous token] + steps[position], so that beams can be followed without a network.

    Without the second term all orders of the same transitions would be equally likely.
    """
    config_class = TableConfig

    def __init__(self, config, table, steps):
        super().__init__(config)
        self.table = torch.nn.Parameter(table, requires_grad=False)
        self.steps = torch.nn.Parameter(steps, requires_grad=False)

    def forward(self, input_ids, **kwargs):
        return CausalLMOutput(logits=self.table[input_ids] + self.steps[: input_ids.shape[1]])

    def prepare_inputs_for_generation(self, input_ids, **kwargs):
        return {"input_ids": input_ids}


def beam_cases(count):
    rng = random.Random(9)
    generator = torch.Generator().manual_seed(9)
    cases = []
    while len(cases) < count:
        vocab = 16
        ends = rng.sample(range(vocab), rng.choice([1, 1, 2]))
        width = rng.choice([2, 3, 4])
        table = (torch.randn(vocab, vocab, generator=generator) * rng.choice([0.5, 1.5, 3.0])).round(decimals=3)
        table[:, ends] += rng.choice([0.0, 1.5, 3.0])
        max_tokens = rng.randint(1, 10)
        steps = torch.randn(max_tokens, vocab, generator=generator).round(decimals=3)
        case = {
            "table": [floats(row, 6) for row in table], "steps": [floats(row, 6) for row in steps], "prompt": [rng.randrange(vocab)], "end_tokens": sorted(ends),
            "width": width, "max_tokens": max_tokens, "length_penalty": rng.choice([-1.0, 0.0, 0.7, 1.0, 2.0]),
            "early_stopping": rng.choice([True, False, "never"]), "n": rng.randint(1, width),
            "repetition_penalty": rng.choice([1.0, 1.0, 1.3]), "min_tokens": rng.choice([0, 0, 3]),
        }
        case["min_tokens"] = min(case["min_tokens"], case["max_tokens"])
        cases.append(case | {"results": generate(case, table, steps)})
    return cases


def generate(case, table, steps):
    model = TableModel(TableConfig(vocab_size=len(table)), table, steps).eval()
    config = GenerationConfig(
        num_beams=case["width"], max_new_tokens=case["max_tokens"], length_penalty=case["length_penalty"],
        early_stopping=case["early_stopping"], num_return_sequences=case["n"], eos_token_id=case["end_tokens"],
        pad_token_id=len(table), do_sample=False, use_cache=False, return_dict_in_generate=True, output_scores=True,
        repetition_penalty=case["repetition_penalty"], min_new_tokens=case["min_tokens"] or None)
    out = model.generate(torch.tensor([case["prompt"]]), generation_config=config)
    results = []
    for i, sequence in enumerate(out.sequences.tolist()):
        tokens = [t for t in sequence[len(case["prompt"]):] if t != len(table)]
        results.append({"tokens": tokens, "score": float(out.sequences_scores[i])})
    return results


def main():
    DATA.mkdir(parents=True, exist_ok=True)
    for name, cases in (("processors", processor_cases(150)), ("beams", beam_cases(60))):
        lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
        (DATA / f"{name}.json").write_text(f"[\n{lines}\n]\n")
        print(name, len(cases), (DATA / f"{name}.json").stat().st_size, "bytes")


if __name__ == "__main__":
    main()
