#!/usr/bin/env python3
"""Clients that people already have, unmodified, against a running server: openai, anthropic, LangChain and LiteLLM."""
import os
import sys

import serving
from serving import package

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # no download at import
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
LONG = "word " * 9000  # more than the 8,192 tokens of the default model
server = None


def raises(kind, function):
    try:
        function()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__} was raised")


def openai_client(**options):
    return package("openai").OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, **options)


def chat(**fields):
    return openai_client().chat.completions.create(**({"model": server.model, "messages": QUESTION, "max_tokens": 24,
                                                       "temperature": 0} | fields))


# -- openai ----------------------------------------------------------------------------------------------------------

def test_openai_chat():
    answer = chat()
    assert answer.object == "chat.completion" and answer.id.startswith("chatcmpl-"), answer
    choice = answer.choices[0]
    assert choice.message.role == "assistant" and choice.message.content and choice.finish_reason in ("stop", "length")
    usage = answer.usage
    assert usage.prompt_tokens + usage.completion_tokens == usage.total_tokens and usage.completion_tokens > 0, usage
    assert usage.prompt_tokens_details.cached_tokens >= 0


def test_openai_stream_equals_whole():
    whole = chat()
    chunks = list(chat(stream=True, stream_options={"include_usage": True}))
    assert len({chunk.id for chunk in chunks}) == 1
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert all(chunk.usage is None for chunk in chunks[:-1])
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content, (text, whole.choices[0].message.content)
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == whole.choices[0].finish_reason


def test_openai_several_choices():
    answer = chat(n=3, temperature=1, seed=5)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert len({choice.message.content for choice in answer.choices}) > 1
    streamed = {}
    for chunk in chat(n=3, temperature=1, seed=5, stream=True):
        for choice in chunk.choices:
            streamed[choice.index] = streamed.get(choice.index, "") + (choice.delta.content or "")
    assert streamed == {choice.index: choice.message.content for choice in answer.choices}


def test_openai_logprobs():
    answer = chat(logprobs=True, top_logprobs=4)
    entries = answer.choices[0].logprobs.content
    assert len(entries) == answer.usage.completion_tokens or len(entries) == answer.usage.completion_tokens - 1
    assert all(entry.logprob <= 0 and len(entry.top_logprobs) == 4 for entry in entries)
    assert entries[0].top_logprobs[0].token == entries[0].token  # greedy
    assert "".join(bytes(entry.bytes).decode(errors="replace") for entry in entries).startswith(
        answer.choices[0].message.content[:5])


def test_openai_logprobs_of_searches():
    """Beams and contrastive search give the log-probabilities of their tokens, and refuse what they cannot honour."""
    for search in ({"use_beam_search": True, "beam_width": 3}, {"penalty_alpha": 0.6, "top_k": 4}):
        answer = chat(logprobs=True, top_logprobs=3, max_tokens=6, extra_body=search)
        entries = answer.choices[0].logprobs.content
        assert entries and all(len(entry.top_logprobs) == 3 for entry in entries), (search, entries)
        assert all(entry.logprob <= entry.top_logprobs[0].logprob + 1e-5 < 1e-4 for entry in entries), (search, entries)
        error = raises(package("openai").BadRequestError, lambda: chat(temperature=0.7, extra_body=search))
        assert error.param == "temperature" and "'temperature' is 0.7" in str(error), error
        assert next(iter(search)) in str(error), error


