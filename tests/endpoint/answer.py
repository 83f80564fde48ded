"""A turn performed as the real API would: thinking signed, answers cut at their limits; and the faults of an answer."""

from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from typing import Any

from relay.base.values import dataclass
from relay.rehearsal.answer import AnswerBlock, Performer, PlayedAnswer, PromptUse, find_stop
from relay.rehearsal.script import Part, Think
from relay.rehearsal.stage import Cue
from relay.rehearsal.wire import BLOCK_TOKENS, BYTES_PER_TOKEN, Body, count_text, dump
from tests.endpoint.faults import FaultName, FaultSpec, StrictCard
from tests.endpoint.prompt import Prompt, Signature, digest_text, extend_binding
from tests.endpoint.script import EndpointScript

IMPLICIT_THINKING_TOKENS = 32
"""Tokens of a thinking block if the script gives none."""
_IMPLICIT = Think("")
_CUTS = {FaultName.MAX_TOKENS: "max_tokens", FaultName.WINDOW_EXCEEDED: "model_context_window_exceeded"}
_ALONE: Mapping[FaultName, str] = {FaultName.EMPTY: "end_turn", FaultName.REFUSAL: "refusal"}
"""Answers without content, and their stop reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointAnswer(PlayedAnswer):
    """A finished message."""

    stop_details: Mapping[str, Any] | None = None
    report: str = ""
    """How usage is reported: ``zero``, ``missing``, ``uncached``, ``falling``, or as in `ServerDialect`."""
    answering_model: str = ""
    """The model that the answer names; empty for `model`."""
    dropped: tuple[Mapping[str, str], ...] = ()
    """Thinking blocks of the request that were dropped, as ``input_transformations`` reports them."""
    edits: tuple[Mapping[str, Any], ...] = ()
    """What context editing did to the request."""
    padding: Mapping[str, int] = field(default_factory=dict)
    """Tokens that the next prompt counts on top of the estimate, by binding-chain key."""

    def render_head(self) -> dict[str, Any]:
        head = PlayedAnswer.render_head(self)
        return head | ({"model": self.answering_model} if self.answering_model else {})

    def render_ending(self) -> dict[str, Any]:
        ending = PlayedAnswer.render_ending(self) | {"stop_details": self.stop_details}
        return ending | ({"input_transformations": list(self.dropped)} if self.dropped else {})

    def render_message(self) -> dict[str, Any]:
        return PlayedAnswer.render_message(self) | self._editing

    def render_end(self) -> dict[str, Any]:
        return PlayedAnswer.render_end(self) | self._editing

    @property
    def _editing(self) -> dict[str, Any]:
        return {"context_management": {"applied_edits": list(self.edits)}} if self.edits else {}

    def render_usage(self, output: int, *, final: bool) -> dict[str, Any] | None:
        usage = self.render_bill(output, final=final)
        match self.report:
            case "missing":
                return None
            case "uncached":
                return {"input_tokens": max(1, usage["input_tokens"]), "output_tokens": usage["output_tokens"]}
            case "late" if not final:
                return {"input_tokens": 0, "output_tokens": 0}
            case "bare" | "late" | "reads" | "flat":
                return self._render_foreign(output)
            case "zero" | "falling" if final or self.report == "zero":
                return {name: 0 for name, value in usage.items() if isinstance(value, int)}
            case _:
                return usage

    def _render_foreign(self, output: int) -> dict[str, Any]:
        """Write usage without division by the cache, or with reads only, as some endpoints do."""
        read = self.use.read_tokens if self.report == "reads" else 0
        usage = {"input_tokens": self.use.tokens - read, "output_tokens": output}
        if self.report == "flat":
            usage |= {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
        return usage | ({"cache_read_input_tokens": read} if read else {})


class EndpointPerformer(Performer):
    """Performs a turn for one request, with its fault."""

    def __init__(self, cue: Cue, fault: FaultSpec | None, body: Body, prompt: Prompt, script: EndpointScript) -> None:
        super().__init__(cue.turn, f"toolu_rehearsal_{cue.cast}_{cue.step}_", body)
        self._fault = fault
        self._kind = fault.kind if fault else None
        self._options: Mapping[str, Any] = fault.options if fault else {}
        self._prompt = prompt
        self._card: StrictCard = prompt.card
        self._bound = prompt.bound
        self._script = script

    def build_answer(self, message_id: str, model: str, use: PromptUse) -> EndpointAnswer:
        parts, stop = self._choose()
        blocks = tuple(self.build_blocks(parts))
        stop = stop or find_stop(blocks)
        if self._kind in _CUTS and blocks:
            whole = len(blocks[-1].raw_input or str(blocks[-1].body.get("text", "")))
            blocks = (*blocks[:-1], _cut_block(blocks[-1], whole // 2))
        elif self._kind is FaultName.BAD_JSON:
            blocks = tuple(replace(block, raw_input=_spoil(block.raw_input)) for block in blocks)
        output = sum(block.tokens for block in blocks)
        padding: dict[str, int] = {}
        scripted = self.turn.usage.output_tokens
        if scripted is not None:
            padding = _pad(self._prompt.bound, blocks, scripted - output)
            output = scripted
        elif output > (budget := self._find_budget())[0]:
            blocks, output, stop = tuple(_fit(blocks, budget[0])), *budget
        named = {name: self._options.get(name) for name in ("category", "explanation")}
        return EndpointAnswer(
            id=message_id,
            model=model,
            blocks=blocks,
            stop_reason=stop,
            stop_details={"type": "refusal", **named} if stop == "refusal" else None,
            use=use,
            output_tokens=output,
            report=self._options.get("report", "zero") if self._kind is FaultName.USAGE else self._script.server.report,
            answering_model=self._options.get("model", "") if self._kind is FaultName.OTHER_MODEL else "",
            dropped=self._prompt.dropped,
            edits=self._prompt.edits,
            padding=padding,
        )

    def _choose(self) -> tuple[tuple[Part, ...], str]:
        """Choose the parts of the answer and its stop reason; empty for the natural one."""
        turn = self.turn
        match self._kind:
            case FaultName.EMPTY | FaultName.REFUSAL as kind:
                return (), _ALONE[kind]
            case FaultName.PAUSE_TURN:
                parts = tuple(part for part in turn.parts if isinstance(part, str | Think))
                return parts or ("Paused.",), "pause_turn"
            case FaultName.UNKNOWN_STOP:
                return turn.parts, self._options.get("reason", "moonrise")
            case FaultName.MAX_TOKENS | FaultName.WINDOW_EXCEEDED as kind:
                return turn.parts, _CUTS[kind]
            case _:
                return turn.parts, turn.stop

    def build_blocks(self, parts: tuple[Part, ...]) -> Iterator[AnswerBlock]:
        config = self.body.get("thinking") or {}
        off = config.get("type") == "disabled"
        only_on_request = "adaptive" not in self._card.thinking
        if off or (only_on_request and config.get("type") != "enabled"):
            parts = tuple(part for part in parts if not isinstance(part, Think))
        elif parts and self._must_think(config, parts):
            parts = (_IMPLICIT, *parts)
        for part in parts[: (is_implicit := parts[:1] == (_IMPLICIT,))]:
            yield self._follow(self.build_block(part))
        if self._kind is FaultName.UNKNOWN_BLOCK:
            body = {"type": self._options.get("type", "hologram"), "data": "not known to this client"}
            yield self._follow(AnswerBlock(body=body, tokens=count_text(dump(body))))
        for part in parts[is_implicit:]:
            yield self._follow(self.build_block(part))

    def _follow(self, block: AnswerBlock) -> AnswerBlock:
        """Continue the binding chain, to which the next thinking is bound."""
        ((_, self._bound),) = extend_binding(self._bound, [block.body])
        return block

    def _must_think(self, config: Mapping[str, Any], parts: tuple[Part, ...]) -> bool:
        if any(isinstance(part, Think) for part in parts) or config.get("type") == "between_tools":
            return False
        return self._card.binds_thinking

    def build_thinking(self, part: Think) -> AnswerBlock:
        """Sign thinking for its position."""
        config = self.body.get("thinking") or {}
        shown = config.get("display") or ("summarized" if "enabled" in self._card.thinking else "omitted")
        text = part.text
        tokens = IMPLICIT_THINKING_TOKENS if part is _IMPLICIT else count_text(text)
        text = text if shown != "omitted" or config.get("type") == "between_tools" else ""
        signature = Signature(model=self._card.id, prefix=self._bound, tokens=tokens, text=digest_text(text)).encode()
        body = {"type": "thinking", "thinking": text, "signature": signature if self._script.server.signs else ""}
        return AnswerBlock(body=body, tokens=tokens)

    def _find_budget(self) -> tuple[int, str]:
        """Return how many tokens the answer may have, and the stop reason at that limit."""
        left = self._card.window_tokens - self._prompt.tokens
        limit = int(self.body.get("max_tokens", 0))
        return (limit, "max_tokens") if limit <= left else (left, "model_context_window_exceeded")


def _fit(blocks: tuple[AnswerBlock, ...], budget: int) -> Iterator[AnswerBlock]:
    """Keep the blocks that fit into a budget of tokens; cut the last one."""
    for block in blocks:
        if block.tokens <= budget:
            budget -= block.tokens
            yield block
            continue
        chars = int((budget - BLOCK_TOKENS) * BYTES_PER_TOKEN)
        if chars > 0 and block.body.get("type") in {"text", "tool_use"}:
            yield _cut_block(block, chars)
        return


def _cut_block(block: AnswerBlock, chars: int) -> AnswerBlock:
    """Keep the first characters of a block's text or of its input's JSON."""
    if block.body.get("type") == "text":
        text = str(block.body["text"])[:chars]
        return replace(block, body={**block.body, "text": text}, tokens=count_text(text))
    if block.body.get("type") != "tool_use":
        return block
    raw, kept = block.raw_input[:chars], dict[str, Any]()
    for name, value in block.body["input"].items():
        longer = {**kept, name: value}
        if len(dump(longer)) - 1 > len(raw):
            break
        kept = longer
    tokens = count_text(str(block.body["name"]) + raw)
    return replace(block, body={**block.body, "input": kept}, raw_input=raw, tokens=tokens)


def _spoil(raw: str) -> str:
    """Break valid JSON."""
    return raw and raw[:-1] + ',,"}'


def _pad(bound: str, blocks: tuple[AnswerBlock, ...], extra: int) -> dict[str, int]:
    """Return the additional tokens of the next prompt for an answer with a scripted size."""
    keys = [after for _, after in extend_binding(bound, [block.body for block in blocks])]
    return {keys[-1]: extra} if keys else {}
