#!/usr/bin/env python3
"""Tool calls through clients that people have, unmodified: openai and its agents SDK, anthropic, ollama, LangChain, LiteLLM
and instructor.

The default model was not trained for calls, and its chat template shows no tools: the server describes them in the system
message. With three calls before it in the conversation the model writes the next one, greedily, every time; where a client
asks for a call, the grammar makes it write one."""
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import serving
from serving import package

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # no download at import
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "Weather in a city",
                                           "parameters": PARAMETERS}}]
TIME = {"type": "function", "function": {"name": "get_time", "description": "Time in a zone", "strict": True, "parameters": {
    "type": "object", "properties": {"zone": {"type": "string", "enum": ["UTC", "CET"]}, "hours": {"type": "integer"}},
    "required": ["zone", "hours"], "additionalProperties": False}}}
ZONE = {"type": "function", "function": {"name": "get_zone", "description": "The zone of a city", "parameters": {
    "type": "object", "properties": {"zone": {"type": "string", "enum": ["UTC", "CET"]}}, "required": ["zone"],
    "additionalProperties": False}}}
CITIES = ("Rome", "Oslo", "Lima")
server = None


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


def test_required_and_named_calls():
    """A conversation with two tools: the first call is required, the second one named, then the answer is a text."""
    tools = [TOOLS[0], TIME]
    hi = [{"role": "user", "content": "Hello."}]
    made = chat(messages=hi, tools=tools, tool_choice="required", parallel_tool_calls=False, max_tokens=200).choices[0]
    assert made.finish_reason == "tool_calls" and len(made.message.tool_calls) == 1, made
    first = made.message.tool_calls[0]
    assert first.function.name in ("get_weather", "get_time") and json.loads(first.function.arguments), first
    hi += [made.message, {"role": "tool", "tool_call_id": first.id, "content": "31"}]
    named = chat(messages=hi, tools=tools, tool_choice={"type": "function", "function": {"name": "get_time"}},
                 max_tokens=200).choices[0]
    second = named.message.tool_calls[0]
    arguments = json.loads(second.function.arguments)
    assert arguments["zone"] in ("UTC", "CET") and isinstance(arguments["hours"], int), arguments
    hi += [named.message, {"role": "tool", "tool_call_id": second.id, "content": "12"}]
    assert chat(messages=hi, tools=tools, tool_choice="none").choices[0].message.content


def test_required_streams_are_the_whole():
    for seed in range(3):
        fields = {"messages": [{"role": "user", "content": "Hello."}], "tools": [TIME], "tool_choice": "required",
                  "temperature": 1, "seed": seed, "max_tokens": 120}
        whole = chat(**fields).choices[0].message.tool_calls
        parts = [delta for chunk in chat(stream=True, **fields) for delta in chunk.choices[0].delta.tool_calls or []]
        assert "".join(part.function.arguments or "" for part in parts if part.index == 0) == whole[0].function.arguments


def test_openai_parses_calls_and_answers():
    pydantic = package("pydantic")

    class GetTime(pydantic.BaseModel):
        zone: str
        hours: int

    client = openai_client().chat.completions
    tool = package("openai").pydantic_function_tool(GetTime)
    request = {"model": server.model, "messages": [{"role": "user", "content": "Hello."}], "max_tokens": 200,
               "temperature": 0}
    made = client.parse(tools=[tool], tool_choice="required", parallel_tool_calls=False, **request).choices[0].message
    assert isinstance(made.tool_calls[0].function.parsed_arguments, GetTime), made
    answer = client.parse(response_format=GetTime, **request).choices[0].message
    assert isinstance(answer.parsed, GetTime), answer


def test_anthropic_must_call():
    client = package("anthropic").Anthropic(base_url=server.url, api_key="none", max_retries=0)
    tool = {"name": "get_time", "description": "Time", "input_schema": TIME["function"]["parameters"]}
    for choice in ({"type": "any", "disable_parallel_tool_use": True}, {"type": "tool", "name": "get_time"}):
        answer = client.messages.create(model=server.model, max_tokens=200, tools=[tool], tool_choice=choice,
                                        messages=[{"role": "user", "content": "Hello."}])
        used = answer.content[0]
        assert answer.stop_reason == "tool_use" and used.name == "get_time" and used.input["zone"] in ("UTC", "CET"), answer


def test_run_prints_calls():
    with tempfile.TemporaryDirectory() as folder:
        tools = Path(folder) / "tools.json"
        tools.write_text(json.dumps([ZONE]))
        run = lambda *words: subprocess.run([serving.BINARY, "run", "-m", serving.DEFAULT_MODEL, "-p", "The zone of Paris?", "-n", "60",
                                             "--temp", "0", "--tools", tools, *words], capture_output=True, text=True, timeout=300)
        for choice in ("required", "get_zone"):
            done = run("--tool-choice", choice)
            lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
            assert done.returncode == 0 and lines, done
            assert all(line["name"] == "get_zone" and line["arguments"]["zone"] in ("UTC", "CET") for line in lines), done
        assert run("--tool-choice", "no_such").returncode == 64, "a function that is not there"
        assert run("--raw").returncode == 64, "calls without a template"


