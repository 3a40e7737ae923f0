#!/usr/bin/env python3
"""Tool calls through clients that people have, unmodified: openai, anthropic, ollama, LangChain and LiteLLM.

The default model was not trained for calls, and its chat template shows no tools: the server describes them in the system
message. With three calls before it in the conversation the model writes the next one, greedily, every time."""
import importlib
import json
import os
import subprocess
import sys

import serving
from serving import Skip

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # no download at import
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "Weather in a city",
                                           "parameters": PARAMETERS}}]
CITIES = ("Rome", "Oslo", "Lima")
server = None


def package(name):
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Skip(f"{name} is not installed: {error}") from error


def question(city):
    return {"role": "user", "content": f"What is the weather in {city}?"}


def call(city, arguments=json.dumps):
    return {"role": "assistant", "content": "", "tool_calls": [
        {"id": f"call{city:>5}".replace(" ", "0"), "type": "function",
         "function": {"name": "get_weather", "arguments": arguments({"city": city})}}]}


def conversation(city, arguments=json.dumps):
    return [message for one in CITIES for message in (question(one), call(one, arguments))] + [question(city)]


def openai_client():
    return package("openai").OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)


def chat(**fields):
    return openai_client().chat.completions.create(**({"model": server.model, "messages": conversation("Paris"),
                                                       "tools": TOOLS, "max_tokens": 60, "temperature": 0} | fields))


def is_call(name, arguments):
    assert name == "get_weather" and json.loads(arguments) == {"city": "Paris"}, (name, arguments)


def test_openai_calls():
    choice = chat().choices[0]
    assert choice.finish_reason == "tool_calls" and not choice.message.content, choice
    made, = choice.message.tool_calls
    assert made.type == "function" and made.id
    is_call(made.function.name, made.function.arguments)


def test_openai_streams_calls():
    whole = chat().choices[0].message.tool_calls[0].function
    with openai_client().chat.completions.stream(model=server.model, messages=conversation("Paris"), tools=TOOLS,
                                                 max_tokens=60, temperature=0) as stream:
        deltas = [event.arguments_delta for event in stream if event.type == "tool_calls.function.arguments.delta"]
        final = stream.get_final_completion().choices[0]
    assert final.finish_reason == "tool_calls" and len(deltas) > 2, deltas
    assert final.message.tool_calls[0].function.arguments == whole.arguments == "".join(deltas)


def test_results_are_read():
    made = chat().choices[0].message
    answer = chat(messages=[question("Paris"), made, {"role": "tool", "tool_call_id": made.tool_calls[0].id,
                                                      "content": "It is 31 degrees and windy."}])
    assert answer.choices[0].message.content or answer.choices[0].message.tool_calls, answer


def test_without_choice_there_is_no_call():
    choice = chat(tool_choice="none").choices[0]
    assert choice.finish_reason != "tool_calls" and not choice.message.tool_calls


def test_repeated_tools_are_cached():
    """The same request finds its prompt in the cache; one changed byte of a tool is found up to there alone."""
    def cached(description):
        tools = [{"type": "function", "function": TOOLS[0]["function"] | {"description": description}}]
        usage = chat(tools=tools, max_tokens=1).usage
        return usage.prompt_tokens, usage.prompt_tokens_details.cached_tokens
    text = "A city's weather, as it is today and tomorrow"
    cached(text)
    total, again = cached(text)
    assert again >= total - 32, (total, again)
    _, changed = cached(text[:-1] + "W")
    assert changed < total // 2, (total, changed)


def test_responses():
    client = openai_client()
    items = []
    for city in CITIES:
        items += [question(city), {"type": "function_call", "call_id": "c" + city, "name": "get_weather",
                                   "arguments": json.dumps({"city": city})}]
    request = {"model": server.model, "input": items + [question("Paris")], "max_output_tokens": 60, "temperature": 0,
               "tools": [{"type": "function", "name": "get_weather", "description": "Weather in a city",
                          "parameters": PARAMETERS, "strict": False}, {"type": "web_search"}]}
    made, = client.responses.create(**request).output
    assert made.type == "function_call" and made.status == "completed", made
    is_call(made.name, made.arguments)
    with client.responses.stream(**request) as stream:
        parts = [event.delta for event in stream if event.type == "response.function_call_arguments.delta"]
        final, = stream.get_final_response().output
    assert final.arguments == made.arguments == "".join(parts)


def test_anthropic():
    client = package("anthropic").Anthropic(base_url=server.url, api_key="none", max_retries=0)
    messages = []
    for city in CITIES:
        messages += [question(city), {"role": "assistant", "content": [
            {"type": "tool_use", "id": "toolu_" + city, "name": "get_weather", "input": {"city": city}}]}]
    request = {"model": server.model, "max_tokens": 60, "messages": messages + [question("Paris")],
               "extra_body": {"temperature": 0},
               "tools": [{"name": "get_weather", "description": "Weather in a city", "input_schema": PARAMETERS}]}
    whole = client.messages.create(**request)
    made, = whole.content
    assert whole.stop_reason == "tool_use" and made.type == "tool_use" and made.input == {"city": "Paris"}, whole
    with client.messages.stream(**request) as stream:
        parts = [event.partial_json for event in stream if event.type == "input_json"]
        final = stream.get_final_message()
    assert final.content[0].input == made.input and json.loads("".join(parts)) == made.input, parts


def test_ollama():
    client = package("ollama").Client(host=server.url)
    request = {"model": server.model, "messages": conversation("Paris", dict), "tools": TOOLS,
               "options": {"temperature": 0, "num_predict": 60}}
    made, = client.chat(**request).message.tool_calls
    assert made.function.name == "get_weather" and made.function.arguments == {"city": "Paris"}, made
    streamed = [part.message.tool_calls for part in client.chat(stream=True, **request) if part.message.tool_calls]
    assert streamed[0][0].function.arguments == {"city": "Paris"}


def test_langchain():
    model = package("langchain_openai").ChatOpenAI(model=server.model, base_url=server.url + "/v1", api_key="none",
                                                   temperature=0, max_tokens=60, max_retries=0).bind_tools(TOOLS)
    made, = model.invoke(conversation("Paris")).tool_calls
    assert made["name"] == "get_weather" and made["args"] == {"city": "Paris"}, made


def test_litellm():
    litellm = package("litellm")
    request = {"model": "openai/" + server.model, "api_base": server.url + "/v1", "api_key": "none", "temperature": 0,
               "max_tokens": 60, "num_retries": 0, "tools": TOOLS}
    made, = litellm.completion(messages=conversation("Paris"), **request).choices[0].message.tool_calls
    is_call(made.function.name, made.function.arguments)
    parts = [chunk.choices[0].delta.tool_calls or [] for chunk in
             litellm.completion(messages=conversation("Paris"), stream=True, **request)]
    is_call(made.function.name, "".join(part.function.arguments or "" for deltas in parts for part in deltas))


def test_tool_format_option():
    serving.need_model()
    done = subprocess.run([serving.BINARY, "serve", "--port", "0", "--tool-format", "nonsense"], capture_output=True,
                          text=True, timeout=120)
    assert done.returncode != 0 and "'nonsense' is not known" in done.stderr, done


if __name__ == "__main__":
    sys.exit(serving.run_module(sys.modules[__name__]))
