"""A forge in a program: `gh` or `glab`, as it is called; what it knows and was told stands in FORGE_STATE (JSON).

`fails` there names words whose calls end with an error; `answers` has what it prints for a call that has a word.
"""

import json
import os
import sys
from pathlib import Path

FILE = Path(os.environ["FORGE_STATE"])


def call(words, state):
    """Return what the program prints."""
    if any(word in " ".join(words) for word in state.get("fails", ())):
        sys.stderr.write("no: \x1b[31mprotected\n")
        raise SystemExit(1)
    text = sys.stdin.read()
    state.setdefault("calls", []).append({"words": words, "input": text})
    for word, answer in state.get("answers", {}).items():
        if word in " ".join(words):
            return answer if isinstance(answer, str) else json.dumps(answer)
    if words[1] == "create":
        branch = words[words.index("--head" if "--head" in words else "--source-branch") + 1]
        number = 6 + sum(one["words"][1] == "create" for one in state["calls"])
        state.setdefault("requests", {})[branch] = {"number": number, "state": "open"}
        return f"https://forge.example/{number}"
    if words[1] == "view" and "comments" not in words:
        rows = state.get("requests", {}).items()
        if not (found := [row for row in rows if words[2] in {row[0], str(row[1]["number"])}]):
            raise SystemExit(1)
        branch, one = found[0]
        there = {"number": one["number"], "state": one["state"].upper(), "headRefName": branch}
        if words[0] == "mr":
            there = {"iid": one["number"], "state": one["state"], "source_branch": branch}
        return json.dumps(there)
    return comment(words, text, state)


def comment(words, text, state):
    """Keep comments: gh lists them with the request, glab by its API."""
    listed = state.setdefault("comments", [])
    if "POST" in words:
        listed.append({"id": 100 + len(listed), "body": text, "own": True})
    elif set(words) & {"PATCH", "PUT"}:
        number = int(next(word for word in words if "/" in word).rpartition("/")[2])
        next(one for one in listed if one["id"] == number)["body"] = text
    elif words[:2] == ["api", "user"]:
        return json.dumps({"id": 5})
    elif words[0] == "api":
        return json.dumps(
            [{"id": one["id"], "body": one["body"], "author": {"id": 5 if one["own"] else 6}} for one in listed]
        )
    elif "comments" in words:
        rows = [
            {
                "body": one["body"],
                "viewerDidAuthor": one["own"],
                "url": f"https://h/o/r/pull/7#issuecomment-{one['id']}",
            }
            for one in listed
        ]
        return json.dumps({"comments": rows})
    return ""


if __name__ == "__main__":
    state = json.loads(FILE.read_text()) if FILE.exists() else {}
    try:
        sys.stdout.write(call(sys.argv[1:], state))
    finally:
        FILE.write_text(json.dumps(state))
