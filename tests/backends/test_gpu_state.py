"""The state of GPUs by NVML and amdsmi: both stand-ins, a shared library built here and a module (no GPU: rung 2)."""

import os
import shutil
import subprocess
import sys
import types

import pytest

from tunewright.backends import gpu_state
from tunewright.backends.gpu_state import GpuState, read_gpu_state

NVML = r"""
#include <string.h>
typedef struct { unsigned int pid; unsigned long long used; unsigned int gpu, compute; } process_t;
static int cards = 2;
int nvmlInit_v2(void) { return FAILS; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned int *count) { *count = cards; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **card) { *card = (void *)(long)(index + 1); return 0; }
int nvmlDeviceGetName(void *card, char *name, unsigned int length) {
    strncpy(name, card == (void *)1 ? "NVIDIA A100" : "NVIDIA T4", length); return 0; }
int nvmlSystemGetDriverVersion(char *version, unsigned int length) { strncpy(version, "580.1", length); return 0; }
int nvmlDeviceGetClockInfo(void *card, unsigned int kind, unsigned int *clock) {
    *clock = kind == 2 ? 1215 : 900; return 0; }
int nvmlDeviceGetMaxClockInfo(void *card, unsigned int kind, unsigned int *clock) { *clock = 1410; return 0; }
int nvmlDeviceGetTemperature(void *card, unsigned int sensor, unsigned int *degrees) { *degrees = 84; return 0; }
int nvmlDeviceGetPowerUsage(void *card, unsigned int *milliwatts) {
    if (card != (void *)1) return 3; *milliwatts = 399500; return 0; }
int nvmlDeviceGetEnforcedPowerLimit(void *card, unsigned int *milliwatts) { *milliwatts = 400000; return 0; }
int nvmlDeviceGetCurrentClocksThrottleReasons(void *card, unsigned long long *reasons) {
    *reasons = card == (void *)1 ? 0x44 : 0x1; return 0; }
int nvmlDeviceGetComputeRunningProcesses_v3(void *card, unsigned int *count, process_t *infos) {
    if (card != (void *)1) { *count = 0; return 0; }
    infos[0].pid = OWN; infos[1].pid = 4242; infos[1].used = 1; *count = 2; return 0; }
"""


@pytest.fixture
def library(tmp_path, monkeypatch):
    """Builds a stand-in for NVML, and has it used."""
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")

    def build(*, fails: int = 0):
        (tmp_path / "nvml.c").write_text(NVML)
        path = tmp_path / f"libnvml{fails}.so"
        flags = [f"-DOWN={os.getpid()}", f"-DFAILS={fails}"]
        subprocess.run(["gcc", "-shared", "-fPIC", *flags, "-o", path, tmp_path / "nvml.c"], check=True)
        monkeypatch.setattr(gpu_state, "NVML", str(path))

    return build


def test_nvml_tells_clocks_power_reasons_and_other_processes(library):
    library()
    first, second = read_gpu_state()
    assert first == GpuState(
        "NVIDIA A100", "580.1", 900, 1410, 1215, 84, 399.5, 400.0,
        ("its power limit", "its temperature (by the hardware)"), (4242,),
    )  # fmt: skip
    assert (second.name, second.power, second.slowed_by, second.others) == ("NVIDIA T4", None, (), ())


def test_what_disturbs_a_card_is_said(library):
    library()
    first, second = read_gpu_state()
    assert first.complaints() == [
        "NVIDIA A100 is slowed down by its power limit",
        "NVIDIA A100 is slowed down by its temperature (by the hardware)",
        "NVIDIA A100 is also used by 1 other processes (4242)",
    ]
    assert second.complaints() == []  # an idle card has low clocks, which disturbs nothing
    assert first.describe() == "NVIDIA A100, 900 of 1410 MHz, 400 of 400 W, 84 C, driver 580.1"


def test_without_a_library_or_with_one_that_fails_nothing_is_known(library, monkeypatch):
    monkeypatch.setattr(gpu_state, "NVML", "libthere-is-none.so")
    assert read_gpu_state() == []
    library(fails=9)
    assert read_gpu_state() == []


class AmdSmiError(Exception):
    """As amdsmi's own."""


POWER = {"current_socket_power": "N/A", "average_socket_power": 700, "power_limit": 750}


def amdsmi_module(**changes) -> types.ModuleType:
    module = types.ModuleType("amdsmi")
    functions = {
        "amdsmi_init": lambda: None,
        "amdsmi_shut_down": lambda: None,
        "amdsmi_get_processor_handles": lambda: ["card"],
        "amdsmi_get_clock_info": lambda card, kind: {"clk": 2100, "max_clk": 2100},
        "amdsmi_get_power_info": lambda card: {
            "current_socket_power": "N/A",
            "average_socket_power": 700,
            "power_limit": 750,
        },
        "amdsmi_get_gpu_asic_info": lambda card: {"market_name": "AMD Instinct MI300X"},
        "amdsmi_get_gpu_driver_info": lambda card: {"driver_version": "6.10"},
        "amdsmi_get_gpu_process_list": lambda card: [{"pid": os.getpid()}, {"pid": 77}],
    }
    module.__dict__.update(functions | changes)
    module.AmdSmiClkType, module.AmdSmiException = types.SimpleNamespace(GFX=0), AmdSmiError
    return module


def test_amdsmi_tells_the_same_of_amds_cards(monkeypatch):
    monkeypatch.setitem(sys.modules, "amdsmi", amdsmi_module())
    (card,) = read_gpu_state()
    assert card == GpuState(
        "AMD Instinct MI300X", "6.10", clock=2100, max_clock=2100, power=700, power_limit=750, others=(77,)
    )


def test_what_amdsmi_does_not_know_is_left_out(monkeypatch):
    def unknown(card, *_):
        raise AmdSmiError

    changes = dict.fromkeys(("amdsmi_get_clock_info", "amdsmi_get_power_info", "amdsmi_get_gpu_process_list"), unknown)
    monkeypatch.setitem(sys.modules, "amdsmi", amdsmi_module(**changes))
    (card,) = read_gpu_state()
    assert (card.clock, card.power, card.others, card.complaints()) == (None, None, (), [])


def test_amdsmi_without_a_driver_is_no_error(monkeypatch):
    def fail():
        raise AmdSmiError("no driver")

    monkeypatch.setitem(sys.modules, "amdsmi", amdsmi_module(amdsmi_init=fail))
    assert read_gpu_state() == []
