"""Products of bfloat16 and int8: by instructions on tiles and vectors where there are any, and right everywhere."""

import numpy as np
import pytest

pytest.importorskip("torch_mlir")

from mlir_runs import dtype_of, ran

from tunewright.errors import BackendError, ScheduleError, SignatureError
from tunewright.mlir import Mlir, backend, compiler, dot_blocks, dot_plans, payloads
from tunewright.mlir.dot_blocks import DotBlock, tile_block
from tunewright.mlir.dot_copies import interleaving, transposing
from tunewright.mlir.dot_plans import dot_plan, plan_for
from tunewright.mlir.dot_vectors import vector_block
from tunewright.mlir.models import kernel_source, random_arrays, read_file, read_model
from tunewright.mlir.payload import PayloadBuilder
from tunewright.mlir.processor import has_dot_tiles, has_dot_vectors
from tunewright.mlir.script import TransformScript
from tunewright.model.signature import Parameter, Signature
from tunewright.ports.backend import Kernel
from tunewright.spaces.config import VARIANT

NARROW = {
    "bf16, bias, relu": payloads.matmul(32, 32, 64, bias=True, after="relu", element="bf16"),
    "bf16, sizes that nothing divides": payloads.matmul(10, 50, 37, bias=True, after="gelu", element="bf16"),
    "bf16, one row": payloads.matmul(1, 64, 70, element="bf16"),
    "bf16, one term": payloads.matmul(4, 16, 1, element="bf16"),
    "int8, one of all": payloads.matmul(1, 1, 1, element="i8"),
    "bf16, a batch": payloads.batch_matmul(3, 4, 32, 64, element="bf16"),
    "int8": payloads.matmul(20, 32, 132, element="i8"),
    "int8, a batch that nothing divides": payloads.batch_matmul(2, 7, 20, 22, element="i8"),
}
INSTRUCTIONS = ("tiles", "dots")
STARTS = (*INSTRUCTIONS, "widened")


def arrays(payload):
    """Random arrays for a payload; integers are of the whole range."""
    rng = np.random.default_rng(0)
    for argument in payload.arguments[:-1]:
        if argument.element == "i8":
            yield rng.integers(-128, 128, size=argument.shape).astype(np.int8)
        else:
            yield rng.standard_normal(argument.shape).astype(dtype_of(argument.element))


def is_right(payload, plan, config, folder, threads=1):
    """Whether a config computes what the reference does in double precision, as far as the result can hold it."""
    inputs = list(arrays(payload))
    out = ran(payload, plan, inputs, config, folder, threads)
    wide = [one if one.dtype == np.int8 else one.astype(np.float64) for one in inputs]
    right = payload.reference(*wide)
    if out.dtype == np.int32:
        return (out == right).all()
    return np.abs(out.astype(np.float64) - right).max() <= np.abs(right).max() / 256 + 1e-3


def one_of_each(plan):
    """A config of each structure; of those that widen, which take long to compile, the one with the smallest block."""
    found = {}
    for config in plan.space.sample(np.random.default_rng(0), 200):
        name = config[VARIANT]
        first = found.setdefault(name, config)
        if name.startswith("unpacked") and size(config) < size(first):
            found[name] = config
    return found


def size(config):
    return config["mr"] * config["nr"] * config["kr"]


@pytest.mark.parametrize("name", NARROW)
def test_every_structure_of_a_narrow_product_is_right(name, tmp_path) -> None:
    payload = NARROW[name]
    plan = dot_plan(payload)
    element = payload.arguments[0].element
    found = one_of_each(plan)
    assert any(variant.startswith("tiles") for variant in found) == has_dot_tiles(element)
    assert any(variant.startswith("dots") for variant in found) == has_dot_vectors(element)
    for config in found.values():
        assert is_right(payload, plan, config, tmp_path), config


def odd_sizes():
    """Payloads of random sizes up to 90, most of which no block divides."""
    rng = np.random.default_rng(33)
    for number in range(6):
        rows, columns, terms = (int(size) for size in rng.integers(1, 91, size=3))
        element = ("bf16", "i8")[number % 2]
        if number < 4:
            yield payloads.matmul(rows, columns, terms, element=element)
        else:
            yield payloads.batch_matmul(2, rows, columns, terms, element=element)
    yield payloads.matmul(61, 32, 70, bias=True, after="relu", element="bf16")


