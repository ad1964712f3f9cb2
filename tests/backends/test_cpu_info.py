"""Processors as /proc/cpuinfo describes them: which are one device, and which are not."""

import itertools
from pathlib import Path

import pytest

from tunewright.backends import cpu_info, host

RECORDED = Path(__file__).parent / "cpuinfo"
NAMES = sorted(path.stem for path in RECORDED.glob("*.txt"))
SAME = {frozenset(("xeon-8375c", "xeon-8375c-newer-kernel"))}


@pytest.fixture
def device(monkeypatch, tmp_path):
    """Returns the device of a recorded processor, or of one with some text replaced."""

    def read(name: str, old: str = "", new: str = ""):
        text = (RECORDED / f"{name}.txt").read_text()
        (tmp_path / "cpuinfo").write_text(text.replace(old, new) if old else text)
        monkeypatch.setattr(host, "_CPUINFO", tmp_path / "cpuinfo")
        monkeypatch.setattr(host.platform, "machine", lambda: "aarch64" if "Features" in text else "x86_64")
        monkeypatch.setattr(host.platform, "processor", lambda: "")
        return host.cpu.__wrapped__()

    return read


@pytest.mark.parametrize(("left", "right"), list(itertools.combinations(NAMES, 2)))
def test_processors_are_told_apart(device, left, right) -> None:
    assert (device(left) == device(right)) is (frozenset((left, right)) in SAME)


@pytest.mark.parametrize(
    "flag",
    ["avx512vbmi", "avx512ifma", "avx512_vbmi2", "gfni", "vaes", "vpclmulqdq", "avx512_bitalg", "sha_ni", "adx",
     "movbe", "popcnt", "aes", "clwb"],
)  # fmt: skip
def test_an_instruction_set_that_a_hypervisor_hides_counts(device, flag) -> None:
    assert flag in device("xeon-8375c").features
    assert device("xeon-8375c", f" {flag} ", " ") != device("xeon-8375c")


@pytest.mark.parametrize("flag", ["avx10_2", "amx_complex", "apx_f", "avx_vnni_int16"])
def test_what_comes_later_counts_as_well(device, flag) -> None:
    assert flag in device("xeon-8375c", " movbe ", f" movbe {flag} ").features


@pytest.mark.parametrize("note", ["hypervisor", "md_clear", "ibrs_enhanced", "rep_good", "tsc_known_freq", "rdrand"])
def test_notes_about_virtualization_bugs_and_the_kernel_do_not_count(device, note) -> None:
    assert device("xeon-8375c", f" {note} ", " ") == device("xeon-8375c")


@pytest.mark.parametrize(
    ("field", "old", "new"),
    [("implementer", "0x41", "0xc0"), ("part", "0xd0c", "0xd40"), ("variant", "0x3", "0x4"), ("revision", "1", "2")],
)
def test_every_field_of_an_arm_core_counts(device, field, old, new) -> None:
    changed = device("neoverse-n1", f"CPU {field}\t: {old}", f"CPU {field}\t: {new}")
    assert changed != device("neoverse-n1")
    assert f"{field} {old}" in device("neoverse-n1").model


@pytest.mark.parametrize("feature", ["asimddp", "crc32", "lrcpc", "aes", "atomics"])
def test_features_of_arm_count_and_notes_do_not(device, feature) -> None:
    assert device("neoverse-n1", f" {feature}", "") != device("neoverse-n1")
    assert device("neoverse-n1", " ssbs", "") == device("neoverse-n1", " cpuid", "") == device("neoverse-n1")


def test_a_processor_of_two_kinds_of_cores_has_what_both_have(device) -> None:
    both = device("rk3588")
    assert "part 0xd05" in both.model
    assert "part 0xd0b" in both.model
    assert "0123456789abcdef" not in both.model, "a serial number is not a model"
    big_first = "\n\n".join(reversed((RECORDED / "rk3588.txt").read_text().split("\n\n")))
    assert cpu_info.model_name(cpu_info.parse(big_first), "aarch64") == both.model
    fewer = cpu_info.parse((RECORDED / "rk3588.txt").read_text())
    fewer[0]["Features"] = "fp asimd"
    assert cpu_info.instruction_sets(fewer) == ("asimd", "fp")


def test_extensions_of_risc_v_are_features(device) -> None:
    assert device("visionfive-2").features == ("rv64imafdc", "zba", "zbb")
    assert "uarch sifive,u74-mc" in device("visionfive-2").model
