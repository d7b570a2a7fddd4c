"""The seven checks of ExecuTorch's contract for servers in any language, written anew: lists of models, answers whole and
streamed, characters of several bytes in pieces, usage in a stream, the shape of tool calls, the shape of errors."""

import json
import urllib.error
import urllib.request

from checks import KEY, MODEL, URL, WEATHER, checks

contract = checks("contract")


def request(path, body=None):
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}
    return urllib.request.urlopen(urllib.request.Request(f"{URL}/v1{path}", data, headers), timeout=300)


def chat(content, **rest):
    return {"model": MODEL, "messages": [{"role": "user", "content": content}], "max_tokens": 24, **rest}


def whole(body):
    with request("/chat/completions", body) as reply:
        return json.load(reply)


def chunks(body):
    """The chunks of a stream; an error unless it ends as streams do."""
    found, done = [], False
    with request("/chat/completions", {**body, "stream": True}) as reply:
        for line in reply:
            text = line.decode("utf-8").strip()
            if not text.startswith("data:"):
                continue
            assert not done, "something follows the end of the stream"
            payload = text.removeprefix("data:").strip()
            if payload == "[DONE]":
                done = True
                continue
            chunk = json.loads(payload)
            assert "error" not in chunk, chunk
            assert chunk["object"] == "chat.completion.chunk", chunk["object"]
            found.append(chunk)
    assert done, "the stream has no end"
    return found


def deltas(found):
    return [choice["delta"] for chunk in found for choice in chunk["choices"]]


@contract
def models():
    """models are listed."""
    with request("/models") as reply:
        listed = json.load(reply)
    assert listed["object"] == "list"
    assert MODEL in [model["id"] for model in listed["data"]]


@contract
def answers():
    """an answer has a role, a text and a reason to end."""
    answer = whole(chat("Greet me with a single word.", temperature=0))
    [choice] = answer["choices"]
    assert answer["object"] == "chat.completion"
    assert choice["message"]["role"] == "assistant"
    assert isinstance(choice["message"]["content"], str)
    assert choice["finish_reason"] in ("stop", "length")


@contract
def streams():
    """a stream names its role, brings text and ends."""
    said = deltas(chunks(chat("Name three colours.")))
    assert any(delta.get("role") == "assistant" for delta in said)
    assert any(delta.get("content") for delta in said)


@contract
def characters():
    """characters of several bytes arrive whole."""
    body = chat("Repeat after me: Grüße, 東京, Ελλάδα, 🦀🌍", temperature=0, max_tokens=48)
    text = "".join(delta.get("content") or "" for delta in deltas(chunks(body)))
    assert text and "\ufffd" not in text, text
    assert text == whole(body)["choices"][0]["message"]["content"], "whole and in pieces differ"


@contract
def usage():
    """a stream tells what it took where that is asked for."""
    last = chunks(chat("Say hi.", stream_options={"include_usage": True}))[-1]
    told = last["usage"]
    assert last["choices"] == []
    assert told["prompt_tokens"] > 0 and told["completion_tokens"] > 0
    assert told["total_tokens"] == told["prompt_tokens"] + told["completion_tokens"]


@contract
def tools():
    """a tool call has an id, a name and arguments that are JSON."""
    function = {"name": "get_weather", "description": "The weather in a city.", "parameters": WEATHER}
    question = "What is the weather in Paris right now? Call the tool."
    answer = whole(chat(question, tools=[{"type": "function", "function": function}], temperature=0, max_tokens=128))
    [choice] = answer["choices"]
    assert choice["finish_reason"] == "tool_calls", choice
    for call in choice["message"]["tool_calls"]:
        assert call["type"] == "function" and call["id"]
        assert call["function"]["name"] == "get_weather"
        assert json.loads(call["function"]["arguments"])["city"]


@contract
def errors():
    """a prompt that is too long is an error of the client's, told in words."""
    try:
        request("/chat/completions", chat("word " * 40_000)).close()
    except urllib.error.HTTPError as error:
        told = json.load(error)["error"]
        assert 400 <= error.code < 500, error.code
        assert told["message"] and told["type"] and told["code"] == "context_length_exceeded", told
    else:
        raise AssertionError("it was answered")