def test_openai_stop():
    whole = chat().choices[0].message.content
    stop = whole[len(whole) // 2:][:3]
    answer = chat(stop=[stop]).choices[0]
    assert answer.finish_reason == "stop" and answer.message.content == whole[:whole.index(stop)]


def test_openai_seed():
    first, second, other = (chat(temperature=1, seed=seed).choices[0].message.content for seed in (7, 7, 8))
    assert first == second and first != other


def test_openai_completions():
    client = openai_client()
    answer = client.completions.create(model=server.model, prompt="The sky is", max_tokens=4, temperature=0, echo=True,
                                       logprobs=2)
    choice = answer.choices[0]
    assert choice.text.startswith("The sky is") and answer.object == "text_completion"
    assert len(choice.logprobs.tokens) == len(choice.logprobs.token_logprobs) == len(choice.logprobs.text_offset)
    assert choice.logprobs.token_logprobs[0] is None and choice.logprobs.token_logprobs[1] < 0
    several = client.completions.create(model=server.model, prompt=["One", "Two"], max_tokens=3, temperature=0, n=2)
    assert [choice.index for choice in several.choices] == [0, 1, 2, 3]
    ids = server.post("/tokenize", {"model": server.model, "prompt": "The sky is"})["tokens"]
    by_ids = client.completions.create(model=server.model, prompt=ids, max_tokens=4, temperature=0)
    assert "The sky is" + by_ids.choices[0].text == choice.text


def test_openai_embeddings():
    client = openai_client()
    default = client.embeddings.create(model=server.model, input=["a cat", "a kitten", "the stock exchange"])
    plain = client.embeddings.create(model=server.model, input="a cat", encoding_format="float")
    vectors = [entry.embedding for entry in default.data]
    assert len(vectors) == 3 and len({len(vector) for vector in vectors}) == 1
    assert all(abs(a - b) < 1e-6 for a, b in zip(vectors[0], plain.data[0].embedding))

    def cosine(a, b):
        return sum(x * y for x, y in zip(a, b)) / (sum(x * x for x in a) * sum(y * y for y in b)) ** 0.5
    assert cosine(vectors[0], vectors[1]) > cosine(vectors[0], vectors[2])
    assert default.usage.prompt_tokens > 0


def test_openai_responses():
    client = openai_client()
    whole = client.responses.create(model=server.model, input="What is the capital of France?", max_output_tokens=24,
                                    temperature=0)
    assert whole.status in ("completed", "incomplete") and whole.output_text
    events = list(client.responses.create(model=server.model, input="What is the capital of France?", max_output_tokens=24,
                                          temperature=0, stream=True))
    kinds = [event.type for event in events]
    assert kinds[0] == "response.created" and kinds[-1] in ("response.completed", "response.incomplete"), kinds
    assert [event.sequence_number for event in events] == list(range(events[0].sequence_number,
                                                                     events[0].sequence_number + len(events)))
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == whole.output_text
    assert events[-1].response.output_text == whole.output_text
    assert events[-1].response.usage.output_tokens == whole.usage.output_tokens


def test_openai_models():
    client = openai_client()
    listed = [model.id for model in client.models.list()]
    assert server.model in listed and client.models.retrieve(server.model).id == server.model
    openai = package("openai")
    assert raises(openai.NotFoundError, lambda: client.models.retrieve("no/such-model")).code == "model_not_found"
    assert raises(openai.NotFoundError, lambda: chat(model="no-such-model")).code == "model_not_found"


def test_openai_overflow():
    openai = package("openai")
    error = raises(openai.BadRequestError, lambda: chat(messages=[{"role": "user", "content": LONG}]))
    assert error.code == "context_length_exceeded" and "maximum context length is" in str(error), error


def test_openai_unsupported():
    openai = package("openai")
    fields = {"modalities": ["audio"], "audio": {"voice": "alloy", "format": "wav"}}
    error = raises(openai.BadRequestError, lambda: chat(**fields))
    assert error.code == "unsupported_parameter" and error.param in fields, (error.code, error.param)


# -- anthropic -------------------------------------------------------------------------------------------------------

def anthropic_client():
    return package("anthropic").Anthropic(base_url=server.url, api_key="none", max_retries=0)


def test_anthropic_messages():
    client = anthropic_client()
    request = {"model": server.model, "max_tokens": 24, "messages": QUESTION, "system": "Answer briefly.",
               "extra_body": {"temperature": 0}}
    whole = client.messages.create(**request)
    assert whole.type == "message" and whole.role == "assistant" and whole.content[0].type == "text"
    assert whole.stop_reason in ("end_turn", "max_tokens") and whole.usage.output_tokens > 0
    with client.messages.stream(**request) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == whole.content[0].text == final.content[0].text
    assert final.stop_reason == whole.stop_reason and final.usage.output_tokens == whole.usage.output_tokens
    count = client.messages.count_tokens(model=server.model, messages=QUESTION, system="Answer briefly.")
    usage = whole.usage
    assert count.input_tokens == usage.input_tokens + (usage.cache_read_input_tokens or 0)


def test_anthropic_errors():
    anthropic, client = package("anthropic"), anthropic_client()
    error = raises(anthropic.BadRequestError, lambda: client.messages.create(
        model=server.model, max_tokens=8, messages=[{"role": "user", "content": LONG}]))
    assert "prompt is too long" in str(error) and error.body["error"]["type"] == "invalid_request_error", error.body
    raises(anthropic.NotFoundError, lambda: client.messages.create(model="nobody", max_tokens=8, messages=QUESTION))


# -- LangChain, LiteLLM ----------------------------------------------------------------------------------------------

def test_langchain():
    module = package("langchain_openai")
    exceptions = package("langchain_core.exceptions")
    model = module.ChatOpenAI(model=server.model, base_url=server.url + "/v1", api_key="none", temperature=0, max_tokens=24,
                              max_retries=0)
    whole = model.invoke("What is the capital of France?")
    assert whole.content and whole.usage_metadata["output_tokens"] > 0
    assert "".join(chunk.content for chunk in model.stream("What is the capital of France?")) == whole.content
    raises(exceptions.ContextOverflowError, lambda: model.invoke(LONG))


def test_litellm():
    litellm = package("litellm")
    request = {"model": "openai/" + server.model, "api_base": server.url + "/v1", "api_key": "none", "temperature": 0,
               "max_tokens": 24, "num_retries": 0}
    whole = litellm.completion(messages=QUESTION, **request)
    assert whole.choices[0].message.content
    parts = [chunk.choices[0].delta.content or "" for chunk in litellm.completion(messages=QUESTION, stream=True, **request)]
    assert "".join(parts) == whole.choices[0].message.content
    raises(litellm.ContextWindowExceededError,
           lambda: litellm.completion(messages=[{"role": "user", "content": LONG}], **request))


if __name__ == "__main__":
    sys.exit(serving.run_module(sys.modules[__name__]))
