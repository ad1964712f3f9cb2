"""What GPUs offer, and how many blocks fit them."""

import pytest

from tunewright.errors import SettingsError
from tunewright.triton.static.targets import TARGETS, find_target


@pytest.mark.parametrize("name", ["sm_90", "sm90", "90", "sm_90a", " SM_90 "])
def test_a_target_is_known_by_each_way_to_write_it(name):
    assert find_target(name) is TARGETS["sm_90"]


def test_an_unknown_target_is_refused_with_the_known_ones():
    with pytest.raises(SettingsError, match="sm_80"):
        find_target("sm_13")


# As NVIDIA's occupancy calculator has them.
@pytest.mark.parametrize(
    ("name", "registers", "shared", "warps", "share"),
    [
        ("sm_80", 32, 0, 8, 1.0),
        ("sm_80", 96, 16384, 4, 20 / 64),
        ("sm_80", 255, 0, 8, 8 / 64),
        ("sm_80", 32, 160 * 1024, 4, 4 / 64),
        ("sm_86", 40, 0, 8, 1.0),
        ("sm_90", 168, 100 * 1024, 8, 8 / 64),
    ],
)
def test_occupancy_is_limited_by_the_scarcest_resource(name, registers, shared, warps, share):
    assert find_target(name).occupancy(registers, shared, warps) == share


def test_what_a_block_may_not_have_fits_nowhere():
    assert find_target("sm_80").occupancy(32, 164 * 1024, 4) == 0
    assert find_target("sm_80").occupancy(256, 0, 4) == 0
    assert find_target("gfx942").occupancy(32, 65 * 1024, 4) == 0


def test_half_the_registers_of_an_amd_lane_leave_two_of_its_eight_warps():
    assert find_target("gfx942").occupancy(256, 0, 4) == 2 / 8


def test_clusters_are_offered_from_hopper_on():
    assert "num_ctas" in find_target("sm_90").options
    assert "num_ctas" not in find_target("sm_80").options
    assert "maxnreg" not in find_target("gfx942").options


def test_only_blackwell_of_the_data_centre_has_tensor_memory():
    assert {name for name, one in TARGETS.items() if one.tensor_columns} == {"sm_100"}
