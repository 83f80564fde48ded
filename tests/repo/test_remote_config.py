"""What of a repository's configuration a fetch and a push obey, key by key, and what of the user's."""

import base64
import contextlib
import re
import shutil
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from relay.git.config_guard import read_config
from relay.git.remote import PushEnd, RefUpdate, Remote, RemoteError, find_inside, open_config
from relay.git.repository import open_repo
from tests.effort import NIGHTLY, take_each
from tests.repo.conftest import Box

MINE = "refs/relay/claims/plan/phase/1"
SSH = "ssh://nowhere.invalid/x"


@dataclass
class World:
    """A repository with a remote beside it, a server, and what an attacker wants to happen."""

    box: object
    away: Path
    url: str
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    @property
    def marker(self):
        return self.away.parent / "ran"

    @property
    def kept(self):
        return self.away.parent / "kept"

    def fill(self, text):
        evil, here = self.away.parent / "evil.sh", self.away.parent
        return text.format(evil=evil, url=self.url, away=self.away, kept=self.kept, here=here)

    def forget(self):
        """Undo the harm that git did."""
        self.marker.unlink(missing_ok=True)
        self.kept.write_text("mine\n")
        self.requests.clear()

    def list_harm(self):
        """Say what has happened that must not."""
        harm = ["a program ran"] if self.marker.exists() else []
        harm += ["a file was written"] if self.kept.read_text() != "mine\n" else []
        harm += ["something was sent elsewhere"] if any(path.startswith("http:") for path, _ in self.requests) else []
        harm += [f"made {path.name}" for path in self.away.parent.glob("made-*")]
        return harm


@pytest.fixture
def world(box, tmp_path):
    (tmp_path / "beside").mkdir()
    away = tmp_path / "beside" / "away.git"
    box.git("clone", "-q", "--bare", str(box.root), str(away))
    box.git("remote", "add", "origin", str(away))
    requests = []

    class Locked(BaseHTTPRequestHandler):
        """Asks for a password, and hands out a cookie; asked by a proxy's words, it is the proxy."""

        def do_GET(self):
            requests.append((self.path, dict(self.headers)))
            is_open = self.path.startswith("/open/")
            self.send_response(200 if is_open else 401)
            self.send_header("WWW-Authenticate", "Basic realm=x")
            self.send_header("Set-Cookie", "a=b; Max-Age=9999")
            self.end_headers()
            self.wfile.write(f"{'0' * 39}1\trefs/heads/main\n".encode() if is_open else b"")

        do_CONNECT = do_GET  # noqa: N815  # the library's name

        def log_message(self, *_args):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Locked) as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        found = World(box, away, f"http://127.0.0.1:{server.server_port}", requests)
        found.kept.write_text("mine\n")
        evil = away.parent / "evil.sh"
        evil.write_text(f"#!/bin/sh\necho $0 $* >> {found.marker}\nexit 1\n")
        evil.chmod(0o755)
        hooks = away.parent / "hooks"
        hooks.mkdir()
        for name in ("pre-push", "reference-transaction", "post-rewrite", "pre-auto-gc"):
            (hooks / name).symlink_to(evil)
        yield found
        server.shutdown()


def speak(world, name):
    """Do with relay's remote all that it can do."""
    remote = Remote(repo=world.box.open(), name=name, environ=world.box.environ)
    head = world.box.text("rev-parse", "HEAD")
    for act in (
        lambda: remote.list_refs("refs/*"),
        lambda: remote.fetch("+refs/heads/*:refs/remotes/x/*"),
        lambda: remote.push(RefUpdate(ref=MINE, old=None, new=head)),
    ):
        with contextlib.suppress(RemoteError):
            act()


def speak_as_git(world, name):
    """Do the same as the user at the keyboard."""
    for words in (
        ("ls-remote", name),
        ("fetch", name, "+refs/heads/*:refs/remotes/y/*"),
        ("push", name, "HEAD:refs/x"),
    ):
        world.box.git(*words, check=False)


