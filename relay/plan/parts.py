"""A plan as its phases and what stands between them: what is compared when one is another one changed. Pure."""

from collections.abc import Iterator

from relay.base.values import dataclass
from relay.plan.model import Phase, Plan
from relay.plan.outline import Outline, Section, find_extents

BLANK = " \t\r\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanPart:
    """A phase, or the text between two."""

    phase: Phase | None
    """None for the text between."""
    sections: tuple[Section, ...]
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A plan that is compared with another one, cut into its parts."""

    plan: Plan
    masked: str
    """The text with every box open."""
    parts: tuple[PlanPart, ...]

    @property
    def outline(self) -> Outline:
        """What the plan was cut into."""
        return self.plan.outline

    def cut(self, part: PlanPart | Section) -> str:
        """Return the text of a part, or of one of its sections, with every box open."""
        return self.masked[part.start : part.end]


def make_side(plan: Plan) -> Side:
    """Cut a plan into its parts."""
    outline = plan.outline
    marks = [box.mark for section in outline.sections for box in section.boxes]
    return Side(plan=plan, masked=outline.lines.put(marks, " ").text, parts=tuple(_cut(plan)))


def _cut(plan: Plan) -> Iterator[PlanPart]:
    outline, done = plan.outline, 0
    for phase, extent in zip(plan.phases, find_extents(outline.sections), strict=True):
        if phase.start > done:
            yield PlanPart(phase=None, sections=(), start=done, end=phase.start)
        sections = outline.sections[extent.head : extent.stop]
        yield PlanPart(phase=phase, sections=sections, start=phase.start, end=phase.end)
        done = phase.end
    if done < len(outline.text):
        yield PlanPart(phase=None, sections=(), start=done, end=len(outline.text))


def find_key(side: Side, part: PlanPart) -> tuple[str, ...]:
    """Return what a part is recognised by; what of it may change is left out and checked later."""
    if part.phase is None:
        return ("text", side.cut(part))
    lasting = (section for at, section in enumerate(part.sections) if not at or not section.is_notes)
    return ("phase", str(len(part.phase.items)), *(side.cut(section).rstrip(BLANK) for section in lasting))
