"""A server that speaks as OpenAI (Chat Completions, Responses) and Anthropic do, streaming, from a script.

It is strict about what it is sent, as the real ones are: every call of the history has one result, right behind it, and its
arguments are a JSON object.
"""

import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Turn:
    """Be an answer: a text, calls as (id, name, arguments text), and whether it is cut off at its end.

    With `events` the connection is closed after so many; with `broken` in the middle of what was announced.
    """

    text: str = ""
    calls: tuple = ()
    cut: bool = False
    events: int | None = None
    broken: bool = False


@dataclass
class Provider:
    """Be the server: `script` holds turns, or statuses to answer with instead."""

    script: list
    requests: list = field(default_factory=list)
    problems: list = field(default_factory=list)

    def __enter__(self):
        provider = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                provider.answer(self, self.path, body)

            def log_message(self, *_):
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.005,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def answer(self, handler, path, body):
        self.requests.append(body)
        kind = {"completions": "chat", "responses": "responses", "messages": "anthropic"}[path.split("?")[0].rsplit("/", 1)[1]]
        problem = {"chat": chat_problem, "responses": responses_problem, "anthropic": anthropic_problem}[kind](body)
        if problem is not None:
            self.problems.append(problem)
            return send(handler, 400, "application/json", json.dumps({"error": {"message": problem, "type": "invalid"}}))
        turn = self.script.pop(0) if self.script else Turn("done")
        if isinstance(turn, int):
            return send(handler, turn, "application/json", json.dumps({"error": {"message": "later", "type": "overloaded"}}))
        events = {"chat": chat_events, "responses": responses_events, "anthropic": anthropic_events}[kind](turn)
        if turn.events is not None:
            return send_a_part(handler, "".join(list(events)[: turn.events]), broken=turn.broken)
        return send(handler, 200, "text/event-stream", "".join(events))


def send(handler, status, content_type, text):
    data = text.encode()
    handler.send_response(status)
    handler.send_header("content-type", content_type)
    handler.send_header("content-length", str(len(data)))
    handler.send_header("retry-after-ms", "1")
    handler.end_headers()
    handler.wfile.write(data)


def send_a_part(handler, text, *, broken):
    data = text.encode()
    handler.send_response(200)
    handler.send_header("content-type", "text/event-stream")
    if broken:
        handler.send_header("content-length", str(len(data) + 50))
    else:
        handler.send_header("connection", "close")
    handler.end_headers()
    handler.wfile.write(data)
    handler.close_connection = True


def pieces(text):
    return [text[start : start + 7] for start in range(0, len(text), 7)] or [""]


# ── what they say ────────────────────────────────────────────────────────────────────────────────────────────────────────


def chat_events(turn):
    def chunk(delta, reason=None):
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        facts = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
        return f"data: {json.dumps(facts)}\n\n"

    yield chunk({"role": "assistant", "content": ""})
    for piece in pieces(turn.text) if turn.text else ():
        yield chunk({"content": piece})
    for index, (call_id, name, arguments) in enumerate(turn.calls):
        begin = {"index": index, "id": call_id, "type": "function", "function": {"name": name, "arguments": ""}}
        yield chunk({"tool_calls": [begin]})
        for piece in pieces(arguments):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, "length" if turn.cut else "tool_calls" if turn.calls else "stop")
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    last = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [], "usage": usage}
    yield f"data: {json.dumps(last)}\n\n"
    yield "data: [DONE]\n\n"