AWAY, WEB, ELSEWHERE = "origin", "{url}/x", "http://nowhere.invalid/x"
OBEYED = {
    "core.alternateRefsCommand": ("{evil}", AWAY),
    "core.sshCommand": ("{evil}", SSH),
    "core.askPass": ("{evil}", WEB),
    "core.gitProxy": ("{evil}", "git://nowhere.invalid/x"),
    "core.hooksPath": ("{here}/hooks", AWAY),
    "credential.helper": ("{evil}", WEB),
    "credential.{url}.helper": ("{evil}", WEB),
    "remote.origin.uploadpack": ("{evil}", AWAY),
    "remote.origin.receivepack": ("{evil}", AWAY),
    "http.proxy": ("{url}", ELSEWHERE),
    "http.http://nowhere.invalid/.proxy": ("{url}", ELSEWHERE),
    "http.cookieFile": ("{kept}", "{url}/open"),
    "http.{url}.cookieFile": ("{kept}", "{url}/open"),
}
"""What git does at a remote for whoever sets it in a repository: value, and remote."""


def set_keys(world, values):
    """Write keys into the repository's configuration at once, without a git for each."""
    with (world.box.root / ".git/config").open("a") as file:
        for key, value in values.items():
            section, _, rest = world.fill(key).partition(".")
            part, _, name = rest.rpartition(".")
            file.write(f'[{section} "{part}"]\n\t{name} = "{world.fill(value)}"\n'.replace(' ""]', "]"))


@pytest.fixture
def borrowed(world):
    """Objects of another repository, whose refs `core.alternateRefsCommand` lists."""
    other = world.away.parent / "other.git"
    world.box.git("clone", "-q", "--bare", str(world.box.root), str(other))
    (world.box.root / ".git/objects/info/alternates").write_text(f"{other}/objects\n")
    world.box.git("config", "http.saveCookies", "true")


@pytest.mark.usefixtures("borrowed")
@pytest.mark.parametrize("keys", [(key,) for key in OBEYED] if NIGHTLY else [tuple(OBEYED)])
def test_what_git_itself_obeys_is_not_obeyed(world, keys):
    """At each remote git obeys one of them at least, in the night each alone; relay obeys none."""
    set_keys(world, {key: OBEYED[key][0] for key in keys})
    for name in dict.fromkeys(world.fill(OBEYED[key][1]) for key in keys):
        speak_as_git(world, name)
        assert world.list_harm(), name
        world.forget()
        speak(world, name)
        assert world.list_harm() == [], name


def test_of_all_keys_that_git_knows_those_are_seen_that_are_allowed(world):
    known = world.box.git("help", "--config").decode().splitlines()
    keys = [re.sub(r"<[^>]*>|\*", "x", key) for key in known if re.fullmatch(r"[a-z].*\.([A-Za-z]\w*|\*)", key)]
    repo, config = world.box.open(), world.box.root / ".git/config"
    before = config.read_bytes()
    for key in sorted({*keys} - {"core.worktree", "core.bare", "gitweb.remote_heads"}):
        section, _, rest = key.partition(".")
        part, _, name = rest.rpartition(".")
        if section.lower() not in {"extensions", "include", "includeif"} and name.lower() != "repositoryformatversion":
            config.write_bytes(config.read_bytes() + f'[{section} "{part}"]\n{name} = 1\n'.replace(' ""', "").encode())
    assert len(config.read_bytes()) > 10 * len(before)
    assert {key for key in list_seen(repo) if not key.startswith("remote.origin.")} == {
        "core.compression", "core.filemode", "core.ignorecase", "core.logallrefupdates", "core.loosecompression",
        "core.precomposeunicode", "core.repositoryformatversion", "core.sharedrepository", "credential.username",
        "http.extraheader", "http.lowspeedlimit", "http.lowspeedtime", "http.postbuffer",
        "http.version", "protocol.version", "remote.x.fetch", "remote.x.partialclonefilter", "remote.x.promisor",
        "remote.x.pushurl", "remote.x.url", "url.x.insteadof", "user.email", "user.name",
    }  # fmt: skip


def list_seen(repo, scope=b"local"):
    """Return what git sees of a scope where it speaks to remotes: values by key."""
    with open_config(repo, read_config(repo)) as places:
        git = replace(repo.git, flags=(), env={**repo.git.env, **places})
        rows = git.run("config", "--list", "-z", "--show-scope").split(b"\0")
    found: dict[str, list[str | None]] = {}
    for seen, entry in zip(rows[0::2], rows[1::2], strict=False):
        key, end, value = entry.decode().partition("\n")
        if seen == scope:
            found.setdefault(key, []).append(value if end else None)
    return found


