"""Replacing attributes: all or none, never over another plugin, and put back exactly."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kernels_sm70.vllm_hooks.flags import PluginError
from kernels_sm70.vllm_hooks.patching import Patch, PatchSet, Target

MODULE = "kernels_sm70_test_target"
SOURCE = """
def expand(blocks, out):
    return "stock"

class Layer:
    def mix(self, x):
        return ("stock", x)

    def other(self, x):
        return x
"""


@pytest.fixture
def module() -> Iterator[Any]:
    target = types.ModuleType(MODULE)
    exec(SOURCE, target.__dict__)
    sys.modules[MODULE] = target
    yield target
    del sys.modules[MODULE]


def make(original: Callable[..., Any]) -> Callable[..., Any]:
    def replacement(*args: Any) -> Any:
        return ("ours", original(*args))

    return replacement


MIX = Patch("hc", Target(MODULE, "Layer.mix", ("self", "x")), make)
EXPAND = Patch("expand", Target(MODULE, "expand", ("blocks", "out")), make)


def test_methods_and_functions_are_replaced_and_put_back(module: Any) -> None:
    before = module.Layer.mix, module.expand
    patches = PatchSet([MIX, EXPAND])
    patches.apply()
    patches.check_intact()
    assert module.Layer().mix(3) == ("ours", ("stock", 3))
    assert module.expand(1, 2) == ("ours", "stock")
    patches.undo()
    assert (module.Layer.mix, module.expand) == before


@pytest.mark.parametrize(
    ("target", "found"),
    [
        (Target(MODULE, "Layer.gone", ("self",)), "no such function"),
        (Target(MODULE, "Gone.mix", ("self",)), "no such function"),
        (Target(MODULE, "Layer.other", ("self", "x", "y")), "parameters"),
        (Target("kernels_sm70_no_such_module", "f", ()), "No module named"),
    ],
)
def test_one_wrong_target_leaves_everything_as_it_was(
    module: Any, target: Target, found: str
) -> None:
    before = module.Layer.mix
    with pytest.raises(PluginError, match=f"(?s)not as in vLLM 0.32.0.*{found}"):
        PatchSet([MIX, Patch("other", target, make)]).apply()
    assert module.Layer.mix is before


def test_a_failure_while_replacing_puts_the_earlier_ones_back(module: Any) -> None:
    def broken(original: Callable[..., Any]) -> Callable[..., Any]:
        raise MemoryError("planted")

    before = module.Layer.mix
    with pytest.raises(MemoryError):
        PatchSet([MIX, Patch("expand", EXPAND.target, broken)]).apply()
    assert module.Layer.mix is before


def test_another_plugins_replacement_is_refused(module: Any) -> None:
    def theirs(self: Any, x: Any) -> Any:
        return x

    module.Layer.mix = theirs
    with pytest.raises(PluginError, match="another plugin serves the hc route"):
        PatchSet([MIX]).apply()
    assert module.Layer.mix is theirs


def test_applying_twice_is_refused_as_a_second_plugin(module: Any) -> None:
    PatchSet([MIX]).apply()
    with pytest.raises(PluginError, match="another plugin"):
        PatchSet([MIX]).apply()


def test_two_routes_for_one_hook_are_refused(module: Any) -> None:
    before = module.Layer.mix
    with pytest.raises(PluginError, match="hc and page4 both hook"):
        PatchSet([MIX, Patch("page4", MIX.target, make)]).apply()
    assert module.Layer.mix is before


def test_a_target_that_is_only_called_is_checked_and_kept(module: Any) -> None:
    before = module.expand
    PatchSet([Patch("expand", EXPAND.target, None)]).apply()
    assert module.expand is before
    del module.expand
    with pytest.raises(PluginError, match="no such function"):
        PatchSet([Patch("expand", EXPAND.target, None)]).apply()


def test_a_later_replacement_is_noticed(module: Any) -> None:
    patches = PatchSet([MIX])
    patches.apply()
    module.Layer.mix = lambda self, x: x
    with pytest.raises(PluginError, match="replaced again after this plugin"):
        patches.check_intact()
