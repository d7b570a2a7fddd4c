"""The official clients in Python: `openai`, `anthropic` and `ollama` stream, parse, call tools and tell errors apart."""

import json

import anthropic
import ollama
import openai
from pydantic import BaseModel

from checks import KEY, MODEL, SMALL, URL, WEATHER, checks

ai = openai.OpenAI(base_url=f"{URL}/v1", api_key=KEY, max_retries=0, timeout=300)
claude = anthropic.Anthropic(base_url=URL, api_key=KEY, max_retries=0, timeout=300)
llama = ollama.Client(host=URL, headers={"Authorization": f"Bearer {KEY}"}, timeout=300)

HELLO = [{"role": "user", "content": "Say hello to a friend."}]
SHORTLY = [{"role": "user", "content": "Count from one to eight in words."}]
ASKS = [{"role": "user", "content": "What is the weather in Paris?"}]
COUNTS = [{"role": "user", "content": "Write the alphabet from a to z."}]
# The package does not offer it any more; servers still take it.
COLD = {"extra_body": {"temperature": 0}}
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "Tells it.", "parameters": WEATHER}}


class Weather(BaseModel):
    city: str


def raises(kind, work):
    try:
        work()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


of_openai = checks("openai (Python)")


@of_openai
def models():
    """models.list."""
    assert {model.id for model in ai.models.list()} >= {MODEL, SMALL}
    assert ai.models.retrieve(MODEL).id == MODEL


@of_openai
def whole():
    """chat.completions.create."""
    answer = ai.chat.completions.create(model=SMALL, messages=HELLO, max_tokens=12)
    assert answer.choices[0].message.content and answer.usage.completion_tokens <= 12


@of_openai
def stream():
    """chat.completions.stream tells every event, and the whole is its pieces."""
    pieces, kinds = [], set()
    asked = {"model": MODEL, "messages": SHORTLY, "max_tokens": 100, "temperature": 0}
    with ai.chat.completions.stream(**asked, stream_options={"include_usage": True}) as events:
        for event in events:
            kinds.add(event.type)
            if event.type == "content.delta":
                pieces.append(event.delta)
        last = events.get_final_completion()
    assert len(pieces) > 2 and kinds >= {"chunk", "content.delta", "content.done"}, kinds
    assert "".join(pieces) == last.choices[0].message.content
    assert last.usage.total_tokens > 0


@of_openai
def parse():
    """chat.completions.parse gives an object of the asked class."""
    answer = ai.chat.completions.parse(
        model=MODEL, messages=ASKS, response_format=Weather, max_tokens=64, temperature=0
    )
    assert isinstance(answer.choices[0].message.parsed, Weather)


@of_openai
def too_short():
    """parse says that an answer was cut off."""
    raises(
        openai.LengthFinishReasonError,
        lambda: ai.chat.completions.parse(model=SMALL, messages=ASKS, response_format=Weather, max_tokens=1),
    )


@of_openai
def tools():
    """a forced tool, whole and streamed, and its result handed back."""
    asked = {"model": MODEL, "tools": [TOOL], "max_tokens": 64, "temperature": 0}
    chosen = {"tool_choice": {"type": "function", "function": {"name": "get_weather"}}}
    message = ai.chat.completions.create(messages=ASKS, **asked, **chosen).choices[0].message
    [call] = message.tool_calls
    assert call.function.name == "get_weather" and json.loads(call.function.arguments)["city"]
    with ai.chat.completions.stream(messages=ASKS, **asked, **chosen) as events:
        streamed = events.get_final_completion().choices[0]
    assert streamed.finish_reason == "tool_calls" and streamed.message.tool_calls[0].function.name == "get_weather"
    result = {"role": "tool", "tool_call_id": call.id, "content": "sunny, 21 degrees"}
    told = ai.chat.completions.create(messages=[*ASKS, message, result], **asked, tool_choice="none")
    assert told.choices[0].message.content


@of_openai
def errors():
    """errors are of the right classes."""
    ask = ai.chat.completions.create
    assert raises(openai.NotFoundError, lambda: ask(model="none", messages=HELLO)).code == "model_not_found"
    wrong = raises(openai.BadRequestError, lambda: ask(model=SMALL, messages=HELLO, temperature=9))
    assert wrong.param == "temperature"
    stranger = ai.with_options(api_key="wrong")
    raises(openai.AuthenticationError, lambda: stranger.chat.completions.create(model=SMALL, messages=HELLO))
    longer = [{"role": "user", "content": "word " * 40_000}]
    told = raises(openai.BadRequestError, lambda: ask(model=SMALL, messages=longer))
    assert told.code == "context_length_exceeded"


@of_openai
def completions():
    """completions.create, whole and streamed."""
    asked = {"model": SMALL, "prompt": "Once upon a time", "max_tokens": 12, "temperature": 0}
    text = ai.completions.create(**asked).choices[0].text
    pieces = [chunk.choices[0].text for chunk in ai.completions.create(**asked, stream=True)]
    assert len(pieces) > 2 and "".join(pieces) == text


@of_openai
def responses():
    """responses.create, stream and parse."""
    asked = {"model": MODEL, "input": SHORTLY[0]["content"], "max_output_tokens": 100, "temperature": 0}
    assert ai.responses.create(**asked).output_text
    with ai.responses.stream(**asked) as events:
        pieces = [event.delta for event in events if event.type == "response.output_text.delta"]
        last = events.get_final_response()
    assert len(pieces) > 2 and "".join(pieces) == last.output_text
    parsed = ai.responses.parse(
        model=MODEL, input="The weather in Paris", text_format=Weather, max_output_tokens=64, temperature=0
    )
    assert isinstance(parsed.output_parsed, Weather)


