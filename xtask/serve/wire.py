"""Every kind of reply and of chunk, held to the types of the official packages: what they require is there, what they do not
know is not there."""

import json

import anthropic.types as messages
import httpx
import ollama
import openai.types as platform
import openai.types.chat as chat
import openai.types.responses as responses
from pydantic import BaseModel, TypeAdapter

from checks import KEY, MODEL, SMALL, URL, WEATHER, check

# What the packages' types do not have and clients read all the same.
BEYOND = {
    # The thoughts of a model, and where a model stands, as local servers tell them.
    "openai.ChatCompletionMessage": {"reasoning_content"},
    "openai.ChoiceDelta": {"reasoning_content"},
    "openai.Model": {"status"},
    # OpenAI's own servers tell them, and the open description of the interface requires them.
    "openai.Response": {"store", "frequency_penalty", "presence_penalty"},
    # Earlier versions of the package require it.
    "openai.ResponseFunctionCallArgumentsDoneEvent": {"name"},
    # Ollama's own servers tell it beside `model`.
    "ollama.ListResponse.Model": {"name"},
    "ollama.ProcessResponse.Model": {"name"},
}

client = httpx.Client(base_url=URL, headers={"Authorization": f"Bearer {KEY}"}, timeout=300)


def unknown(value, raw, place=""):
    """Paths of fields in the JSON that the type does not have."""
    if isinstance(value, BaseModel) and isinstance(raw, dict):
        fields = type(value).model_fields
        beyond = BEYOND.get(f"{type(value).__module__.split('.')[0]}.{type(value).__qualname__}", ())
        names = {field.alias or name: name for name, field in fields.items()} | {name: name for name in fields}
        for key, inner in raw.items():
            if key not in names:
                if key not in beyond:
                    yield f"{place}.{key}"
            else:
                yield from unknown(getattr(value, names[key]), inner, f"{place}.{key}")
    elif isinstance(value, (list, tuple)) and isinstance(raw, list):
        for at, (one, other) in enumerate(zip(value, raw)):
            yield from unknown(one, other, f"{place}[{at}]")


def strict(kind, raw):
    """The JSON as that type; an error where a field is missing, wrong or unknown."""
    value = TypeAdapter(kind).validate_python(raw)
    left = sorted(set(unknown(value, raw)))
    assert not left, f"the type does not have {', '.join(left)}"
    return value


def post(path, body):
    reply = client.post(path, json=body)
    assert reply.status_code == 200, f"{reply.status_code}: {reply.text[:300]}"
    return reply.json()


def events(path, body):
    """What a stream of events brings, with its names; the last word of OpenAI's is not among it."""
    found, name = [], None
    with client.stream("POST", path, json={**body, "stream": True}) as reply:
        assert reply.status_code == 200, f"{reply.status_code}: {reply.read()[:300]}"
        assert reply.headers["content-type"].startswith("text/event-stream"), reply.headers["content-type"]
        for line in reply.iter_lines():
            if line.startswith("event:"):
                name = line.removeprefix("event:").strip()
            elif line.startswith("data:") and line != "data: [DONE]":
                found.append((name, json.loads(line.removeprefix("data:"))))
                name = None
    assert found, "nothing came"
    return found


def lines(path, body):
    """What a stream of lines brings."""
    with client.stream("POST", path, json=body) as reply:
        assert reply.status_code == 200, f"{reply.status_code}: {reply.read()[:300]}"
        assert reply.headers["content-type"].startswith("application/x-ndjson"), reply.headers["content-type"]
        return [json.loads(line) for line in reply.iter_lines() if line]


def error(path, body, kind, status, of=lambda told: told["error"]):
    reply = client.post(path, json=body)
    assert reply.status_code == status, f"{reply.status_code}: {reply.text[:300]}"
    strict(kind, of(reply.json()))


HELLO = [{"role": "user", "content": "Say hello."}]
FUNCTION = {"name": "get_weather", "description": "The weather in a city.", "parameters": WEATHER}
TOOL = {"type": "function", "function": FUNCTION}
SHORT = {"model": SMALL, "messages": HELLO, "max_tokens": 12}
FORCED = {**SHORT, "tools": [TOOL], "tool_choice": "required", "max_tokens": 64, "temperature": 0}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "weather", "schema": WEATHER, "strict": True}}

# Each kind of request for a chat.
CHATS = {
    "plain": SHORT,
    "two answers": {**SHORT, "n": 2},
    "log probabilities": {**SHORT, "logprobs": True, "top_logprobs": 3},
    "a forced tool": FORCED,
    "a schema": {**SHORT, "response_format": SCHEMA, "max_tokens": 64, "temperature": 0},
    "a stop": {**SHORT, "stop": ["e"]},
}


def all_are(kind, raws):
    for raw in raws:
        strict(kind, raw)


for name, body in CHATS.items():
    check(f"wire: chat, {name}", lambda: strict(chat.ChatCompletion, post("/v1/chat/completions", body)))
    streamed = {**body, "stream_options": {"include_usage": True}}
    check(
        f"wire: chat streamed, {name}",
        lambda: all_are(chat.ChatCompletionChunk, [raw for _, raw in events("/v1/chat/completions", streamed)]),
    )

COMPLETION = {"model": SMALL, "prompt": "Once upon a time", "max_tokens": 12}


def completion_chunks(body):
    """The package has one type for both; streams say null, as OpenAI's own do, until they know why they end."""
    reasons = []
    for _, raw in events("/v1/completions", body):
        for choice in raw["choices"]:
            reasons.append(choice["finish_reason"])
            choice["finish_reason"] = choice["finish_reason"] or "stop"
        strict(platform.Completion, raw)
    assert reasons[-1] and not any(reasons[:-1]), reasons


