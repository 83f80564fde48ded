import unittest

from filters import FilterError
from filters.tokens import tokenize


class Tokens(unittest.TestCase):
    def test_kinds(self) -> None:
        found = [(one.kind, one.value) for one in tokenize('a.b >= -2 and "x\\n"')]
        self.assertEqual(
            found,
            [("name", "a.b"), ("operator", ">="), ("number", -2), ("word", "and"), ("string", "x\n"), ("end", "")],
        )

    def test_errors(self) -> None:
        for text, column in (('a = "x', 5), ("a ? b", 3), ("5.", 2)):
            with self.subTest(text), self.assertRaises(FilterError) as caught:
                tokenize(text)
            self.assertEqual(caught.exception.column, column)
