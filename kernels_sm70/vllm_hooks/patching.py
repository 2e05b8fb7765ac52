# SPDX-License-Identifier: Apache-2.0
"""Replace attributes of vLLM's classes and modules: all of them or none.

Every target is resolved and checked before the first is replaced, and a failure while
replacing puts the earlier ones back: a half-applied plugin would serve a model that is in no
arm of the experiment.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from kernels_sm70.vllm_hooks.flags import PluginError

Function = Callable[..., Any]
MARK = "__kernels_sm70_route__"


@dataclass(frozen=True, slots=True)
class Target:
    """An attribute of vLLM: "package.module", "Class.method" or "function", its parameters."""

    module: str
    path: str
    parameters: tuple[str, ...]

    @property
    def name(self) -> str:
        """The target as messages write it."""
        return f"{self.module}:{self.path}"


@dataclass(frozen=True, slots=True)
class Patch:
    """A target, the route that wants it, and original -> replacement.

    `make` None: the target is only checked, since the route calls it.
    """

    route: str
    target: Target
    make: Callable[[Function], Function] | None


@dataclass(frozen=True, slots=True)
class _Resolved:
    patch: Patch
    owner: Any
    attribute: str
    original: Function


class PatchSet:
    """The patches of one process: `apply` once, `intact` later, `undo` for tests."""

    def __init__(self, patches: Iterable[Patch]) -> None:
        self._patches = tuple(patches)
        self._applied: list[tuple[_Resolved, Function]] = []

    def apply(self) -> None:
        """Check every target, then replace them all.

        Raises:
            PluginError: a target is missing, has another signature, is wanted twice, or was
                replaced by another plugin; nothing stays replaced.
        """
        resolved = [_resolve(patch) for patch in self._patches]
        _refuse_duplicates(self._patches)
        try:
            for item in resolved:
                if item.patch.make is None:
                    continue
                replacement = item.patch.make(item.original)
                setattr(replacement, MARK, item.patch.route)
                setattr(item.owner, item.attribute, replacement)
                self._applied.append((item, replacement))
        except BaseException:
            self.undo()
            raise

    def undo(self) -> None:
        """Put every original back, last replaced first."""
        while self._applied:
            item, _ = self._applied.pop()
            setattr(item.owner, item.attribute, item.original)

    def check_intact(self) -> None:
        """Raise PluginError if a target no longer holds our replacement."""
        for item, replacement in self._applied:
            found = vars(item.owner).get(item.attribute)
            if found is not replacement:
                raise PluginError(
                    f"kernels_sm70: {item.patch.target.name} was replaced again after this plugin, "
                    f"by {_origin(found)}; the {item.patch.route} route would never run. "
                    "Load one plugin for a route (VLLM_PLUGINS)."
                )


def _resolve(patch: Patch) -> _Resolved:
    target = patch.target
    try:
        owner: Any = import_module(target.module)
    except ImportError as error:
        raise _missing(patch, str(error)) from error
    *parents, attribute = target.path.split(".")
    for parent in parents:
        owner = getattr(owner, parent, None)
    original = vars(owner).get(attribute) if owner is not None else None
    if not inspect.isfunction(original):
        raise _missing(patch, "no such function")
    if original.__module__ != target.module:
        raise PluginError(
            f"kernels_sm70: {target.name} already comes from {_origin(original)}: another plugin "
            f"serves the {patch.route} route. Load one plugin for a route (VLLM_PLUGINS)."
        )
    found = tuple(inspect.signature(original).parameters)
    if found != target.parameters:
        raise _missing(patch, f"its parameters are {found}, expected {target.parameters}")
    return _Resolved(patch, owner, attribute, original)


def _missing(patch: Patch, found: str) -> PluginError:
    return PluginError(
        f"kernels_sm70: the {patch.route} route hooks {patch.target.name}, which is not as in "
        f"vLLM 0.32.0: {found}. Turn its flag off or install vLLM 0.32.0."
    )


def _origin(value: Any) -> str:
    return f"{getattr(value, '__module__', '?')}:{getattr(value, '__qualname__', repr(value))}"


def _refuse_duplicates(patches: tuple[Patch, ...]) -> None:
    seen: dict[str, str] = {}
    for patch in patches:
        other = seen.setdefault(patch.target.name, patch.route)
        if other != patch.route:
            raise PluginError(
                f"kernels_sm70: the routes {other} and {patch.route} both hook "
                f"{patch.target.name}; turn one of their flags off."
            )
