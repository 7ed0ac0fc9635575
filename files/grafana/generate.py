"""Write the dashboards for Grafana from panels.py with Grafana's own typed SDK: `python -m files.grafana.generate`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from files.grafana.panels import BOARDS, Board, Panel

HERE = Path(__file__).resolve().parent
HEIGHT = 8
DATASOURCE = "klaster-prometheus"


def builders() -> Any:
    """The SDK is only needed here: neither the control machine nor a node has it."""
    from grafana_foundation_sdk.builders import bargauge, common, dashboard, prometheus, stat, table, timeseries
    from grafana_foundation_sdk.models import dashboard as models

    class Sdk:
        pass

    sdk: Any = Sdk()
    sdk.kinds = {"stat": stat, "time": timeseries, "table": table, "bars": bargauge, "matrix": table}
    sdk.common, sdk.dashboard, sdk.prometheus, sdk.models = common, dashboard, prometheus, models
    return sdk


def _panel(sdk: Any, panel: Panel) -> Any:
    instant = panel.kind in ("stat", "table", "matrix", "bars")
    query = sdk.prometheus.Dataquery().expr(panel.expr).ref_id("A").legend_format(panel.legend or "__auto")
    query = query.instant() if instant else query.range()
    if panel.kind in ("table", "matrix"):
        query = query.format("table")
    built = sdk.kinds[panel.kind].Panel().title(panel.title).unit(panel.unit).span(panel.width).height(HEIGHT)
    built = built.datasource(_source(sdk)).with_target(query)
    if panel.about:
        built = built.description(panel.about)
    if panel.kind == "time":
        built = built.fill_opacity(10).min(0) if panel.unit == "percentunit" else built.fill_opacity(10)
    if panel.kind == "matrix":
        options = {"columnField": "dst", "rowField": "src", "valueField": "Value"}
        built = built.with_transformation(sdk.models.DataTransformerConfig("groupingToMatrix", options=options))
    return built


def _source(sdk: Any) -> Any:
    return sdk.models.DataSourceRef("prometheus", DATASOURCE)


def board_json(board: Board) -> str:
    """One dashboard as the file that Grafana provisions."""
    from grafana_foundation_sdk.cog.encoder import JSONEncoder

    sdk = builders()
    built = sdk.dashboard.Dashboard(board.title).uid(board.uid).description(board.about).tags(["klaster"])
    built = built.refresh("30s").time("now-6h", "now").readonly()
    if board.by_node:
        variable = sdk.dashboard.QueryVariable("node").label("Node").datasource(_source(sdk))
        variable = variable.query("label_values(node_uname_info, node)").multi(True).include_all(True).all_value(".*")
        built = built.with_variable(variable)
    for panel in board.panels:
        built = built.with_panel(_panel(sdk, panel))
    return JSONEncoder(sort_keys=True, indent=1).encode(built.build()) + "\n"


def path_of(board: Board) -> Path:
    return HERE / "dashboards" / f"{board.uid}.json"


def main() -> None:
    (HERE / "dashboards").mkdir(exist_ok=True)
    for board in BOARDS:
        path_of(board).write_text(board_json(board), encoding="utf-8")


if __name__ == "__main__":
    main()
