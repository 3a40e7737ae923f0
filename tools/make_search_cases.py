#!/usr/bin/env python3
"""Makes tests/runtime/data: three tiny models with random weights, and what searches over them give.

Beam search is that of transformers. Contrastive search and contrastive decoding are written out here from their
definitions, over the logits and hidden states of the same models. Needs torch, transformers and safetensors:

    python tools/make_search_cases.py
"""
import json
from pathlib import Path

import torch
from transformers import Gemma2Config, Gemma2ForCausalLM, LlamaConfig, LlamaForCausalLM

DATA = Path(__file__).resolve().parent.parent / "tests/runtime/data"
VOCAB = 96


def llama(layers, seed):
    config = LlamaConfig(vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=layers,
                         num_attention_heads=4, num_key_value_heads=2, head_dim=8, max_position_embeddings=256,
                         initializer_range=0.25, tie_word_embeddings=False, bos_token_id=1, eos_token_id=2, pad_token_id=0)
    torch.manual_seed(seed)
    return LlamaForCausalLM(config)


def gemma2(seed):
    config = Gemma2Config(vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=3,
                          num_attention_heads=4, num_key_value_heads=2, head_dim=8, max_position_embeddings=256,
                          sliding_window=12, query_pre_attn_scalar=8, initializer_range=0.25, bos_token_id=1, eos_token_id=2,
                          pad_token_id=0)
    torch.manual_seed(seed)
    return Gemma2ForCausalLM(config)


def save(model, name):
    """The model is stored, and used from here on, with weights rounded to bf16."""
    model = model.to(torch.bfloat16)
    model.save_pretrained(DATA / name)
    (DATA / name / "generation_config.json").unlink(missing_ok=True)
    return type(model).from_pretrained(DATA / name, dtype=torch.float32).eval()


def prompts(count, seed):
    generator = torch.Generator().manual_seed(seed)
    lengths = [1, 5, 17, 40, 9, 26]
    return [torch.randint(3, VOCAB, (lengths[i % len(lengths)],), generator=generator).tolist() for i in range(count)]


def trimmed(tokens, end_tokens):
    """Up to and with the first end token."""
    for i, token in enumerate(tokens):
        if token in end_tokens:
            return tokens[:i + 1]
    return tokens


def beam_case(model, prompt, setting):
    width, penalty, early, n, end_tokens, length = setting
    out = model.generate(torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long), do_sample=False,
                         num_beams=width, length_penalty=penalty, early_stopping=early, num_return_sequences=n,
                         max_new_tokens=length, eos_token_id=end_tokens, pad_token_id=0, output_scores=True,
                         return_dict_in_generate=True)
    answers = [trimmed(row[len(prompt):].tolist(), end_tokens) for row in out.sequences]
    return {"prompt": prompt, "beam_width": width, "length_penalty": penalty, "early_stopping": early, "n": n,
            "end_tokens": end_tokens, "max_tokens": length, "answers": answers, "scores": out.sequences_scores.tolist()}


@torch.no_grad()
def contrastive_search_case(model, prompt, top_k, alpha, length):
    """Su et al. 2022: of the top_k likeliest tokens v the one with the greatest
    (1 - alpha) p(v | x) - alpha max over j of cos(h_v, h_j), h the last hidden states."""
    tokens = list(prompt)
    margin = 1.0
    for _ in range(length):
        out = model(torch.tensor([tokens]), output_hidden_states=True)
        context = out.hidden_states[-1][0]
        probabilities, candidates = torch.softmax(out.logits[0, -1], -1).topk(top_k)
        scores = []
        for probability, candidate in zip(probabilities, candidates):
            longer = model(torch.tensor([tokens + [int(candidate)]]), output_hidden_states=True).hidden_states[-1][0, -1]
            similarity = torch.cosine_similarity(longer[None], context, dim=-1).max()
            scores.append(float((1 - alpha) * probability - alpha * similarity))
        order = sorted(range(top_k), key=lambda i: -scores[i])
        if top_k > 1:
            margin = min(margin, scores[order[0]] - scores[order[1]])
        tokens.append(int(candidates[order[0]]))
    return {"prompt": prompt, "top_k": top_k, "alpha": alpha, "max_tokens": length, "answer": tokens[len(prompt):],
            "margin": margin}


@torch.no_grad()
def contrastive_decoding_case(expert, amateur, prompt, alpha, beta, length):
    """O'Brien and Lewis 2023: greedy over (1 + beta) expert - beta amateur, among the tokens whose expert probability is
    at least alpha times the largest."""
    tokens = list(prompt)
    for _ in range(length):
        strong, weak = (model(torch.tensor([tokens])).logits[0, -1] for model in (expert, amateur))
        score = (1 + beta) * strong - beta * weak
        score[strong < strong.max() + torch.log(torch.tensor(alpha))] = -torch.inf
        tokens.append(int(score.argmax()))
    return {"prompt": prompt, "alpha": alpha, "beta": beta, "max_tokens": length, "answer": tokens[len(prompt):]}


@torch.no_grad()
def greedy_case(model, prompt, length):
    tokens = list(prompt)
    for _ in range(length):
        tokens.append(int(model(torch.tensor([tokens])).logits[0, -1].argmax()))
    return {"prompt": prompt, "max_tokens": length, "answer": tokens[len(prompt):]}


def main():
    DATA.mkdir(parents=True, exist_ok=True)
    expert, amateur, windowed = save(llama(2, 11), "expert"), save(llama(1, 12), "amateur"), save(gemma2(13), "windowed")
    few, many = [2], list(range(2, 26))  # many end tokens: hypotheses end at many lengths
    settings = [(3, 1.0, False, 1, few, 12), (3, 1.0, True, 3, many, 16), (4, 0.0, False, 4, many, 16),
                (4, 2.0, False, 2, many, 16), (4, 1.0, "never", 4, many, 16), (4, 2.0, "never", 3, many, 20),
                (3, -1.0, False, 3, many, 12), (4, -1.0, "never", 2, many, 12), (4, 0.5, True, 4, many, 24),
                (2, 1.0, False, 2, few, 30)]
    cases = {
        "greedy": [greedy_case(windowed, prompt, 24) for prompt in prompts(4, 1)],
        "beam": [beam_case(expert, prompt, setting) for setting in settings for prompt in prompts(4, len(settings))],
        "contrastive_search": [contrastive_search_case(expert, prompt, top_k, alpha, 14)
                               for top_k, alpha in ((4, 0.6), (3, 0.3), (6, 0.9)) for prompt in prompts(4, 5)],
        "contrastive_decoding": [contrastive_decoding_case(expert, amateur, prompt, alpha, beta, 16)
                                 for alpha, beta in ((0.1, 0.5), (0.01, 1.5)) for prompt in prompts(4, 6)],
    }
    lines = ",\n".join(f' "{kind}": [\n  ' + ",\n  ".join(map(json.dumps, rows)) + "]" for kind, rows in cases.items())
    (DATA / "search.json").write_text("{\n" + lines + "\n}\n")
    print({kind: len(rows) for kind, rows in cases.items()}, "least margin of contrastive search",
          min(case["margin"] for case in cases["contrastive_search"]))


if __name__ == "__main__":
    main()
