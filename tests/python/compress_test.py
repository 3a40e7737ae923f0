#!/usr/bin/env python3
"""Requests with `compress` to a running server of the default model, which scores its own texts.

SLUICE_BINARY names the program."""
import json
import sys

import serving

FILLER = ("The gardener walked along the river because the day was warm. ",
          "A neighbour talked about the weather while the others were asleep. ",
          "One of the drivers looked for a lost basket until it became dark. ")
NEEDLE = "The secret number of the red door is 4817. "
QUESTION = "What is the secret number of the red door?"
TEXT = "".join(FILLER[i % 3] for i in range(18)) + NEEDLE + "".join(FILLER[i % 3] for i in range(18))
SCHEMA = {"type": "object", "properties": {"number": {"type": "integer", "minimum": 0, "maximum": 99999}},
          "required": ["number"]}
server = None


def ask(compress, **fields):
    body = {"messages": [{"role": "system", "content": "Be brief."},
                         {"role": "user", "content": f"{TEXT}\n\n{QUESTION}"}], "max_tokens": 4, "temperature": 0}
    return server.post("/v1/chat/completions", body | {"compress": {"return_text": True} | compress} | fields)["usage"]


def test_sentences_that_answer_the_question_stay():
    first = ask({"ratio": 0.3, "keep": ["looked for a lost basket until"]})
    made = first["compression"]
    assert not made["cached"] and made["mode"] == "tokens", made
    assert made["kept_tokens"] <= 0.3 * made["original_tokens"] + 1 or "lost basket" in made["texts"][0], made
    assert NEEDLE.strip() in made["texts"][0] and made["texts"][0].endswith(QUESTION), made
    assert made["texts"][0].count("looked for a lost basket until") == TEXT.count("looked for a lost basket until")
    again = ask({"ratio": 0.3, "keep": ["looked for a lost basket until"]})
    assert again["compression"]["cached"] and again["compression"]["texts"] == made["texts"], again
    assert again["prompt_tokens_details"]["cached_tokens"] > 0, again


def test_the_full_prompt_is_another_one():
    body = {"prompt": TEXT, "max_tokens": 1, "temperature": 0, "cache_salt": "full"}
    brief = server.post("/v1/completions", body | {"compress": {"ratio": 0.5}})["usage"]
    full = server.post("/v1/completions", body)["usage"]
    assert brief["prompt_tokens"] < full["prompt_tokens"], (brief, full)
    assert full["prompt_tokens_details"]["cached_tokens"] < brief["prompt_tokens"] / 2, (brief, full)


def test_prefill_runs_part_of_the_prompt_at_its_positions():
    first = ask({"mode": "prefill", "ratio": 0.4, "keep": ["looked for a lost basket until"]})
    made = first["compression"]
    assert made["mode"] == "prefill" and made["kept_tokens"] <= 0.4 * made["original_tokens"] + 1, made
    assert NEEDLE.strip().split()[-1].rstrip(".") in made["texts"][0] and made["texts"][0].endswith(QUESTION), made
    assert first["prompt_tokens"] < 0.6 * made["original_tokens"], first
    again = ask({"mode": "prefill", "ratio": 0.4, "keep": ["looked for a lost basket until"]})
    assert again["compression"]["cached"] and again["prompt_tokens_details"]["cached_tokens"] > 0, again


def test_summaries_and_facts_replace_the_text():
    made = ask({"mode": "summary", "max_tokens": 64, "keep": [NEEDLE.strip()]})["compression"]
    assert NEEDLE.strip() in made["texts"][0] and made["texts"][0].endswith(QUESTION), made
    assert made["kept_tokens"] < made["original_tokens"] / 2, made
    made = ask({"mode": "extract", "schema": SCHEMA})["compression"]
    facts, _ = json.JSONDecoder().raw_decode(made["texts"][0])
    assert isinstance(facts["number"], int) and made["texts"][0].endswith(QUESTION), made


def test_wrong_values_are_refused():
    for compress, word in (({"mode": "telepathy"}, "tokens, prefill, summary, extract"), ({"ratio": 2}, "from 0 to 1"),
                           ({"keep": [{"begin": 0, "end": 10**6}]}, "characters")):
        status, _, body = server.request("POST", "/v1/completions", {"prompt": TEXT, "compress": compress})
        assert status == 400 and word in body.decode(), (status, body)


if __name__ == "__main__":
    sys.exit(serving.run_module(sys.modules[__name__]))
