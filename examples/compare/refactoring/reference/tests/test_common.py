import unittest

from reports import common


class Common(unittest.TestCase):
    def test_amounts(self) -> None:
        self.assertEqual(common.show_minus(-123_456), "-1,234.56")
        self.assertEqual(common.round_half_up(250), 3)

    def test_dates(self) -> None:
        self.assertEqual(common.show_dots("2026-01-02"), "02.01.2026")
