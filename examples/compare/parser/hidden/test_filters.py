"""What the specification says, as tests that no session has seen."""

import json
import subprocess
import sys
import unittest

from filters import FilterError
from filters.evaluate import evaluate, matches
from filters.parser import parse
from filters.printer import show
from filters.tokens import tokenize

A, B, C = (("field", name) for name in "abc")


def column(read, text):
    try:
        read(text)
    except FilterError as error:
        return error.column
    return None


class Tokens(unittest.TestCase):
    def test_kinds_values_and_columns(self):
        found = [tuple(one) for one in tokenize('a_1.b\t!= -0.50 or"x"')]
        self.assertEqual(
            found,
            [("name", "a_1.b", 1), ("operator", "!=", 7), ("number", -0.5, 10), ("word", "or", 16), ("string", "x", 18), ("end", "", 21)],
        )

    def test_numbers_are_whole_or_not(self):
        self.assertIs(type(tokenize("3")[0].value), int)
        self.assertIs(type(tokenize("3.0")[0].value), float)

    def test_words_are_in_lower_case(self):
        self.assertEqual([one.kind for one in tokenize("AND and android")], ["name", "word", "name", "end"])

    def test_escapes(self):
        self.assertEqual(tokenize(r'"\"\\\n\t"')[0].value, '"\\\n\t')

    def test_bad_tokens(self):
        for text, at in (('"a\\x"', 3), ('a = "b', 5), ('"a\nb"', 1), (".5", 1), ("5.", 2), ("1e3", 2), ("a ; b", 3), ("é", 1), ("a = -", 5), ('"a\\', 3)):
            with self.subTest(text):
                self.assertEqual(column(tokenize, text), at)


class Parser(unittest.TestCase):
    def test_precedence(self):
        self.assertEqual(parse("a or b and c"), ("or", A, ("and", B, C)))
        self.assertEqual(parse("a and b or c"), ("or", ("and", A, B), C))
        self.assertEqual(parse("not a and b"), ("and", ("not", A), B))
        self.assertEqual(parse("not a = b"), ("not", ("compare", "=", A, B)))

    def test_left_to_right(self):
        self.assertEqual(parse("a or b or c"), ("or", ("or", A, B), C))
        self.assertEqual(parse("a and (b and c)"), ("and", A, ("and", B, C)))

    def test_lists(self):
        self.assertEqual(parse('a in [1, "x", null]'), ("in", A, (1, "x", None)))
        self.assertEqual(parse("a not in []"), ("not", ("in", A, ())))
        self.assertEqual(parse("not a not in [true]"), ("not", ("not", ("in", A, (True,)))))

    def test_errors_have_the_column_of_the_token(self):
        for text, at in (("", 1), ("a and", 6), ("1 < a < 3", 7), ("a in [1,]", 9), ("a in [b]", 7), ("(a", 3), ("a b", 3), ("a in 3", 6), ("a not 3", 7), ("a = = b", 5), (")", 1), ("and a", 1)):
            with self.subTest(text):
                self.assertEqual(column(parse, text), at)

    def test_depth_is_bounded(self):
        parse("(" * 100 + "a" + ")" * 100)
        self.assertEqual(column(parse, "(" * 101 + "a" + ")" * 101), 101)
        self.assertEqual(column(parse, "not " * 5000 + "a"), 401)


class Truth(unittest.TestCase):
    def test_unknown_is_neither(self):
        for text in ("x = 1", "x != 1", "not x = 1", "x in [1]", "x not in [1]", "a.b = 1", "x", "not x"):
            with self.subTest(text):
                self.assertIsNone(evaluate(parse(text), {"a": 3}))
                self.assertFalse(matches(text, {"a": 3}))

    def test_unknown_in_and_and_or(self):
        for text, value in (("x and false", False), ("false and x", False), ("x and true", None), ("x or true", True), ("true or x", True), ("x or false", None)):
            with self.subTest(text):
                self.assertIs(evaluate(parse(text), {}), value)

    def test_null_is_a_value(self):
        self.assertTrue(matches("a = null", {"a": None}))
        self.assertTrue(matches("a != 1", {"a": None}))
        self.assertFalse(matches("a = null", {}))

    def test_types_are_kept_apart(self):
        for text, record, value in (
            ("a = 1", {"a": True}, False), ("a = 1", {"a": 1.0}, True), ('a = "1"', {"a": 1}, False), ("a in [1]", {"a": True}, False),
            ('a < "b"', {"a": 1}, None), ("a < 2", {"a": True}, None), ('a < "b"', {"a": "a"}, True), ("a >= 2", {"a": 2.0}, True),
        ):
            with self.subTest(text=text, record=record):
                self.assertIs(evaluate(parse(text), record), value)

    def test_a_value_that_is_no_truth_value_is_unknown(self):
        self.assertIsNone(evaluate(parse("a"), {"a": 1}))
        self.assertIs(evaluate(parse("a and b"), {"a": True, "b": True}), True)

    def test_paths(self):
        self.assertTrue(matches("a.b.c = 1", {"a": {"b": {"c": 1}}}))
        self.assertTrue(matches("(a = 1) = true", {"a": 1}))


class Printing(unittest.TestCase):
    def test_only_the_parentheses_that_are_needed(self):
        for text, shown in (
            ("((a)) and ((b))", "a and b"), ("(a or b) and c", "(a or b) and c"), ("a or (b and c)", "a or b and c"),
            ("a and (b and c)", "a and (b and c)"), ("not (a = b)", "not a = b"), ("not (not a)", "not not a"), ("(a = b) = c", "(a = b) = c"),
            ("not (a in [1])", "a not in [1]"), ("(not a) = b", "(not a) = b"), ("(a not in [1]) and b", "a not in [1] and b"),
            ("(a or b) in [true]", "(a or b) in [true]"),
        ):
            with self.subTest(text):
                self.assertEqual(show(parse(text)), shown)
                self.assertEqual(parse(shown), parse(text))

    def test_literals(self):
        for value in ('quo"te\\', "line\nfeed\t", 0.5, -3, 1e21, 1e-7, True, None, 2.0):
            with self.subTest(value):
                tree = ("compare", "=", A, ("literal", value))
                self.assertEqual(parse(show(tree)), tree)
                self.assertIs(type(parse(show(tree))[3][1]), type(value))

    def test_the_command(self):
        lines = [json.dumps({"a": n}) for n in range(4)]
        done = subprocess.run([sys.executable, "-m", "filters", "a >= 2"], input="\n".join(lines), capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout.split("\n")[:-1]), (0, lines[2:]))
        wrong = subprocess.run([sys.executable, "-m", "filters", "a >"], input="", capture_output=True, text=True)
        self.assertNotEqual(wrong.returncode, 0)
        self.assertNotIn("Traceback", wrong.stderr)


if __name__ == "__main__":
    unittest.main()
