"""From tokens to a tree: part 2 of the specification."""

from typing import Any

from filters import FilterError
from filters.tokens import Token, tokenize

MOST_DEEP = 100
COMPARISONS = frozenset({"=", "!=", "<", "<=", ">", ">="})
CONSTANTS = {"true": True, "false": False, "null": None}
Tree = tuple[Any, ...]


def parse(text: str) -> Tree:
    parser = _Parser(tokenize(text))
    tree = parser.read_or(0)
    if parser.token.kind != "end":
        raise parser.fail()
    return tree


class _Parser:
    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.at = 0

    @property
    def token(self) -> Token:
        return self.tokens[self.at]

    def fail(self) -> FilterError:
        words = "the filter ends too early" if self.token.kind == "end" else f"unexpected {self.token.value!r}"
        return FilterError(words, self.token.column)

    def take(self, kind: str, *values: str) -> Token | None:
        token = self.token
        if token.kind != kind or (values and token.value not in values):
            return None
        self.at += 1
        return token

    def need(self, kind: str, *values: str) -> Token:
        token = self.take(kind, *values)
        if token is None:
            raise self.fail()
        return token

    def read_or(self, depth: int) -> Tree:
        left = self.read_and(depth)
        while self.take("word", "or"):
            left = ("or", left, self.read_and(depth))
        return left

    def read_and(self, depth: int) -> Tree:
        left = self.read_not(depth)
        while self.take("word", "and"):
            left = ("and", left, self.read_not(depth))
        return left

    def read_not(self, depth: int) -> Tree:
        nots = 0
        while self.token.kind == "word" and self.token.value == "not":
            self.check_depth(depth + nots + 1)
            self.at += 1
            nots += 1
        tree = self.read_comparison(depth + nots)
        for _ in range(nots):
            tree = ("not", tree)
        return tree

    def check_depth(self, depth: int) -> None:
        if depth > MOST_DEEP:
            raise FilterError("nested too deeply", self.token.column)

    def read_comparison(self, depth: int) -> Tree:
        left = self.read_operand(depth)
        if operator := self.take("operator", *COMPARISONS):
            return ("compare", operator.value, left, self.read_operand(depth))
        if self.take("word", "not"):
            self.need("word", "in")
            return ("not", ("in", left, self.read_list()))
        if self.take("word", "in"):
            return ("in", left, self.read_list())
        return left

    def read_operand(self, depth: int) -> Tree:
        if name := self.take("name"):
            return ("field", name.value)
        if self.token.kind == "operator" and self.token.value == "(":
            self.check_depth(depth + 1)
            self.at += 1
            tree = self.read_or(depth + 1)
            self.need("operator", ")")
            return tree
        return ("literal", self.read_literal())

    def read_literal(self) -> Any:
        if token := self.take("number") or self.take("string"):
            return token.value
        return CONSTANTS[self.need("word", *CONSTANTS).value]

    def read_list(self) -> tuple[Any, ...]:
        self.need("operator", "[")
        values: list[Any] = []
        if self.take("operator", "]"):
            return ()
        while True:
            values.append(self.read_literal())
            if self.take("operator", "]"):
                return tuple(values)
            self.need("operator", ",")
