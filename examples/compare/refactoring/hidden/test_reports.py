"""What the reports printed before, to the byte, and that nothing stands there twice: tests that no session has seen."""

import ast
import hashlib
import importlib
import random
import unittest
from collections import Counter
from pathlib import Path

BEFORE = {
    "invoices": "c96578d21450604a",
    "credits": "b967c25fa6e31ed2",
    "debts": "fbbdace7db7defbc",
    "tax": "035d90e2cea51ebc",
    "monthly": "8f9165c2cd78800c",
    "rent": "cab10488f9979a8c",
    "ledger": "10e53fd9b18210cd",
    "payroll": "4a87087b394ba630",
    "suppliers": "63b75d2c8f949294",
    "freight": "84d72844279cf481",
    "export": "5be3ed4499db7ee3",
    "large": "f7d55b4b2307529d",
    "auditors": "0377d7b1d216f1c2",
    "refunds": "cb6d11acd5e50bf1",
    "travel": "f0c9c12b66d3e12a",
    "customs": "b89980e93a26af75",
    "donations": "d63a918bb8a2c343",
    "swiss": "75c371c1146f6992",
    "energy": "87381e1c073b93eb",
    "summary": "8f54b34c8794f17f",
}
"""Digests of what each report printed of the same entries."""
NAMES = ("Ann", "Bob & Sons", "A rather long name of a company that does not fit", "Zoë", "", "O'Neill")


def draw(seed):
    dice = random.Random(seed)
    rows = []
    for _ in range(dice.randrange(0, 60)):
        name, date = dice.choice(NAMES), f"20{dice.randrange(10, 30)}-{dice.randrange(1, 13):02}-{dice.randrange(1, 29):02}"
        sizes = (dice.randrange(-3_000_000, 3_000_000), dice.randrange(-300, 300), 50 * dice.randrange(-40, 40))
        rows.append({"name": name, "date": date, "cents": dice.choice(sizes)})
    return rows


def list_functions(module):
    """Return the functions of a module, without their names and docstrings."""
    path = Path(importlib.import_module(module).__file__)
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.Lambda):
            body = node.body if isinstance(node.body, list) else [node.body]
            yield getattr(node, "name", "lambda"), "\n".join(ast.unparse(line) for line in body)


class Behaviour(unittest.TestCase):
    pass


def make_test(name):
    def test(self):
        render = importlib.import_module(f"reports.{name}").render
        shown = "\n\n".join(render(draw(seed)) for seed in range(40))
        self.assertEqual(hashlib.sha256(shown.encode()).hexdigest()[:16], BEFORE[name])

    return test


for each in BEFORE:
    setattr(Behaviour, f"test_{each}", make_test(each))


class Structure(unittest.TestCase):
    def test_no_function_stands_in_two_reports(self):
        bodies = Counter(
            body for name in BEFORE for function, body in list_functions(f"reports.{name}") if body.count("\n") or function != "render"
        )
        self.assertEqual([body for body, times in bodies.items() if times > 1], [])

    def test_no_report_has_helpers_of_its_own(self):
        found = {name for name in BEFORE for function, _ in list_functions(f"reports.{name}") if function not in {"render", "lambda"}}
        self.assertEqual(found, set())

    def test_reports_are_short(self):
        paths = {name: Path(importlib.import_module(f"reports.{name}").__file__) for name in BEFORE}
        lines = {name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in paths.items()}
        self.assertEqual({name: size for name, size in lines.items() if size > 25}, {})

    def test_rows_stay_as_they_are(self):
        rows = draw(7)
        before = [dict(row) for row in rows]
        for name in BEFORE:
            importlib.import_module(f"reports.{name}").render(rows)
        self.assertEqual(rows, before)


if __name__ == "__main__":
    unittest.main()
