"""The report as one HTML page that needs nothing else: styles, data, charts and the code that draws them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import date
from functools import lru_cache
from importlib.resources import files
from typing import Any

import vl_convert
from altair import SCHEMA_VERSION
from jinja2 import Environment
from markupsafe import Markup

from descant.experiment.table import noted
from descant.report.figure import Chart, Figure
from descant.report.gather import Experiment
from descant.report.harm import harmed, newcomers
from descant.report.look import DARK, LIGHT, VARIABLES, Style, config
from descant.report.tables import (
    RULES,
    all_figures,
    differences,
    full_settings,
    notices,
    overview,
    summary_rows,
    worst_served,
)
from descant.version import __version__


def render(
    title: str,
    experiments: Sequence[Experiment],
    figures: Mapping[str, Sequence[Figure]],
    styles: Mapping[str, Style],
    first: int = 0,
    verdicts: Mapping[str, str] | None = None,
    closing: Sequence[str] = (),
) -> str:
    """The page of some experiments; `figures` and `verdicts` by the experiment's key; `closing` are commands."""
    specs: dict[str, Any] = {}
    sections = [_section(e, figures[e.key], styles, specs, first) for e in experiments]
    for experiment, section in zip(experiments, sections, strict=True):
        section["verdict"] = (verdicts or {}).get(experiment.key)
    runs = sum(len(entry.runs) for experiment in experiments for entry in experiment.entries)
    return filled(title, sections, specs, runs, closing)


def filled(
    title: str,
    sections: Sequence[Mapping[str, Any]],
    specs: Mapping[str, Any],
    runs: int = 0,
    closing: Sequence[str] = (),
) -> str:
    """The page of some sections, which name their charts among the `specs` (`placed`), on `runs` runs, if any."""
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    text = environment.from_string(_resource("page.html")).render(
        title=title,
        runs=runs,
        version=__version__,
        date=date.today().isoformat(),
        sections=sections,
        closing=closing,
        rules=RULES,
        light=LIGHT,
        dark=DARK,
        css=Markup(_resource("page.css")),
        specs=_json(specs),
        bundle=_code(_bundle()),
        script=_code(_resource("page.js")),
    )
    return text


def figures_page(title: str, heading: str, about: str, figures: Sequence[Figure], key: str) -> str:
    """A page of figures alone, with their captions."""
    specs: dict[str, Any] = {}
    section: dict[str, Any] = {"key": key, "title": heading, "facts": about, "tables": {}, "overviews": {}}
    section["figures"] = [placed(key, figure, specs) for figure in figures]
    return filled(title, [section], specs)


def _section(
    experiment: Experiment,
    figures: Sequence[Figure],
    styles: Mapping[str, Style],
    specs: dict[str, Any],
    first: int,
) -> dict[str, Any]:
    found = summary_rows(experiment, first)
    model, runs = experiment.model, [run for entry in experiment.entries for run in entry.runs]
    rules = [experiment.rule, *(rule for rule in RULES if rule != experiment.rule)]
    shown = [rule for rule in rules if any(f"{model}.round@{rule}" in row.mean for row in found)]
    return {
        "key": experiment.key,
        "title": experiment.title,
        "facts": facts(*(run.config for run in runs)),
        "notices": notices(experiment, found),
        "tables": {},
        "overviews": {
            rule: (overview(experiment, found, rule), overview(experiment, found, rule, True)) for rule in shown
        },
        "legend": legend(styles, [entry.label for entry in experiment.entries]),
        "figures": [placed(experiment.key, figure, specs) for figure in figures],
        "harmed": harmed(experiment, found),
        "newcomers": newcomers(experiment, found),
        "worst": worst_served(experiment),
        "all_figures": all_figures(found),
        "differences": differences(experiment),
        "settings": {entry.label: full_settings(entry) for entry in experiment.entries},
    }


