r"""Make relay's copy of gitleaks' rules from its rule file.

    python -m tests.secrets.gitleaks <config/gitleaks.toml of github.com/gitleaks/gitleaks> <its LICENSE> <its commit>

Taken are the rules that know a token by its form. Those that go by a vendor's name near any value are not: on source
code they are mostly wrong, and what is found stops a commit. RE2's syntax becomes Python's: a flag in the middle holds
for the rest of its group, ``\z`` is ``\Z``, ``[[:alnum:]]`` is spelled out; Unicode classes are ASCII's (`re.ASCII`).
"""

import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parents[2] / "relay/base/gitleaks.json"
CONTEXT = "(?:=|>|:{1,3}=|"
"""In every rule that looks for a name, an operator and a value."""
END = r"""(?:[\x60'"\s;]|\\[nr]|$)"""
BEGIN = r"(?:\b|(?<=\\[nrt]))"
"""A token may stand behind the line end of a text in JSON, of which the last character is a letter."""
LEFT_OUT = frozenset({
    # Not a form, or one that many other texts have too.
    "artifactory-reference-token", "curl-auth-header", "curl-auth-user", "facebook-access-token", "freemius-secret-key",
    "generic-api-key", "kubernetes-secret-yaml", "nuget-config-password", "pkcs12-file", "sourcegraph-access-token",
    # Public by design.
    "flutterwave-public-key",
    # relay has stricter ones of its own, which are linear.
    "aws-access-token", "gcp-api-key", "jwt", "jwt-base64", "private-key", "twilio-api-key", "vault-service-token",
})  # fmt: skip
FLAG = "(?i)"


_PIECE = re.compile(r"\\.|\[(?:\\.|[^\]])*\]|[()|]|[^\\\[()|]+", re.DOTALL)


def scope_flags(pattern: str) -> str:
    """Return a pattern in which each flag of the middle holds for a group of its own, up to the end of its group."""
    at = pattern.find(FLAG, 1)
    if at < 0:
        return pattern
    depth, end = 0, at + len(FLAG)
    for piece in _PIECE.finditer(pattern, end):
        depth += (piece[0] == "(") - (piece[0] == ")")
        if depth < 0:
            break
        if piece[0] == "|" and not depth:
            raise ValueError(pattern)  # the flag would hold for the next alternative as well
        end = piece.end()
    return scope_flags(f"{pattern[:at]}(?i:{pattern[at + len(FLAG) : end]}){pattern[end:]}")


def is_distinct(keyword: str) -> bool:
    """Return whether a text with this keyword in it is no accident, whatever stands before it."""
    return len(keyword) >= 4 and bool(re.search(r"[_.~-]", keyword))


def find_edges(pattern: str) -> str:
    """Return a pattern that takes in nothing beside the token, and finds it behind a line end that JSON writes."""
    pattern = re.sub(r"^(\(\?i\))?\\b", lambda found: f"{found[1] or ''}{BEGIN}", pattern)
    pattern = re.sub(r"^\(\?:\^\|(\[.*?\])\)", lambda found: rf"(?:^|(?<={found[1]})|(?<=\\[nrt]))", pattern)
    pattern = pattern.replace(END.replace("$)", r"$|\b)"), r"\b")
    return re.sub(r"\(\?:(\$\|\[[^\]]*\]|\[\^[^\]]*\]\|\\[zZ])\)$", r"(?=\1)", pattern)


def convert(rule: dict[str, Any]) -> dict[str, Any]:
    """Return one rule in the form of the data file."""
    pattern, keywords = rule["regex"], rule["keywords"]
    # A token may stand before a comma or a bracket, and one that is distinct behind a letter.
    if all(map(is_distinct, keywords)):
        pattern = pattern.replace(END, "")
        pattern = re.sub(r"^(\(\?i\))?\\b", r"\1", pattern)
    else:
        pattern = pattern.replace(END, "(?![A-Za-z0-9_])")
    pattern = find_edges(pattern)
    pattern = scope_flags(pattern.replace(r"\z", r"\Z").replace("[:alnum:]", "A-Za-z0-9"))
    re.compile(pattern, re.ASCII)
    return {"id": rule["id"], "keywords": keywords, "entropy": rule.get("entropy", 0), "pattern": pattern}


def main(rules: Path, licence: Path, commit: str) -> None:
    """Write the data file."""
    found = tomllib.loads(rules.read_text(encoding="utf-8"))["rules"]
    forms = [rule for rule in found if CONTEXT not in rule.get("regex", "") and rule["id"] not in LEFT_OUT]
    data = {
        "source": f"gitleaks/gitleaks {commit}, config/gitleaks.toml, by tests/secrets/gitleaks.py",
        "licence": licence.read_text(encoding="utf-8").splitlines(),
        "rules": [convert(rule) for rule in forms],
    }
    TARGET.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
