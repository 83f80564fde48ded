import unittest

from filters.evaluate import matches


class Evaluate(unittest.TestCase):
    def test_fields(self) -> None:
        self.assertTrue(matches('status = "open" and age > 3', {"status": "open", "age": 4}))
        self.assertFalse(matches("age > 3", {}))

    def test_a_missing_field_is_unknown(self) -> None:
        self.assertFalse(matches("not age > 3", {}))