ODD = 'a "b" \\ # ; \t é\n  c '


def test_what_the_user_set_is_seen_as_they_set_it(box):
    """For this place too, and in its order; the repository says what it may."""
    user = box.home / ".gitconfig"
    user.write_text(
        user.read_text() + f'[http]\n\tsslVerify\n[includeIf "gitdir:{box.root}/"]\n\tpath = {box.home}/work\n'
    )
    for key, value in (
        ("core.sshCommand", ODD), ("credential.https://a.b/?x=y.helper", ""), ("http.proxy", "http://proxy:1"),
        ("credential.https://a.b/?x=y.helper", "!gh auth git-credential"), ('url.odd "\\ base.insteadOf', "o:"),
    ):  # fmt: skip
        box.git("config", "--file", f"{box.home}/work", "--add", key, value)
    box.git("config", "http.proxy", "http://evil:1")
    box.git("config", "user.name", ODD.replace("\n", " "))
    box.git("config", "http.extraHeader", "one: 1\ntwo: 2")
    seen = list_seen(box.open(), b"global")
    assert seen["core.sshcommand"] == [ODD]
    assert seen["http.sslverify"] == [None]
    assert seen["http.proxy"] == ["http://proxy:1"]
    assert seen["credential.https://a.b/?x=y.helper"] == ["", "!gh auth git-credential"]
    assert seen['url.odd "\\ base.insteadof'] == ["o:"]
    assert {"http.proxy", "http.extraheader"}.isdisjoint(list_seen(box.open()))
    assert list_seen(box.open())["user.name"] == [ODD.replace("\n", " ")]


def test_the_users_helper_of_one_host_and_their_proxy_are_used(world):
    """As `gh auth setup-git` sets it."""
    user = world.box.home / ".gitconfig"
    user.write_text(
        f'{user.read_text()}[credential "{world.url}"]\n\thelper =\n\thelper = "!f() {{ test $1 != get ||'
        f" printf 'username=ada\\\\npassword=secret\\\\n'; }}; f\"\n"
        f'[http "http://nowhere.invalid/"]\n\tproxy = {world.url}\n'
    )
    speak(world, world.fill(WEB))
    sent = {headers.get("Authorization") for _, headers in world.requests}
    assert f"Basic {base64.b64encode(b'ada:secret').decode()}" in sent
    world.requests.clear()
    speak(world, ELSEWHERE)
    assert {path.partition("/x")[0] for path, _ in world.requests} == {"http://nowhere.invalid"}


def test_the_users_ssh_is_used_and_not_the_repositorys(world):
    ssh = world.away.parent / "my ssh"
    ssh.write_text('#!/bin/sh\nfor last; do :; done\neval "$last"\n')
    ssh.chmod(0o755)
    world.box.git("config", "core.sshCommand", world.fill("{evil}"))
    for given in ({"GIT_SSH": str(ssh)}, {"GIT_SSH_COMMAND": f"'{ssh}'"}, {}):
        if not given:
            world.box.git("config", "--global", "core.sshCommand", f"'{ssh}'")
        environ = {**world.box.environ, **given}
        remote = Remote(repo=world.box.open(), name=f"ssh://host{world.away}", environ=environ)
        assert remote.list_refs("refs/heads/*") == {"refs/heads/main": world.box.text("rev-parse", "HEAD")}, given
    assert world.list_harm() == []


def test_the_token_of_a_ci_job_is_sent_where_the_repository_says(world):
    """As actions/checkout keeps it, in a file that the repository includes."""
    token = world.box.home / "token"
    token.write_text(f'[http "{world.url}/"]\n\textraheader = X-Token: of the job\n')
    world.box.git("config", f"includeIf.gitdir:{world.box.root}/.git.path", str(token))
    world.box.git("config", f"url.{world.url}/.insteadOf", "forge:")
    speak(world, "forge:x")
    assert {headers.get("X-Token") for _, headers in world.requests} == {"of the job"}


def make_linked(box):
    box.git("worktree", "add", "-q", str(box.home / "linked"))
    return open_repo(box.home / "linked", box.environ)


def make_sha256(box):
    shutil.rmtree(box.root / ".git")
    box.git("init", "-q", "--object-format=sha256")
    box.commit()
    return box.open()