def test_jobs_take_tools():
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "in.jsonl", Path(folder) / "out.jsonl"
        chat = {"messages": [{"role": "user", "content": "The zone of Paris?"}], "tools": [ZONE], "max_tokens": 60, "temperature": 0}
        jobs = [chat | {"id": "must", "tool_choice": "required"}, chat | {"id": "not", "tool_choice": "none"},
                chat | {"id": "wrong", "tool_choice": {"type": "function", "function": {"name": "no_such"}}}]
        source.write_text("".join(json.dumps(job) + "\n" for job in jobs))
        done = subprocess.run([serving.BINARY, "generate", "-m", serving.DEFAULT_MODEL, "-i", source, "-o", target],
                              capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done
        answers = {answer["id"]: answer for answer in map(json.loads, target.read_text().splitlines())}
        call = answers["must"]["choices"][0]["tool_calls"][0]["function"]
        assert call["name"] == "get_zone" and json.loads(call["arguments"])["zone"] in ("UTC", "CET"), answers
        assert "tool_calls" not in answers["not"]["choices"][0] and answers["not"]["choices"][0]["text"], answers
        assert "no_such" in answers["wrong"]["error"]["message"], answers


def test_agents():
    """An agent of the SDK runs two tools, each once, and ends with the result of the last."""
    agents = package("agents")
    asyncio = package("asyncio")
    agents.set_tracing_disabled(True)
    called = []

    @agents.function_tool
    def get_weather(city: str) -> str:
        called.append(("get_weather", city))
        return "sunny"

    @agents.function_tool
    def get_time(hours: int) -> str:
        called.append(("get_time", hours))
        return "noon"

    def agent(tool, choice):
        client = package("openai").AsyncOpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
        settings = agents.ModelSettings(tool_choice=choice, temperature=0, max_tokens=200, parallel_tool_calls=False)
        model = agents.OpenAIChatCompletionsModel(model=server.model, openai_client=client)
        return agents.Agent(name="helper", instructions="Help.", model=model, tools=tool, model_settings=settings,
                            tool_use_behavior="stop_on_first_tool")

    async def talk():
        first = await agents.Runner.run(agent([get_weather, get_time], "get_weather"), "Hello.")
        return first, await agents.Runner.run(agent([get_weather, get_time], "get_time"), first.to_input_list())
    first, second = asyncio.run(talk())
    assert first.final_output == "sunny" and second.final_output == "noon", (first, second)
    assert [name for name, _ in called] == ["get_weather", "get_time"] and isinstance(called[1][1], int), called


def test_langchain_structured_output():
    pydantic = package("pydantic")

    class Person(pydantic.BaseModel):
        """A person."""
        name: str
        age: int

    for method in ("function_calling", "json_schema"):
        model = package("langchain_openai").ChatOpenAI(model=server.model, base_url=server.url + "/v1", api_key="none",
                                                       temperature=0, max_tokens=200, max_retries=0)
        answer = model.with_structured_output(Person, method=method).invoke("Ann is 30 years old.")
        assert isinstance(answer, Person), (method, answer)


def test_instructor():
    pydantic = package("pydantic")

    class Person(pydantic.BaseModel):
        name: str
        age: int

    client = package("instructor").from_openai(openai_client())
    person = client.chat.completions.create(model=server.model, response_model=Person, max_tokens=200, temperature=0,
                                            max_retries=0, messages=[{"role": "user", "content": "Ann is 30 years old."}])
    assert isinstance(person, Person), person


def test_tools_that_are_not_run_are_left_out():
    """As Codex sends them."""
    answer = server.post("/v1/responses", {
        "model": server.model, "input": "Hi", "max_output_tokens": 4, "tool_choice": "auto", "parallel_tool_calls": False,
        "tools": [{"type": "web_search", "external_web_access": True}, {"type": "custom", "name": "apply_patch", "format": {
            "type": "grammar", "syntax": "lark", "definition": "start: /x/"}}, {"type": "namespace", "name": "n", "tools": []},
            {"type": "local_shell"}, {"type": "function", "name": "f", "strict": False, "parameters": PARAMETERS}]})
    assert answer["status"] in ("completed", "incomplete"), answer


def test_tool_format_option():
    serving.need_model()
    done = subprocess.run([serving.BINARY, "serve", "--port", "0", "--tool-format", "nonsense"], capture_output=True,
                          text=True, timeout=120)
    assert done.returncode != 0 and "'nonsense' is not known" in done.stderr, done


if __name__ == "__main__":
    sys.exit(serving.run_module(sys.modules[__name__]))
