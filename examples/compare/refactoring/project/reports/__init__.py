"""Reports of entries: `reports.NAME.render(rows)` returns a table as text. A row has name, date and cents."""
