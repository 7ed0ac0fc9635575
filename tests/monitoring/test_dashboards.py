"""The dashboards are what the table says, and ask only for what somebody exports."""

from __future__ import annotations

import json
import re

from files.grafana.generate import board_json, path_of
from files.grafana.panels import BOARDS


def test_generated_dashboards_are_fresh() -> None:
    """Each file is what Grafana's SDK makes of the table; refresh: python -m files.grafana.generate."""
    for board in BOARDS:
        assert path_of(board).read_text(encoding="utf-8") == board_json(board)


def test_every_panel_is_in_its_dashboard() -> None:
    """Titles and queries arrive in Grafana's format, with the provisioned data source, side by side and not on top."""
    for board in BOARDS:
        document = json.loads(board_json(board))
        shown = {(panel["title"], panel["targets"][0]["expr"]) for panel in document["panels"]}
        assert shown == {(panel.title, panel.expr) for panel in board.panels}
        assert {panel["datasource"]["uid"] for panel in document["panels"]} == {"klaster-prometheus"}
        places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in document["panels"]]
        assert len(set(places)) == len(places)


def test_identifiers_are_unique_and_choices_are_declared() -> None:
    """A dashboard that uses $node has that choice, and no other has."""
    assert len({board.uid for board in BOARDS}) == len(BOARDS)
    for board in BOARDS:
        uses = any("$node" in panel.expr for panel in board.panels)
        assert uses == board.by_node
        assert bool(re.search(r'"name": "node"', board_json(board))) == board.by_node