of_anthropic = checks("anthropic (Python)")


@of_anthropic
def message():
    """messages.create and count_tokens."""
    answer = claude.messages.create(model=SMALL, messages=HELLO, max_tokens=12)
    assert answer.content[0].text and answer.stop_reason in ("end_turn", "max_tokens")
    counted = claude.messages.count_tokens(model=SMALL, messages=HELLO)
    assert counted.input_tokens == answer.usage.input_tokens + answer.usage.cache_read_input_tokens


@of_anthropic
def message_stream():
    """messages.stream."""
    with claude.messages.stream(model=SMALL, messages=HELLO, max_tokens=16) as events:
        pieces = list(events.text_stream)
        last = events.get_final_message()
    assert len(pieces) > 2 and "".join(pieces) == last.content[0].text and last.usage.output_tokens > 0


@of_anthropic
def message_stop():
    """a stop sequence is named."""
    asked = {"model": MODEL, "messages": COUNTS, "max_tokens": 64, "stop_sequences": ["e"], **COLD}
    answer = claude.messages.create(**asked)
    assert (answer.stop_reason, answer.stop_sequence) == ("stop_sequence", "e"), answer
    with claude.messages.stream(**asked) as events:
        last = events.get_final_message()
    assert (last.stop_reason, last.stop_sequence) == ("stop_sequence", "e"), last


@of_anthropic
def message_tools():
    """a forced tool, whole and streamed, and its result handed back."""
    tool = {"name": "get_weather", "description": "Tells it.", "input_schema": WEATHER}
    asked = {"model": MODEL, "tools": [tool], "max_tokens": 64, **COLD}
    chosen = {"tool_choice": {"type": "tool", "name": "get_weather"}}
    answer = claude.messages.create(messages=ASKS, **asked, **chosen)
    [call] = [block for block in answer.content if block.type == "tool_use"]
    assert answer.stop_reason == "tool_use" and call.input["city"]
    with claude.messages.stream(messages=ASKS, **asked, **chosen) as events:
        streamed = events.get_final_message()
    assert [block.input["city"] for block in streamed.content if block.type == "tool_use"]
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "sunny, 21 degrees"}
    history = [*ASKS, {"role": "assistant", "content": answer.content}, {"role": "user", "content": [result]}]
    told = claude.messages.create(messages=history, **asked, tool_choice={"type": "none"})
    assert told.content[0].text


@of_anthropic
def message_errors():
    """errors are of the right classes."""
    ask = claude.messages.create
    raises(anthropic.NotFoundError, lambda: ask(model="none", messages=HELLO, max_tokens=8))
    hot = {"extra_body": {"temperature": 9}}
    raises(anthropic.BadRequestError, lambda: ask(model=SMALL, messages=HELLO, max_tokens=8, **hot))
    stranger = claude.with_options(api_key="wrong")
    raises(anthropic.AuthenticationError, lambda: stranger.messages.create(model=SMALL, messages=HELLO, max_tokens=8))


of_ollama = checks("ollama (Python)")
FEW = {"num_predict": 12, "temperature": 0}


@of_ollama
def chat():
    """chat, whole and streamed."""
    text = llama.chat(model=SMALL, messages=HELLO, options=FEW).message.content
    pieces = list(llama.chat(model=SMALL, messages=HELLO, options=FEW, stream=True))
    assert "".join(piece.message.content or "" for piece in pieces) == text and len(pieces) > 2
    assert pieces[-1].done and pieces[-1].eval_count and not pieces[0].done


@of_ollama
def generate():
    """generate, whole and streamed."""
    text = llama.generate(model=SMALL, prompt="Once upon a time", options=FEW).response
    pieces = list(llama.generate(model=SMALL, prompt="Once upon a time", options=FEW, stream=True))
    assert "".join(piece.response for piece in pieces) == text and len(pieces) > 2


@of_ollama
def form():
    """format holds an answer to a schema."""
    asked = {"model": MODEL, "messages": ASKS, "options": {"num_predict": 64, "temperature": 0}}
    Weather.model_validate_json(llama.chat(**asked, format=Weather.model_json_schema()).message.content)


@of_ollama
def ollama_tools():
    """tools are called and results handed back."""
    asked = {"model": MODEL, "tools": [TOOL], "options": {"num_predict": 64, "temperature": 0}}
    llama.chat(messages=ASKS, **asked)
    called = {"role": "assistant", "tool_calls": [{"function": {"name": "get_weather", "arguments": {"city": "Paris"}}}]}
    result = {"role": "tool", "tool_name": "get_weather", "content": "sunny, 21 degrees"}
    # What to do with a result is for the model to say: in words, or by another call.
    told = llama.chat(messages=[*ASKS, called, result], **asked).message
    assert told.content or told.tool_calls, told


@of_ollama
def lists():
    """list, show and ps."""
    assert {model.model for model in llama.list().models} >= {SMALL}
    assert llama.show(SMALL).capabilities
    llama.ps()


@of_ollama
def ollama_errors():
    """an unknown model is a ResponseError with status 404."""
    assert raises(ollama.ResponseError, lambda: llama.chat(model="none", messages=HELLO)).status_code == 404