def make_worktree_config(box):
    box.git("config", "extensions.worktreeConfig", "true")
    box.git("config", "--worktree", "core.sshCommand", "false")
    return box.open()


def make_without_logs(box):
    shutil.rmtree(box.root / ".git/logs")
    return box.open()


@pytest.mark.parametrize(
    "make", take_each(2, [make_linked, Box.open, make_sha256, make_worktree_config, make_without_logs])
)
def test_refs_and_objects_go_where_the_repository_keeps_them(box, tmp_path, make):
    """Packed refs too, of which one goes; a branch that is checked out is left alone."""
    repo = make(box)
    away = tmp_path / "away.git"
    box.git("clone", "-q", "--bare", str(box.root), str(away))
    remote = Remote(repo=repo, name=str(away), environ=box.environ)
    tip = box.text("commit-tree", "-m", "new", "HEAD^{tree}")
    assert remote.push(RefUpdate(ref=MINE, old=None, new=tip)).end is PushEnd.DONE
    box.git("pack-refs", "--all")
    box.git("update-ref", "refs/relay/remote/old", tip)
    box.git("pack-refs", "--all")
    remote.fetch("+refs/relay/claims/*:refs/relay/remote/*")
    assert repo.list_refs("refs/relay/remote/") == {"refs/relay/remote/plan/phase/1": tip}
    with pytest.raises(RemoteError, match="checked out"):
        remote.fetch(f"+{MINE}:refs/heads/main")
    assert not list(box.root.glob(".git/**/*.lock"))


def test_what_a_shallow_clone_has_goes_on_from_there(box, tmp_path):
    box.commit("second")
    box.git("clone", "-q", "--depth=1", f"file://{box.root}", str(tmp_path / "shallow"))
    box.commit("third")
    repo = open_repo(tmp_path / "shallow", box.environ)
    Remote(repo=repo, name="origin", environ=box.environ).fetch("+refs/heads/main:refs/remotes/origin/main")
    assert box.text("rev-parse", "HEAD") == repo.find_commit("refs/remotes/origin/main")


INSIDE = ["evil.git", "evil", "./evil.git", "{root}/evil", "file://{root}/%65vil.git", "{root}/../{root.name}/evil",
          ".git", "{home}/link", "~/link", "file://{home}/link.git/../link", "{linked}/evil.git"]  # fmt: skip


def is_refused(act):
    try:
        act()
    except RemoteError as error:
        return "which the repository itself holds" in str(error)
    return False


def test_a_remote_that_the_repository_holds_is_refused(world):
    """Its hooks would run outside of the sandbox."""
    box = world.box
    linked = make_linked(box).root
    for place in (box.root / "evil.git", linked / "evil.git"):
        shutil.copytree(world.away, place)
        (place / "hooks").mkdir(exist_ok=True)
        (place / "hooks/pre-receive").symlink_to(world.fill("{evil}"))
    (box.home / "link").symlink_to(box.root / "evil.git")
    head = box.text("rev-parse", "HEAD")
    for address in INSIDE:
        box.git("config", "remote.origin.url", address.format(root=box.root, home=box.home, linked=linked))
        remote = Remote(repo=box.open(), name="origin", environ=box.environ)
        assert is_refused(remote.list_refs), address
        assert is_refused(lambda remote=remote: remote.push(RefUpdate(ref=MINE, old=None, new=head))), address
    assert is_refused(Remote(repo=box.open(), name=str(linked / "evil.git"), environ=box.environ).list_refs)
    for address in ("../away.git", "host:evil.git", "ssh://host/{root}", "https://host/{root}", "{root}x"):
        assert find_inside(box.open(), address.format(root=box.root)) is None, address
    assert world.list_harm() == []


def test_each_address_of_a_push_is_looked_at(world):
    for url in (str(world.away), "evil.git"):
        world.box.git("config", "--add", "remote.origin.pushurl", url)
    remote = Remote(repo=world.box.open(), name="origin", environ=world.box.environ)
    head = world.box.text("rev-parse", "HEAD")
    assert is_refused(lambda: remote.push(RefUpdate(ref=MINE, old=None, new=head)))
    assert not world.box.git("ls-remote", str(world.away), MINE)
