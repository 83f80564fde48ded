import unittest

from filters.parser import parse
from filters.printer import show


class Printer(unittest.TestCase):
    def test_it_reads_back(self) -> None:
        for text in ('a = 1 and (b or c) and d in ["x", 2]', "not (a and b)", 'a not in ["\\"\\n"]'):
            with self.subTest(text):
                self.assertEqual(show(parse(text)), text)
