"""The alerts: every one fires on its trouble and on nothing else, and has its page."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from files.monitoring.alerts import ALERTS, PAGE, RULES, page_text, rules_text
from tests.monitoring.promtool import run_promtool
from tests.monitoring.scenarios import HEALTHY, SCENARIOS, STEPS, Scenario

NODE = '="n1"'


def _is_local(scenario: Scenario) -> bool:
    """Only about one node: then it is played beside others, each on a node of its own."""
    return scenario.at == Scenario.at and bool(scenario.changes) and all(NODE in name for name in scenario.changes)


def _plays() -> list[dict[str, Any]]:
    local = [scenario for scenario in SCENARIOS if _is_local(scenario)]
    shared = {name: values for name, values in HEALTHY.items() if NODE not in name}
    expected: Counter[tuple[str, str]] = Counter()
    for number, scenario in enumerate(local):
        own = {name: values for name, values in {**HEALTHY, **scenario.changes}.items() if NODE in name and values}
        shared.update({name.replace(NODE, f'="s{number}"'): values for name, values in own.items()})
        expected.update((alert, f"s{number}") for alert in scenario.fires)
    alone = [_alone(scenario) for scenario in SCENARIOS if not _is_local(scenario)]
    return [_test("one trouble a node", shared, expected, Scenario.at), *alone]


def _alone(scenario: Scenario) -> dict[str, Any]:
    series = {name: values for name, values in {**HEALTHY, **scenario.changes}.items() if values}
    if scenario.at != Scenario.at:  # a long one
        series = {name: values.replace(f"x{STEPS}", f"x{5 * STEPS}") for name, values in series.items()}
    return _test(scenario.name, series, Counter((alert, "") for alert in scenario.fires), scenario.at)


def _test(name: str, series: dict[str, str], expected: Counter[tuple[str, str]], at: str) -> dict[str, Any]:
    by = "alertname, node" if any(node for _, node in expected) else "alertname"
    labels = {key: f'{{alertname="{key[0]}"' + (f', node="{key[1]}"' if key[1] else "") + "}" for key in expected}
    return {
        "name": name,
        "interval": "1m",
        "input_series": [{"series": series_name, "values": values} for series_name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": f'count by ({by}) (ALERTS{{alertstate="firing"}})',
                "eval_time": at,
                "exp_samples": [{"labels": labels[key], "value": count} for key, count in expected.items()],
            }
        ],
    }


def test_alerts_fire_when_they_should_and_only_then(tmp_path: Path) -> None:
    """promtool plays each trouble: exactly the alerts it names fire; an almost-trouble fires none."""
    document = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": _plays()}
    file = tmp_path / "alerts_test.yml"
    file.write_text(json.dumps(document), encoding="utf-8")
    ran = run_promtool("test", "rules", str(file))
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_every_alert_has_a_trouble_and_an_almost_trouble() -> None:
    """No alert is untested, in either direction."""
    firing = {name for scenario in SCENARIOS for name in scenario.fires}
    quiet = {scenario.name.partition(":")[0] for scenario in SCENARIOS if not scenario.fires}
    names = {alert.name for alert in ALERTS}
    assert names - firing == set()
    assert names - quiet - {"ManyNodesDown", "StorageDown"} == set()  # the single node's scenario is their almost


def test_generated_files_are_fresh() -> None:
    """rules.yml and docs/alerts.md are what the table says; refresh: python -m files.monitoring.alerts."""
    assert RULES.read_text(encoding="utf-8") == rules_text()
    assert PAGE.read_text(encoding="utf-8") == page_text()


def test_names_are_unique_and_topics_tie_causes_to_consequences() -> None:
    """A topic with an alert of the whole cluster about nodes' troubles has such alerts of nodes to silence."""
    assert len({alert.name for alert in ALERTS}) == len(ALERTS)
    for topic in ("reach", "storage", "slurm"):
        assert {alert.scope for alert in ALERTS if alert.topic == topic} == {"cluster", "node"}