for name, body in {"plain": COMPLETION, "log probabilities": {**COMPLETION, "logprobs": 2}}.items():
    check(f"wire: completion, {name}", lambda: strict(platform.Completion, post("/v1/completions", body)))
    check(f"wire: completion streamed, {name}", lambda: completion_chunks(body))


def listed():
    found = client.get("/v1/models").json()
    assert found["object"] == "list"
    all_are(platform.Model, found["data"])
    strict(platform.Model, client.get(f"/v1/models/{MODEL}").json())


check("wire: models", listed)

# Each kind of request for a message.
SHORT = {"model": SMALL, "messages": HELLO, "max_tokens": 12}
TOOL_OF_MESSAGES = {"name": "get_weather", "description": "The weather in a city.", "input_schema": WEATHER}
MESSAGES = {
    "plain": SHORT,
    "a forced tool": {**SHORT, "tools": [TOOL_OF_MESSAGES], "tool_choice": {"type": "any"}, "max_tokens": 64},
    "a stop": {**SHORT, "stop_sequences": ["e"]},
}


def message_events(body):
    found = events("/v1/messages", body)
    for name, raw in found:
        assert name == raw["type"], f"{name} is called {raw['type']}"
        if name != "ping":
            strict(messages.RawMessageStreamEvent, raw)
    names = [name for name, _ in found]
    assert names[0] == "message_start" and names[-2:] == ["message_delta", "message_stop"], names


for name, body in MESSAGES.items():
    check(f"wire: message, {name}", lambda: strict(messages.Message, post("/v1/messages", body)))
    check(f"wire: message streamed, {name}", lambda: message_events(body))

check(
    "wire: tokens of a message",
    lambda: strict(messages.MessageTokensCount, post("/v1/messages/count_tokens", {"model": SMALL, "messages": HELLO})),
)

# Each kind of request for a response.
RESPONSE = {"model": SMALL, "input": "Say hello.", "max_output_tokens": 16}
TOOL_OF_RESPONSES = {"type": "function", "strict": True, **FUNCTION}
FORMAT = {"type": "json_schema", "name": "weather", "schema": WEATHER, "strict": True}
RESPONSES = {
    "plain": RESPONSE,
    "a forced tool": {**RESPONSE, "tools": [TOOL_OF_RESPONSES], "tool_choice": "required", "max_output_tokens": 64},
    "a schema": {**RESPONSE, "text": {"format": FORMAT}, "max_output_tokens": 64},
}


def response_events(body):
    found = events("/v1/responses", body)
    for number, (name, raw) in enumerate(found):
        assert name in (None, raw["type"]), f"{name} is called {raw['type']}"
        assert raw["sequence_number"] == number, f"{raw['sequence_number']} in place {number}"
        strict(responses.ResponseStreamEvent, raw)
    first, last = found[0][1]["type"], found[-1][1]["type"]
    assert first == "response.created", first
    assert last in ("response.completed", "response.incomplete"), last


for name, body in RESPONSES.items():
    check(f"wire: response, {name}", lambda: strict(responses.Response, post("/v1/responses", body)))
    check(f"wire: response streamed, {name}", lambda: response_events(body))

# Each kind of request of Ollama's.
TALK = {"model": SMALL, "messages": HELLO, "options": {"num_predict": 12}}
TALKS = {
    "plain": TALK,
    "a schema": {**TALK, "format": WEATHER, "options": {"num_predict": 64}},
    "tools": {**TALK, "model": MODEL, "tools": [TOOL]},
}
for name, body in TALKS.items():
    check(f"wire: Ollama chat, {name}", lambda: strict(ollama.ChatResponse, post("/api/chat", {**body, "stream": False})))
    check(f"wire: Ollama chat streamed, {name}", lambda: all_are(ollama.ChatResponse, lines("/api/chat", body)))

TELL = {"model": SMALL, "prompt": "Once upon a time", "options": {"num_predict": 12}}
check("wire: Ollama generate", lambda: strict(ollama.GenerateResponse, post("/api/generate", {**TELL, "stream": False})))
check("wire: Ollama generate streamed", lambda: all_are(ollama.GenerateResponse, lines("/api/generate", TELL)))
check("wire: Ollama tags", lambda: strict(ollama.ListResponse, client.get("/api/tags").json()))
check("wire: Ollama show", lambda: strict(ollama.ShowResponse, post("/api/show", {"model": SMALL})))
check("wire: Ollama ps", lambda: strict(ollama.ProcessResponse, client.get("/api/ps").json()))

# Errors, each in the words of its interface.
WRONG = platform.shared.ErrorObject
for path, body in {"/v1/chat/completions": SHORT, "/v1/completions": COMPLETION, "/v1/responses": RESPONSE}.items():
    check(f"wire: {path}, an unknown model", lambda: error(path, {**body, "model": "none"}, WRONG, 404))
    check(f"wire: {path}, an unknown parameter", lambda: error(path, {**body, "colour": "red"}, WRONG, 400))
    check(f"wire: {path}, a wrong type", lambda: error(path, {**body, "temperature": "hot"}, WRONG, 400))


def message_error(change, status):
    error("/v1/messages", {**SHORT, **change}, messages.ErrorResponse, status, of=lambda told: told)


check("wire: /v1/messages, an unknown model", lambda: message_error({"model": "none"}, 404))
check("wire: /v1/messages, an unknown parameter", lambda: message_error({"colour": "red"}, 400))


def ollama_error():
    reply = client.post("/api/chat", json={**TALK, "model": "none"})
    assert reply.status_code == 404, f"{reply.status_code}: {reply.text[:300]}"
    assert isinstance(reply.json()["error"], str), reply.text


check("wire: /api/chat, an unknown model", ollama_error)