def responses_events(turn):
    number = iter(range(1000))
    base = {"id": "resp", "object": "response", "created_at": 1, "model": "m", "parallel_tool_calls": True, "tool_choice": "auto"}
    base |= {"tools": [], "status": "in_progress", "output": [], "error": None, "incomplete_details": None, "metadata": {}}

    def event(kind, **facts):
        return f"event: {kind}\ndata: {json.dumps({'type': kind, 'sequence_number': next(number), **facts})}\n\n"

    yield event("response.created", response=base)
    output = []
    if turn.text:
        item = {"type": "message", "id": "m1", "role": "assistant", "status": "in_progress", "content": []}
        yield event("response.output_item.added", output_index=0, item=item)
        part = {"type": "output_text", "text": "", "annotations": []}
        yield event("response.content_part.added", item_id="m1", output_index=0, content_index=0, part=part)
        for piece in pieces(turn.text):
            yield event("response.output_text.delta", item_id="m1", output_index=0, content_index=0, delta=piece, logprobs=[])
        done = {**item, "status": "completed", "content": [{**part, "text": turn.text}]}
        yield event("response.output_item.done", output_index=0, item=done)
        output.append(done)
    for call_id, name, arguments in turn.calls:
        place, item_id = len(output), f"fc_{len(output)}"
        item = {
            "type": "function_call",
            "id": item_id,
            "call_id": call_id,
            "name": name,
            "arguments": "",
            "status": "in_progress",
        }
        yield event("response.output_item.added", output_index=place, item=item)
        for piece in pieces(arguments):
            yield event("response.function_call_arguments.delta", item_id=item_id, output_index=place, delta=piece)
        done = {**item, "arguments": arguments, "status": "incomplete" if turn.cut else "completed"}
        yield event("response.function_call_arguments.done", item_id=item_id, output_index=place, arguments=arguments, name=name)
        yield event("response.output_item.done", output_index=place, item=done)
        output.append(done)
    usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
    usage |= {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    ended = {**base, "status": "incomplete" if turn.cut else "completed", "output": output, "usage": usage}
    if turn.cut:
        ended["incomplete_details"] = {"reason": "max_output_tokens"}
    yield event("response.incomplete" if turn.cut else "response.completed", response=ended)


def anthropic_events(turn):
    def event(kind, **facts):
        return f"event: {kind}\ndata: {json.dumps({'type': kind, **facts})}\n\n"

    message = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": None}
    message |= {"stop_sequence": None, "usage": {"input_tokens": 10, "output_tokens": 1}}
    yield event("message_start", message=message)
    index = 0
    if turn.text:
        yield event("content_block_start", index=index, content_block={"type": "text", "text": ""})
        for piece in pieces(turn.text):
            yield event("content_block_delta", index=index, delta={"type": "text_delta", "text": piece})
        yield event("content_block_stop", index=index)
        index += 1
    for call_id, name, arguments in turn.calls:
        yield event(
            "content_block_start", index=index, content_block={"type": "tool_use", "id": call_id, "name": name, "input": {}}
        )
        for piece in pieces(arguments):
            yield event("content_block_delta", index=index, delta={"type": "input_json_delta", "partial_json": piece})
        yield event("content_block_stop", index=index)
        index += 1
    reason = "max_tokens" if turn.cut else "tool_use" if turn.calls else "end_turn"
    yield event("message_delta", delta={"stop_reason": reason, "stop_sequence": None}, usage={"output_tokens": 5})
    yield event("message_stop")


# ── what they refuse ─────────────────────────────────────────────────────────────────────────────────────────────────────


def arguments_problem(arguments):
    try:
        value = json.loads(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        return "arguments are no JSON"
    return None if isinstance(value, dict) else "arguments are no object"


def chat_problem(body):
    waiting = []
    for message in body["messages"]:
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                return "a result without a call"
            waiting.remove(message["tool_call_id"])
            continue
        if waiting:
            return "a call without a result"
        for call in message.get("tool_calls") or ():
            problem = arguments_problem(call["function"]["arguments"])
            if problem or call["id"] in waiting:
                return problem or "an id that is there twice"
            waiting.append(call["id"])
    return "a call without a result" if waiting else None


def responses_problem(body):
    asked, answered = [], []
    for item in body["input"]:
        if item.get("type") == "function_call":
            problem = arguments_problem(item["arguments"])
            if problem or item["call_id"] in asked:
                return problem or "an id that is there twice"
            asked.append(item["call_id"])
        elif item.get("type") == "function_call_output":
            answered.append(item["call_id"])
    return None if sorted(asked) == sorted(answered) else "calls and results differ"


def anthropic_problem(body):
    waiting = []
    for message in body["messages"]:
        content = message["content"] if isinstance(message["content"], list) else []
        results = [block["tool_use_id"] for block in content if block["type"] == "tool_result"]
        if sorted(results) != sorted(waiting):
            return "results and calls differ"
        uses = [block for block in content if block["type"] == "tool_use"]
        for use in uses:
            problem = arguments_problem(use["input"])
            if problem:
                return problem
        waiting = [use["id"] for use in uses]
        if len(set(waiting)) != len(waiting):
            return "an id that is there twice"
    return "a call without a result" if waiting else None
