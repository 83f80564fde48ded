"""Print the records on standard input that match a filter."""

import json
import sys

from filters import FilterError
from filters.evaluate import evaluate
from filters.parser import parse


def main() -> int:
    if len(sys.argv) != 2:
        print("usage: python3 -m filters FILTER < records.jsonl", file=sys.stderr)
        return 2
    try:
        tree = parse(sys.argv[1])
    except FilterError as error:
        print(error, file=sys.stderr)
        return 2
    for line in sys.stdin:
        if line.strip() and evaluate(tree, json.loads(line)) is True:
            print(line.rstrip("\n"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