def facts(*configs: Mapping[str, Any]) -> str:
    """What runs are on: the clients and how data were dealt to them, the model, the loss and the metric.

    And what is noted of the data of any run: every seed may have dealt them anew.
    """
    data, task = configs[0]["data"], configs[0].get("task")
    said = f"{data['clients']:,} clients{_told(data['settings'])}"
    if task is not None:  # which a run that was made by hand need not have
        said += f"; a model of {task['parameters']:,} parameters; loss {task['loss']}, metric {task['metric']}"
    of_all = [note for note in noted(configs) if all(note in c["data"].get("notes", ()) for c in configs)]
    of_some = [note for note in noted(configs) if note not in of_all]
    head = ["Of some runs, not of all:"] if of_some else []
    return " ".join([f"{said}.", *(f"{note}." for note in of_all), *head, *(f"{note}." for note in of_some)])


def _told(settings: Mapping[str, Any]) -> str:
    """Settings in parentheses, as a file writes them; what is nothing, said elsewhere or too long is left out."""
    left_out = ("seed", "clients", "features")
    told = [f"{k} {_written(v)}" for k, v in settings.items() if k not in left_out and v is not None]
    return f" ({', '.join(told)})" if told else ""


def _written(value: Any) -> str:
    if isinstance(value, Mapping):  # a part: its name, and its own settings
        own = {key: item for key, item in value.items() if key != "name"}
        return f"{value.get('name', '')}{_told(own)}".strip()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_written, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def legend(styles: Mapping[str, Style], labels: Sequence[str]) -> dict[str, Style]:
    """The buttons of the methods, in CSS colours."""
    found = {label: styles[label] for label in labels}
    return {label: Style(VARIABLES[style.colour], style.dash, style.shape) for label, style in found.items()}


def placed(section: str, figure: Figure, specs: dict[str, Any]) -> dict[str, Any]:
    """A figure's place in a section of the page, and its panels among the specs."""
    drawn = {f"{section}-{figure.key}-{i}": _spec(panel) for i, panel in enumerate(figure.panels)}
    specs |= drawn
    panels = []
    for name, spec in drawn.items():
        title = _title(spec)
        # A small panel is one method's, and named by it.
        panels.append({"name": name, "title": title, "of": title if figure.small else None})
    return vars(figure) | {"panels": panels}


def _title(spec: dict[str, Any]) -> str | None:
    """The title of a panel, taken out of it: the page writes it above, where a long one breaks into lines."""
    given = spec.pop("title", None)
    text = given["text"] if isinstance(given, dict) else given
    return None if text is None else str(text)


def _spec(panel: Chart) -> dict[str, Any]:
    """A panel as Vega-Lite, as wide as its place, in CSS colours, without what the page's own legend hides."""
    # Every part was checked against the schema when it was made; the whole takes as long as the rest of the page.
    spec: dict[str, Any] = panel.properties(config=config()).to_dict(validate=False)
    spec |= {"width": "container", "autosize": {"type": "fit-x", "contains": "padding"}}
    spec["config"]["legend"] = {"disable": True}
    if _methods(spec):
        spec["params"] = [*spec.get("params", []), {"name": "hidden", "value": []}]
        spec["transform"] = [{"filter": "indexof(hidden, datum.method) < 0"}, *spec.get("transform", [])]
    painted: dict[str, Any] = _painted(spec)
    return painted


def _methods(spec: Mapping[str, Any]) -> bool:
    """Whether a panel's data is by method."""
    rows = spec.get("datasets", {}).get(spec.get("data", {}).get("name"), [])
    return bool(rows) and "method" in rows[0]


def _painted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: item if key == "datasets" else _painted(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_painted(item) for item in value]
    return VARIABLES.get(value, value) if isinstance(value, str) else value


@lru_cache(maxsize=1)
def _bundle() -> str:
    """Vega, Vega-Lite and Vega-Embed, as the installed vl-convert carries them."""
    major, minor = SCHEMA_VERSION.removeprefix("v").split(".")[:2]
    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", f"{major}.{minor}")


def _code(text: str) -> Markup:
    """Code that may stand in a script element: a string in it cannot end the element."""
    return Markup(re.sub(r"</(script)", r"<\\/\1", text, flags=re.IGNORECASE))


def _json(value: Any) -> Markup:
    """Data that may stand in a script element, whatever names people give their clients."""
    return Markup(json.dumps(value, separators=(",", ":")).replace("<", "\\u003c"))


def _resource(name: str) -> str:
    return (files("descant.report") / name).read_text(encoding="utf-8")
