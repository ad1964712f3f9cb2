import json
import shutil
import subprocess

import numpy as np
import pytest

from tunewright.errors import SettingsError, WireError
from tunewright.shapes.cover import cover
from tunewright.shapes.export import from_json, to_c_header, to_json, to_moe_rows, to_python, to_triton
from tunewright.shapes.rules import fit_rule
from tunewright.spaces.shape_rule import RuleLeaf, RuleSplit, ShapeRule

SIZES = np.random.default_rng(3).integers(1, 400, (300, 2)).tolist()


@pytest.fixture
def rule(modeled) -> ShapeRule:
    return fit_rule(cover(modeled, 0.05), "toy.kernel")


def expected(rule: ShapeRule) -> list[dict | None]:
    found = [rule.config({"M": m, "N": n}) for m, n in SIZES]
    assert None in found
    assert any(found)
    return [dict(config) if config else None for config in found]


def test_json_is_read_as_it_was_written(rule) -> None:
    assert from_json(to_json(rule)) == rule
    assert json.loads(to_json(rule))["sizes"] == ["M", "N"]


def test_json_of_others_is_checked(rule) -> None:
    with pytest.raises(WireError, match="no rule"):
        from_json('{"kernel": 3}')
    with pytest.raises(WireError, match="'Q'"):
        from_json(to_json(rule).replace('"size": "M"', '"size": "Q"'))
    with pytest.raises(WireError, match="bucket"):
        from_json(to_json(ShapeRule("toy", ("M", "N"), RuleLeaf({}, ((1, 2),)))).replace('"N"\n', '"N", "K"\n'))
    with pytest.raises(WireError, match="no rule"):
        from_json('{"kernel":"a","sizes":["M"],"tree":' + '{"is":"split","size":"M","at_most":1,"low":' * 5000)


def test_the_python_function_answers_as_the_rule(rule) -> None:
    scope: dict = {}
    exec(to_python(rule), scope)
    assert [scope["toy_kernel_config"](m, n) for m, n in SIZES] == expected(rule)


def test_the_c_header_answers_as_the_rule(rule, tmp_path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    (tmp_path / "rule.h").write_text(to_c_header(rule))
    (tmp_path / "main.c").write_text(
        '#include <stdio.h>\n#include "rule.h"\n'
        'int main(void) { long m, n; while (scanf("%ld %ld", &m, &n) == 2) {\n'
        "const toy_kernel_knobs *k = toy_kernel_config(m, n);\n"
        'if (k) printf("%d %d %d\\n", (int)k->PACK, (int)k->TM, (int)k->TN); else puts("-"); } return 0; }\n'
    )
    words = [compiler, "-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "main.c", "-o", "main"]
    subprocess.run(words, cwd=tmp_path, check=True)
    given = "\n".join(f"{m} {n}" for m, n in SIZES)
    said = subprocess.run([tmp_path / "main"], input=given, capture_output=True, text=True, check=True).stdout
    wanted = [f"{c['PACK']} {c['TM']} {c['TN']}" if c else "-" for c in expected(rule)]
    assert said.split("\n")[:-1] == wanted


def test_heuristics_of_triton_answer_as_the_rule_or_the_default(rule) -> None:
    default = {"PACK": 0, "TM": 99, "TN": 8}
    scope: dict = {}
    exec(to_triton(rule, default), scope)
    found = [{knob: value({"M": m, "N": n}) for knob, value in scope["VALUES"].items()} for m, n in SIZES]
    assert found == [config or default for config in expected(rule)]
    with pytest.raises(SettingsError, match="'TN'"):
        to_triton(rule, {"PACK": 0, "TM": 1})


def test_triton_takes_the_heuristics(rule) -> None:
    triton = pytest.importorskip("triton")
    scope: dict = {}
    exec(to_triton(rule, {"PACK": 0, "TM": 1, "TN": 8}), scope)

    class Launched:
        arg_names = ("M", "N", "PACK", "TM", "TN")

        def run(self, *args, **kwargs):
            return kwargs

    kernel = scope["heuristics"](Launched())
    assert isinstance(kernel, triton.runtime.autotuner.Heuristics)
    launched = kernel.run(8, 48)
    assert {knob: launched[knob] for knob in ("PACK", "TM", "TN")} == dict(rule.config({"M": 8, "N": 48}) or {})


def test_values_of_all_kinds_reach_c() -> None:
    low = RuleLeaf({"order": 'a"b', "fast": True, "share": 0.5}, ((1,),))
    high = RuleLeaf({"order": "ji", "fast": False, "share": 1}, ())
    text = to_c_header(ShapeRule("toy", ("M",), RuleSplit("M", 1, low, high)))
    assert "const char * order;\n    int64_t fast;\n    double share;" in text
    assert '{"a\\"b", 1, 0.5},' in text
    with pytest.raises(SettingsError, match="'fast'"):
        to_c_header(ShapeRule("toy", ("M",), RuleSplit("M", 1, low, RuleLeaf({"order": "x"}, ()))))


def test_names_that_no_language_takes_are_refused() -> None:
    with pytest.raises(SettingsError, match="rename"):
        to_python(ShapeRule("3d", ("M",), RuleLeaf({}, ())))
    with pytest.raises(SettingsError, match="rename"):
        to_c_header(ShapeRule("toy", ("for",), RuleLeaf({}, ())))


def test_rows_of_serving_engines_have_only_what_was_verified() -> None:
    low, high = RuleLeaf({"BLOCK_SIZE_M": 16}, ((1, 64), (16, 64))), RuleLeaf({"BLOCK_SIZE_M": 64}, ((64, 64),))
    rule = ShapeRule("moe", ("M", "N"), RuleSplit("M", 16, low, high))
    rows = json.loads(to_moe_rows(rule, [1, 2, 16, 64, 256], {"N": 64}))
    assert rows == {"1": {"BLOCK_SIZE_M": 16}, "16": {"BLOCK_SIZE_M": 16}, "64": {"BLOCK_SIZE_M": 64}}
    with pytest.raises(SettingsError, match="'N' is missing"):
        to_moe_rows(rule, [1], {})
    with pytest.raises(SettingsError, match="serves none"):
        to_moe_rows(rule, [4096], {"N": 64})
