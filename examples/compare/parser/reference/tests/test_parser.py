import unittest

from filters import FilterError
from filters.parser import parse


class Parser(unittest.TestCase):
    def test_and_before_or(self) -> None:
        a, b, c = (("field", name) for name in "abc")
        self.assertEqual(parse("a or b and c"), ("or", a, ("and", b, c)))

    def test_errors(self) -> None:
        for text, column in (("a and", 6), ("1 < a < 3", 7), ("a in [1,]", 9)):
            with self.subTest(text), self.assertRaises(FilterError) as caught:
                parse(text)
            self.assertEqual(caught.exception.column, column)
