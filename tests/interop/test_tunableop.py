"""TunableOp's results: there and back byte for byte, found as PyTorch finds them, validators checked by name."""

import pytest
from foreign import PRODUCTS, VALIDATORS, csv

from tunewright.errors import WireError
from tunewright.interop import tunableop
from tunewright.interop.tunableop import TunableOpResults, TunedGemm
from tunewright.spaces.config import Config

OLD = (
    "Validator,PT_VERSION,2.2.0\n"
    "Validator,ROCM_VERSION,6.0.0.0-12969-1544e39\n"
    "Validator,HIPBLASLT_VERSION,0.6.0-a9c5cc7\n"
    "Validator,ROCBLAS_VERSION,4.0.0-72e57364-dirty\n"
    "GemmTunableOp_float_NT,nt_25088_4096_64,1219,1.262\n"
    "GemmTunableOp_float_NT,nt_4096_4096_64,Gemm_Rocblas_1216,0.033\n"
    "GemmTunableOp_float_NT,nt_64_4096_64,Default\n"
)


def kept(tmp_path, text):
    path = tmp_path / "tunableop_results0.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.mark.parametrize("text", [csv(), OLD])
def test_a_file_comes_back_byte_for_byte(text, tmp_path) -> None:
    results = tunableop.read(kept(tmp_path, text))
    tunableop.write(results, tmp_path / "again.csv")
    assert (tmp_path / "again.csv").read_text() == text


def test_validators_that_differ_are_said_as_expected_and_actual(tmp_path) -> None:
    results = tunableop.read(kept(tmp_path, csv()))
    assert results.validated(VALIDATORS) == {}
    here = VALIDATORS | {"PT_VERSION": "2.10.0", "CUDA_VERSION": "13.0"}
    del here["HIP_VERSION"]
    assert results.validated(here) == {
        "PT_VERSION": ("2.10.0", "2.9.1"),
        "CUDA_VERSION": ("13.0", "(absent)"),
        "HIP_VERSION": ("(absent)", "702"),
    }


def test_the_first_line_for_a_product_counts_as_in_pytorch(tmp_path) -> None:
    op, params, *_ = PRODUCTS[0].split(",")
    results = tunableop.read(kept(tmp_path, csv(*PRODUCTS, f"{op},{params},Default,0.5")))
    assert results.find(op, params).kernel == "Gemm_Rocblas_621284994"
    assert results.find(op, "tn_1_1_1") is None


def test_lines_are_offered_as_configs_of_sizes_on_an_architecture(tmp_path) -> None:
    rows = list(tunableop.read(kept(tmp_path, csv())).foreign_rows())
    assert rows[0].dims == {"M": 8192, "N": 1, "K": 4096}
    assert rows[3].dims == {"M": 64, "N": 128, "K": 32, "B": 16}
    assert rows[0].config == Config(kernel="Gemm_Rocblas_621284994")
    assert {row.device for row in rows} == {"gfx942:sramecc+:xnack-"}


@pytest.mark.parametrize(("op", "params", "says"), [
    ("GemmTunableOp_float_NT", "nt_1_2_3", ""),
    ("ScaledGemmTunableOp_Float8_e4m3fn_Float8_e4m3fn_BFloat16_TN", "tn_1_2_3_ld_3_3_1_rw_0_bias_Half", ""),
    ("GemmTunableOp_float_NT", "nn_1_2_3", "contradict"),
    ("GemmTunableOp_float_NT", "nt_1_2", "no parameters look like"),
    ("gemm", "nt_1_2_3", "no operator is called"),
])  # fmt: skip
def test_products_that_pytorch_never_asks_for_are_known(op, params, says) -> None:
    assert says in tunableop.lookup_problem(op, params)
    assert bool(says) == bool(tunableop.lookup_problem(op, params))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (csv()[:-9], "may be cut off"),
        (csv().replace("\n", "\r\n"), "carriage return"),
        (csv("GemmTunableOp_float_NT,nt_1_2_3"), "has 2 fields"),
        (csv("", PRODUCTS[0]), "has 0 fields"),
        (csv(PT_VERSION=""), "without a value"),
        (csv(PRODUCTS[0] + "x"), "is no time"),
        (csv(PRODUCTS[0].replace(",0.0", ",-0.0")), "is no time"),
        (csv(PRODUCTS[0].rpartition(",")[0] + ",nan"), "is no time"),
        (csv("x" * 5000), "longer than 2,000"),
        (b"\xff\xfe\x00", "is not text"),
    ],
)
def test_a_damaged_file_is_refused_with_the_line_and_what_is_wrong(text, says, tmp_path) -> None:
    with pytest.raises(WireError, match=says):
        tunableop.read(kept(tmp_path, text))


@pytest.mark.parametrize("kernel", ["a,b", "", "a\nb", "a\r"])
def test_what_would_not_come_back_is_not_written(kernel, tmp_path) -> None:
    with pytest.raises(WireError, match="cannot be a field"):
        tunableop.write(TunableOpResults({}, (TunedGemm("op", "params", kernel, 1.0),)), tmp_path / "x.csv")
    assert not list(tmp_path.iterdir())