@pytest.mark.parametrize("payload", list(odd_sizes()), ids=lambda one: "x".join(map(str, one.sizes.values())))
def test_products_of_any_odd_sizes_are_right(payload, tmp_path) -> None:
    plan, rows = dot_plan(payload), payload.sizes["M"]
    found = {}
    for config in plan.space.sample(np.random.default_rng(1), 200):
        if config[VARIANT].startswith(STARTS):
            found.setdefault((config[VARIANT], rows % config["mr"] > 0), config)
    assert {name.partition(" ")[0] for name, _ in found} >= {"widened"}
    for config in found.values():
        assert is_right(payload, plan, config, tmp_path), config


@pytest.mark.skipif(not has_dot_tiles("bf16"), reason="no tile registers")
def test_the_last_rows_use_tiles_as_the_others_do(tmp_path) -> None:
    payload = payloads.matmul(61, 32, 70, element="bf16")
    plan = dot_plan(payload)
    config = {VARIANT: "tiles rows", "mr": 32, "nr": 32}
    with_blocks, blocks = compiler.insert_dot_blocks, []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(compiler, "insert_dot_blocks", lambda *given: blocks.append(with_blocks(*given)))
        assert is_right(payload, plan, config, tmp_path)
    assert blocks == [2], "the copy into panels and the block, whose rows are 32 or 29"


