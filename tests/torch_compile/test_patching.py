"""Replaced attributes are put back exactly, and deprecated names still work."""

import pytest

import tunewright.torch
from tunewright.torch.inductor.patching import replaced_attribute


class Base:
    @classmethod
    def name(cls):
        return cls.__name__


class Derived(Base):
    pass


def test_a_class_method_is_put_back_as_it_was():
    before = vars(Base)["name"]
    with replaced_attribute(Base, "name", classmethod(lambda cls: "replaced")):
        assert Derived.name() == "replaced"
    assert vars(Base)["name"] is before
    assert Derived.name() == "Derived"


def test_an_inherited_attribute_is_inherited_again():
    with replaced_attribute(Derived, "name", lambda: "replaced"):
        assert Derived.name() == "replaced"
        assert Base.name() == "Base"
    assert "name" not in vars(Derived)


def test_an_attribute_is_put_back_after_an_error():
    thing = Derived()
    thing.size = 1
    with pytest.raises(ZeroDivisionError), replaced_attribute(thing, "size", 2):
        raise ZeroDivisionError(thing.size)
    assert thing.size == 1


@pytest.mark.parametrize(
    ("old", "new"), [("journey", "compile_report"), ("Journey", "CompileReport"), ("Chooser", "TuningBackend")]
)
def test_a_deprecated_name_is_the_new_one_and_says_so(old, new):
    with pytest.warns(DeprecationWarning, match=f"use tunewright.torch.{new}"):
        assert getattr(tunewright.torch, old) is getattr(tunewright.torch, new)
