"""Figures as one JSON document."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from relay.insight.figures.values import Figures, LegFigures, PhaseFigures, RunFigures, Totals


def render_document(figures: Figures, *, skipped_lines: int = 0) -> Mapping[str, Any]:
    """Return all figures as JSON has them; what is derived stands beside what it is derived from.

    Args:
        skipped_lines: Lines of the logs that could not be read.
    """
    return {
        "totals": _render_totals(figures.totals),
        "runs": [_render_run(run) for run in figures.runs],
        "phases": [_render_phase(phase) for phase in figures.phases],
        "tools": [asdict(tool) for tool in figures.tools],
        "ticks": [asdict(tick) for tick in figures.ticks],
        "reviews": [asdict(review) for review in figures.reviews],
        "hand_offs": [asdict(step) for step in figures.hand_offs],
        "forecast": asdict(figures.forecast) if figures.forecast else None,
        "log": {**asdict(figures.log), "skipped_lines": skipped_lines},
    }


def _render_totals(totals: Totals) -> Mapping[str, Any]:
    return {
        **asdict(totals),
        "sources": dict(totals.sources),
        "prompt_tokens": totals.spent.usage.prompt_tokens,
        "cache_hit": totals.cache_hit,
        "decisions": totals.decisions,
        "usd_per_decision": totals.usd_per_decision,
        "decision_density": totals.decision_density,
    }


def _render_leg(leg: LegFigures) -> Mapping[str, Any]:
    return {**asdict(leg), "totals": _render_totals(leg.totals), "held": dict(leg.held)}


def _render_run(run: RunFigures) -> Mapping[str, Any]:
    return {
        **{name: getattr(run, name) for name in RunFigures.__dataclass_fields__},
        "totals": _render_totals(run.totals),
        "legs": [_render_leg(leg) for leg in run.legs],
    }


def _render_phase(phase: PhaseFigures) -> Mapping[str, Any]:
    work = {**asdict(phase.work), "drift": phase.work.drift}
    return {**asdict(phase), "totals": _render_totals(phase.totals), "work": work}
