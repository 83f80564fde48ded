import unittest

from reports import invoices, ledger, summary

ROWS = [
    {"name": "Ann", "date": "2026-01-02", "cents": 12_345},
    {"name": "Bob", "date": "2025-11-30", "cents": 678},
]


class Reports(unittest.TestCase):
    def test_invoices(self) -> None:
        self.assertEqual(
            invoices.render(ROWS).splitlines()[2:],
            [
                "Ann                      02.01.2026         146.91",
                "Bob                      30.11.2025           8.07",
                "Total                               " + "        154.98",
            ],
        )

    def test_ledger_by_date(self) -> None:
        self.assertEqual([line[:3] for line in ledger.render(ROWS).splitlines()[2:]], ["Bob", "Ann", "Tot"])

    def test_summary_has_large_items_alone(self) -> None:
        self.assertEqual(len(summary.render(ROWS).splitlines()), 4)
