"""Which phases can be worked on side by side."""

from hypothesis import given
from hypothesis import strategies as st

from relay.plan.parse import parse_plan
from relay.plan.waves import find_ready, find_waves


def make_plan(*phases):
    """Each phase is what it comes after, and what its one item names; a leading ``x`` means done."""
    texts = []
    for n, (after, *paths) in enumerate(phases, start=1):
        box = "x" if after.startswith("x") else " "
        words = f"After: {after.removeprefix('x') or 'none'}\n"
        texts.append(f"## Phase {n} — t\n{words}- [{box}] do {n} — {', '.join(paths) or f'own{n}.py'}\n")
    return parse_plan("# P\n\n" + "\n".join(texts))


DIAMOND = make_plan(("",), ("1",), ("1",), ("2, 3",))


def test_waves_and_what_side_by_side_saves():
    found = find_waves(DIAMOND, {"1": 2, "2": 1, "3": 5, "4": 1})
    assert found.waves == (("1",), ("2", "3"), ("4",))
    assert (found.serial, found.parallel, found.jobs, found.widest) == (9, 8, 2, 2)
    assert found.shared == ()
    beside = make_plan(("", "a/b.py"), ("", "a/c.py"), ("", "a/"))
    assert find_waves(beside, {"1": 5}).parallel == 6


def test_fewer_places_than_phases():
    """Four that wait for nothing, two at a time."""
    plan = make_plan(("",), ("",), ("",), ("",))
    assert find_waves(plan, {}).parallel == 1
    assert find_waves(plan, {}, jobs=2).parallel == 2
    assert find_waves(plan, {}, jobs=9).jobs == 4


SHARED = [  # what each of two phases names, and what they share
    ("app/web.py", "app/web.py", "app/web.py"),
    ("app/", "app/web.py", "app"),
    ("app/web.py", "app/", "app"),
    ("app/web.py", "./app//web.py", "app/web.py"),
    ("app/web.py", "app/webs.py", ""),
    ("app/a/", "app/b/", ""),
    ("./", "./", ""),
]


def test_phases_that_name_the_same_path_are_not_side_by_side():
    wrong = []
    for one, other, path in SHARED:
        plan = make_plan(("", one), ("", other))
        found, ready = find_waves(plan, {}), [p.id for p in find_ready(plan, {"1"})]
        read = [(s.path, s.phase_ids) for s in found.shared], found.waves, ready
        apart = [(path, ("1", "2"))], (("1",), ("2",)), list[str]()
        wrong += [(one, other, read)] if read != (apart if path else ([], (("1", "2"),), ["2"])) else []
    assert wrong == []


def test_files_of_one_name_in_two_packages_are_two_files():
    text = "# P\n\n" + "".join(
        f"## Phase {n}\nAfter: none\nIn: {folder}\n- [ ] x — {path}\n"
        for n, (folder, path) in enumerate([("api", "a.py"), ("./web/", "a.py"), ("web", "web/a.py"), (".", "a.py")], 1)
    )
    found = find_waves(parse_plan(text), {})
    assert found.waves == (("1", "2", "4"), ("3",))
    assert [(one.path, one.phase_ids) for one in found.shared] == [("web/a.py", ("2", "3"))]
    assert [phase.id for phase in find_ready(parse_plan(text), ["2"])] == ["1", "4"]


def test_what_waits_anyway_is_not_said_to_share():
    """1 and 3 share a path and are in order; 2 and 3 are not."""
    found = find_waves(make_plan(("", "a.py"), ("", "b.py"), ("1", "a.py", "b.py")), {"2": 2})
    assert [(s.path, s.phase_ids) for s in found.shared] == [("b.py", ("2", "3"))]


def test_a_finished_phase_does_not_end_the_default_order():
    """What comes after a finished phase by default waits as that one did; `After: none` waits for nothing."""
    plan = parse_plan(
        "# P\n"
        + "".join(
            f"## {t}\n{a}- [{b}] do\n"
            for t, a, b in (
                ("Build", "", " "),
                ("Old", "", "x"),
                ("Older", "", "x"),
                ("Ship", "", " "),
                ("Docs", "After: none\n", " "),
                ("Site", "After: 9\n", "x"),
                ("Live", "", " "),
            )
        )
    )
    assert plan.find_waits() == {"1": (), "2": ("1",), "3": ("1",), "4": ("1",), "5": (), "6": ("9",), "7": ("9",)}
    assert [phase.id for phase in find_ready(plan, ())] == ["1", "5"]
    assert find_ready(plan, {"1", "5"}) == ()
    assert find_waves(plan, {}).waves == (("1", "5"), ("4",))
    assert plan.tick(["1.1"]).find_waits()["4"] == ()


def test_circles_and_phases_that_there_are_not_are_in_no_wave():
    plan = make_plan(("",), ("3",), ("2",), ("9",))
    assert find_waves(plan, {}).waves == (("1",),)
    assert [p.id for p in find_ready(plan, ())] == ["1"]
    assert find_waves(make_plan(("x",)), {}).widest == 0


NAMES = st.lists(st.sampled_from(["a/", "a/b.py", "a/c.py", "d.py", "e/f/g.py", "e/"]), max_size=2)


@st.composite
def plans(draw):
    phases = []
    for n in range(1, draw(st.integers(1, 7)) + 1):
        after = draw(st.sets(st.integers(1, n - 1), max_size=2)) if n > 1 else set()
        phases.append((", ".join(map(str, sorted(after))), *draw(NAMES)))
    return make_plan(*phases)


@given(plans(), st.integers(0, 4))
def test_every_phase_is_in_one_wave_behind_those_it_waits_for(plan, jobs):
    found = find_waves(plan, {}, jobs=jobs)
    level = {phase_id: n for n, wave in enumerate(found.waves) for phase_id in wave}
    assert sorted(level) == sorted(phase.id for phase in plan.phases)
    assert all(level[a] < level[phase.id] for phase in plan.phases for a in phase.after)
    for wave in found.waves:  # whoever of a wave is at work keeps nobody of it from starting
        done = plan.tick([i.id for p in plan.phases if level[p.id] < level[wave[0]] for i in p.items])
        assert all(set(wave) <= {one, *(p.id for p in find_ready(done, {one}))} for one in wave)
    assert len(found.waves) <= found.parallel <= found.serial == len(plan.phases)