def test_every_block_fits_the_tile_registers() -> None:
    for rows in (16, 61, 77, 96, 500):
        plan = dot_plan(payloads.matmul(rows, 96, 500, element="bf16"))
        for config in plan.space:
            if config[VARIANT].startswith("tiles"):
                for high in filter(None, (config["mr"], rows % config["mr"])):
                    heights = {count for _, count in dot_blocks._row_tiles(high)}
                    tiles, panels = -(-high // 16), config["nr"] // 16
                    assert tiles * panels + panels + len(heights) <= 8, config


@pytest.mark.parametrize(
    "payload",
    [
        NARROW["bf16, bias, relu"],
        NARROW["int8, a batch that nothing divides"],
        payloads.matmul(61, 32, 70, element="bf16"),
    ],
    ids=["bf16, bias, relu", "int8, a batch that nothing divides", "bf16, uneven rows and terms"],
)
def test_threads_share_the_blocks_and_the_copies_of_a_narrow_product(payload, tmp_path) -> None:
    plan = dot_plan(payload, threads=2)
    for config in one_of_each(plan).values():
        if config[VARIANT].startswith(STARTS):
            assert is_right(payload, plan, config, tmp_path, threads=2), config


def test_a_processor_without_the_instructions_widens(monkeypatch, tmp_path) -> None:
    for name in ("has_dot_tiles", "has_dot_vectors"):
        monkeypatch.setattr(dot_plans, name, lambda element: False)
    for payload in NARROW.values():
        plan = dot_plan(payload)
        assert not any(variant.startswith(INSTRUCTIONS) for variant in plan.structures)
        assert not any(part.numerics for parts in plan.structures.values() for part in parts)
        for config in one_of_each(plan).values():
            assert is_right(payload, plan, config, tmp_path)


@pytest.mark.parametrize("name", NARROW)
def test_a_widened_product_has_the_bits_of_the_one_as_it_is_written(name, tmp_path) -> None:
    payload = NARROW[name]
    plan, inputs = dot_plan(payload), list(arrays(payload))
    found = one_of_each(plan)
    written = ran(payload, plan, inputs, found["as written"], tmp_path)
    for variant in ("widened rows", "widened columns"):
        if config := found.get(variant):
            out = ran(payload, plan, inputs, config, tmp_path)
            assert (out.view(np.uint8) == written.view(np.uint8)).all(), config


def test_the_widest_integers_are_added_up_exactly(tmp_path) -> None:
    payload = payloads.matmul(3, 16, 4096, element="i8")
    plan, least = dot_plan(payload), np.full((3, 4096), -128, np.int8)
    for config in one_of_each(plan).values():
        for sign in (-128, 127):
            out = ran(payload, plan, [least, np.full((4096, 16), sign, np.int8)], config, tmp_path)
            assert (out == -128 * sign * 4096).all(), config


def dot_config(plan):
    found = one_of_each(plan)
    return next(config for name, config in found.items() if name.startswith(STARTS))


def test_a_product_that_is_added_to_something_else_than_zeros_keeps_it(tmp_path) -> None:
    w = PayloadBuilder("shifted")
    a, b = w.input("a", 32, 64, element="i8"), w.input("b", 64, 32, element="i8")
    start = w.fill("three", w.output("c", 32, 32, element="i32"), 3)
    product = w.named("product", "linalg.matmul", "i,j,K", {a: "i,k", b: "k,j"}, (start, "i,j"))
    payload = w.finish(product, lambda a, b: a.astype(np.int32) @ b.astype(np.int32) + 3)
    plan = dot_plan(payload)
    for config in one_of_each(plan).values():
        if not config[VARIANT].startswith("unpacked"):  # which take longest to compile
            assert is_right(payload, plan, config, tmp_path), config


def test_a_script_is_right_where_nothing_replaces_what_it_marks(tmp_path) -> None:
    payload = NARROW["bf16, bias, relu"]
    plan = dot_plan(payload)
    config = dot_config(plan)
    text = str(plan.schedule(config).script())
    assert text.startswith("// lowered with: dot-instructions\n")
    plain = TransformScript.parse(text.partition("\n")[2])
    assert plain.options == frozenset()
    assert is_right(payload, plain, {}, tmp_path)
    assert is_right(payload, TransformScript.parse(text), {}, tmp_path)


def test_what_does_not_fit_the_instructions_stays_a_loop(tmp_path) -> None:
    script = """// lowered with: dot-instructions
module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%root: !transform.any_op) {
    %found = transform.structured.match ops{["linalg.matmul"]} in %root : (!transform.any_op) -> !transform.any_op
    %plain = transform.structured.generalize %found : (!transform.any_op) -> !transform.any_op
    transform.annotate %plain "dot_tiles" : !transform.any_op
    transform.yield
  }
}
"""
    for payload in (payloads.matmul(8, 16, 32), payloads.matmul(8, 16, 32, element="bf16")):
        assert is_right(payload, script, {}, tmp_path)


def test_blocks_are_valid_for_any_rows_and_terms() -> None:
    for element, terms in (("bf16", 2), ("i8", 4)):
        for rows, panels, groups in ((1, 1, 3), (40, 1, 16), (33, 2, 37)):
            types = (
                f"memref<{rows}x{groups}x{terms}x{element}, strided<[?, {terms}, 1], offset: ?>>",
                f"memref<{panels}x{groups}x16x{terms}x{element}>",
                f"memref<{rows}x{panels}x16x{'f32' if element == 'bf16' else 'i32'}>",
            )
            for clears in (False, True):
                block = DotBlock("block", types, rows, panels, groups, element, clears=clears)
                compiler.check_payload(tile_block(block))
                compiler.check_payload(vector_block(block))
    types = ("memref<3x7x2x5x16xbf16>", "memref<3x5x7x16x2xbf16>")
    compiler.check_payload(interleaving("copy", types, (3, 5, 7, 16, 2), "bf16"))
    for groups in (7, 16, 37):
        types = (f"memref<3x5x16x{groups}x4xi8>", f"memref<3x5x{groups}x16x4xi8>")
        compiler.check_payload(transposing("copy", types, (3, 5, groups, 16, 4), "i8"))


@pytest.mark.skipif(not has_dot_tiles("bf16"), reason="no tile registers")
def test_a_kernel_with_tiles_is_refused_where_the_system_does_not_allow_them(monkeypatch, tmp_path) -> None:
    payload = NARROW["bf16, bias, relu"]
    plan = dot_plan(payload)
    tiles = next(config for name, config in one_of_each(plan).items() if name.startswith("tiles"))
    monkeypatch.setattr(backend, "allow_tiles", lambda: False)
    with pytest.raises(BackendError, match="which the system does not let this process use"):
        is_right(payload, plan, tiles, tmp_path)
    assert is_right(payload, plan, one_of_each(plan)["as written"], tmp_path)


def test_what_is_no_narrow_product_is_refused_with_a_reason() -> None:
    with pytest.raises(
        ScheduleError, match="for products of bf16 with sums of f32 or i8 with sums of i32, not of f32, f32, f32"
    ):
        dot_plan(payloads.matmul(8, 8, 8))
    with pytest.raises(ScheduleError, match=r"one of linalg\.matmul, linalg\.batch_matmul"):
        dot_plan(payloads.softmax(8, 64))
    with pytest.raises(BackendError, match="`element` is one of f32, bf16, i8, not 'f8'"):
        payloads.matmul(8, 8, 8, element="f8")
    with pytest.raises(BackendError, match="without a bias or an activation"):
        payloads.matmul(8, 8, 8, bias=True, element="i8")


def test_arrays_of_another_element_are_refused(tmp_path) -> None:
    payload = payloads.matmul(8, 16, 32, element="bf16")
    kernel = Kernel("k", lambda: None, tuple(Parameter(one.name) for one in payload.arguments), tmp_path)
    narrow = [np.zeros(argument.shape, dtype_of("bf16")) for argument in payload.arguments]
    wide = [array.astype(np.float32) for array in narrow]
    mlir = Mlir(payload, dot_plan(payload))
    assert mlir.key(kernel, Signature.of(kernel.parameters, narrow), {})
    with pytest.raises(SignatureError, match=r"a is float32\[8,32\], the payload takes memref<8x32xbf16>"):
        mlir.key(kernel, Signature.of(kernel.parameters, wide), {})


EXPORTED = """
#map = affine_map<(d0, d1) -> (d0, d1)>
#map1 = affine_map<(d0, d1) -> (d1)>
func.func @model(%a: tensor<32x64xbf16>, %b: tensor<64x48xbf16>, %bias: tensor<48xbf16>) -> tensor<32x48xbf16> {
  %zero = arith.constant 0.0 : f32
  %none = arith.constant 0.0 : bf16
  %0 = tensor.empty() : tensor<32x48xf32>
  %1 = linalg.fill ins(%zero : f32) outs(%0 : tensor<32x48xf32>) -> tensor<32x48xf32>
  %2 = linalg.matmul ins(%a, %b : tensor<32x64xbf16>, tensor<64x48xbf16>) outs(%1 : tensor<32x48xf32>)
    -> tensor<32x48xf32>
  %3 = tensor.empty() : tensor<32x48xbf16>
  %4 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]}
    ins(%2 : tensor<32x48xf32>) outs(%3 : tensor<32x48xbf16>) {
  ^bb0(%in: f32, %out: bf16):
    %x = arith.truncf %in : f32 to bf16
    linalg.yield %x : bf16
  } -> tensor<32x48xbf16>
  %5 = linalg.generic {indexing_maps = [#map, #map1, #map], iterator_types = ["parallel", "parallel"]}
    ins(%4, %bias : tensor<32x48xbf16>, tensor<48xbf16>) outs(%3 : tensor<32x48xbf16>) {
  ^bb0(%in: bf16, %added: bf16, %out: bf16):
    %x = arith.addf %in, %added : bf16
    linalg.yield %x : bf16
  } -> tensor<32x48xbf16>
  %6 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]}
    ins(%5 : tensor<32x48xbf16>) outs(%3 : tensor<32x48xbf16>) {
  ^bb0(%in: bf16, %out: bf16):
    %holds = arith.cmpf ugt, %in, %none : bf16
    %x = arith.select %holds, %in, %none : bf16
    linalg.yield %x : bf16
  } -> tensor<32x48xbf16>
  return %6 : tensor<32x48xbf16>
}
"""
"""A product of bfloat16 with bias and relu as torch-mlir exports it."""


def test_an_exported_product_of_bfloat16_is_tuned_from_its_file(tmp_path) -> None:
    path = tmp_path / "model.mlir"
    path.write_text(EXPORTED)
    made: dict = {"__name__": "made"}
    available = zip(INSTRUCTIONS, (has_dot_tiles("bf16"), has_dot_vectors("bf16")), strict=True)
    allowed = [f"{start} rows" for start, has in available if has]
    exec(compile(kernel_source(path, read_file(path), allowed), "made.py", "exec"), made)
    plan, payload = made["plan"], made["payload"]
    assert [arg.element for arg in payload.arguments] == ["bf16"] * 4
    a, b, bias, out = random_arrays(payload)
    assert out.shape == (32, 48)
    assert out.dtype == dtype_of("bf16")
    right = np.maximum(a.astype(np.float64) @ b.astype(np.float64) + bias.astype(np.float64), 0)
    for config in one_of_each(plan).values():
        found = ran(payload, plan, [a, b, bias], config, tmp_path).astype(np.float64)
        assert np.abs(found - right).max() <= right.max() / 64, config
    assert made["model"].default == {VARIANT: "as written"}


def test_the_elements_of_the_product_decide_not_those_of_the_first_argument() -> None:
    swapped = EXPORTED.replace("(%a:", "(%other: tensor<4xf32>, %a:")
    assert dot_plan(read_model(swapped)).structures.keys() == dot_plan(read_model(EXPORTED)).structures.keys()
    wide = LINEAR.format(rows=16, columns=32, terms=16, element="f32", batch="", sums="f32", zero="0.0",
                         product="matmul", order="[1, 0]").replace("(%a:", "(%first: tensor<4xbf16>, %a:")  # fmt: skip
    with pytest.raises(ScheduleError, match="not of f32, f32, f32"):
        dot_plan(read_model(wide))
    assert {"tiled", "packed"} <= plan_for(read_model(wide)).structures.keys()


def test_a_product_that_adds_up_in_bfloat16_has_the_plan_of_any_operations(tmp_path) -> None:
    narrow = read_model(LINEAR.format(rows=16, columns=32, terms=16, element="bf16", batch="", sums="bf16", zero="0.0",
                                      product="matmul", order="[1, 0]"))  # fmt: skip
    with pytest.raises(ScheduleError, match="not of bf16, bf16, bf16, bf16; `plan_for"):
        dot_plan(narrow)
    plan, (a, w) = plan_for(narrow), list(arrays(narrow))[:2]
    right = a.astype(np.float64) @ w.astype(np.float64).T
    # Elsewhere, blocks are added up by calls of the compiler's runtime, and fail as trials.
    names = plan.structures if has_dot_vectors("bf16") else ["as written"]
    for config in (one_of_each(plan)[name] for name in names):
        out = ran(narrow, plan, [a, w], config, tmp_path).astype(np.float64)
        assert np.abs(out - right).max() <= np.abs(right).max() / 32, config


LINEAR = """
func.func @model(%a: tensor<{batch}{rows}x{terms}x{element}>, %w: tensor<{batch}{columns}x{terms}x{element}>)
    -> tensor<{batch}{rows}x{columns}x{sums}> {{
  %zero = arith.constant {zero} : {sums}
  %e = tensor.empty() : tensor<{batch}{terms}x{columns}x{element}>
  %t = linalg.transpose ins(%w : tensor<{batch}{columns}x{terms}x{element}>)
    outs(%e : tensor<{batch}{terms}x{columns}x{element}>) permutation = {order}
  %0 = tensor.empty() : tensor<{batch}{rows}x{columns}x{sums}>
  %1 = linalg.fill ins(%zero : {sums}) outs(%0 : tensor<{batch}{rows}x{columns}x{sums}>)
    -> tensor<{batch}{rows}x{columns}x{sums}>
  %2 = linalg.{product}
    ins(%a, %t : tensor<{batch}{rows}x{terms}x{element}>, tensor<{batch}{terms}x{columns}x{element}>)
    outs(%1 : tensor<{batch}{rows}x{columns}x{sums}>) -> tensor<{batch}{rows}x{columns}x{sums}>
  return %2 : tensor<{batch}{rows}x{columns}x{sums}>
}}
"""


def linear(rows, columns, terms, element, batch=""):
    """A product whose right operand is transposed before it."""
    plain = {"rows": rows, "columns": columns, "terms": terms, "element": element, "batch": batch}
    sums = {"sums": "f32", "zero": "0.0"} if element == "bf16" else {"sums": "i32", "zero": "0"}
    kind = {"product": "batch_matmul", "order": "[0, 2, 1]"} if batch else {"product": "matmul", "order": "[1, 0]"}
    return read_model(LINEAR.format(**plain, **sums, **kind))


@pytest.mark.parametrize(
    "payload",
    [
        linear(32, 48, 64, "bf16"),
        linear(13, 50, 71, "bf16"),
        linear(5, 16, 9, "bf16"),
        linear(20, 33, 150, "i8"),
        linear(9, 20, 22, "bf16", batch="3x"),
    ],
    ids=["even", "odd", "few terms", "int8", "batch"],
)
def test_products_with_transposed_weights_use_the_instructions(payload, tmp_path) -> None:
    plan = plan_for(payload)
    found = one_of_each(plan)
    assert any(name.startswith("dots") for name in found) == has_dot_vectors(payload.arguments[0].element)
    assert any(name.startswith("widened") for name in found)
    a, w = list(arrays(payload))[:2]
    wide = np.int64 if a.dtype == np.int8 else np.float64
    right = a.astype(wide) @ np.swapaxes(w.astype(wide), -1, -2)
    for config in found.values():
        out = ran(payload, plan, [a, w], config, tmp_path).astype(wide)
        assert np.abs(out - right).max() <= (0 if wide is np.int64 else np.abs(right).max() / 256 + 1e-3), config


def test_a_product_with_another_transpose_has_the_plan_of_any_operations(monkeypatch) -> None:
    text = LINEAR.replace("ins(%a, %t :", "ins(%t, %a :")
    square = text.format(rows=16, columns=16, terms=16, element="bf16", batch="", sums="f32", zero="0.0",
                         product="matmul", order="[1, 0]")  # fmt: skip
    with pytest.raises(ScheduleError, match="whose right operand is transposed"):
        dot_plan(read_model(square))
    assert {"as written", "tiled"} <= plan_for(read_model(square)).structures.keys()
    for name in ("has_dot_tiles", "has_dot_vectors"):
        monkeypatch.setattr(dot_plans, name, lambda element: False)
    plan = plan_for(linear(16, 16, 16, "bf16"))
    assert {"as written", "widened rows", "widened columns"} == plan.structures.keys()
