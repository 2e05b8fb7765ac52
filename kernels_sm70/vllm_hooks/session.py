# SPDX-License-Identifier: Apache-2.0
"""What the plugin does at three moments of a worker's life: registered, model loaded, warmed up.

Counters and kernels are made ready when the model has been loaded, before any CUDA graph is
captured: inside a capture an allocation would belong to the graph and a module load is refused.
The counts are set to zero when warm-up is over, so that a profiling run or a capture can never
make a route look used.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from kernels_sm70.vllm_hooks.flags import FLAGS, PluginError
from kernels_sm70.vllm_hooks.patching import Patch, PatchSet, Target
from kernels_sm70.vllm_hooks.route_hits import DIRECTORY_ENV, ProcessFacts, Writer

GPU_WORKER, CPU_WORKER = "vllm.v1.worker.gpu_worker", "vllm.v1.worker.cpu_worker"


class Hook(Protocol):
    """What each module under vllm_hooks that serves a flag offers."""

    ROUTE: str
    OPERATIONS: tuple[str, ...]
    COUNTERS: tuple[str, ...]

    def patches(self, *, architecture: str) -> tuple[Patch, ...]:
        """The attributes to replace on this device."""
        ...

    def modules(self, model: Any) -> Iterator[Any]:
        """The model's modules that the route serves."""
        ...

    def prepare(self, module: Any, device: Any) -> None:
        """Load the kernels and make what a call needs, for one module."""
        ...


@dataclass(slots=True)
class Session:
    """One process with at least one flag on."""

    flags: dict[str, bool]
    hooks: tuple[Hook, ...]
    vllm_version: str
    architecture: str
    plugin_version: str
    patch_set: PatchSet = field(init=False)
    writer: Writer | None = None
    device: Any = None
    rank: int = 0

    def __post_init__(self) -> None:
        routes = [p for hook in self.hooks for p in hook.patches(architecture=self.architecture)]
        self.patch_set = PatchSet([*routes, *self._lifecycle_patches()])

    def _lifecycle_patches(self) -> Iterator[Patch]:
        loaded = Target(GPU_WORKER, "Worker.load_model", ("self", "load_dummy_weights"))
        yield Patch("lifecycle", loaded, self._wrap(self.after_load))
        on_cpu = self.architecture == "cpu"
        warmed = Target(
            CPU_WORKER if on_cpu else GPU_WORKER,
            "CPUWorker.compile_or_warm_up_model" if on_cpu else "Worker.compile_or_warm_up_model",
            ("self",),
        )
        yield Patch("lifecycle", warmed, self._wrap(self.after_warmup))

    def _wrap(
        self, then: Callable[[Any], None]
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Wrap a worker's method: refuse a second plugin before it runs, call `then` after it."""

        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            def wrapped(worker: Any, *args: Any, **kwargs: Any) -> Any:
                # All plugins are loaded by now; this is the last moment before the weights.
                self.patch_set.check_intact()
                result = original(worker, *args, **kwargs)
                then(worker)
                return result

            return wrapped

        return make

    def after_load(self, worker: Any) -> None:
        """Check that every route has something to serve, then make counters and kernels ready."""
        from kernels_sm70 import counters

        self.patch_set.check_intact()
        self.rank = int(worker.rank)
        model = worker.model_runner.get_model()
        self.device = next(model.parameters()).device
        counters.prepare(tuple(name for hook in self.hooks for name in hook.COUNTERS), self.device)
        for hook in self.hooks:
            found = list(hook.modules(model))
            if not found:
                raise PluginError(
                    f"kernels_sm70: the {hook.ROUTE} flag is on, but {type(model).__name__} has no "
                    "module that the route serves. Turn the flag off for this model."
                )
            for module in found:
                hook.prepare(module, self.device)

    def after_warmup(self, worker: Any) -> None:
        """Forget the counts of profiling and capture; begin to publish."""
        from kernels_sm70 import counters

        del worker
        self.patch_set.check_intact()
        counters.reset()
        if self.device.type != "cpu":
            import torch

            torch.cuda.synchronize(self.device)  # the reader's stream must not see older counts
        directory = os.environ.get(DIRECTORY_ENV)
        if directory and self.writer is None:
            self.writer = Writer(Path(directory), self._facts(), self._reader())
            self.writer.start(self._prepare_reader_thread)

    def _facts(self) -> ProcessFacts:
        import torch

        on_cpu = self.device.type == "cpu"
        return ProcessFacts(
            plugin_version=self.plugin_version,
            rank=self.rank,
            vllm_version=self.vllm_version,
            device="cpu" if on_cpu else str(torch.cuda.get_device_name(self.device)),
            flags=self.flags,
            flag_routes=dict(self._flag_routes()),
            kernels=dict(_digests(self.hooks, self.architecture)),
        )

    def _flag_routes(self) -> Iterator[tuple[str, str]]:
        wanted = [flag.variable for flag in FLAGS if self.flags[flag.variable]]
        for variable, hook in zip(wanted, self.hooks, strict=True):
            yield variable, hook.ROUTE

    def _reader(self) -> Callable[[], Any]:
        from kernels_sm70 import counters

        if self.device.type == "cpu":
            return counters.snapshot
        import torch

        stream = torch.cuda.Stream(self.device)

        def read() -> Any:
            with torch.cuda.device(self.device), torch.cuda.stream(stream):
                return counters.snapshot()

        return read

    def _prepare_reader_thread(self) -> None:
        """Relax the driver's capture checks for the calling thread (see route_hits)."""
        if self.device.type == "cpu":
            return
        from cuda.bindings import driver

        mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        status, _ = driver.cuThreadExchangeStreamCaptureMode(mode)
        if int(status) != 0:
            raise RuntimeError(f"cuThreadExchangeStreamCaptureMode: status {int(status)}")


def _digests(hooks: Iterable[Hook], architecture: str) -> Iterator[tuple[str, str]]:
    """What ran: cubin digests on a GPU, the kernel sources' digests beside the CPU reference."""
    from kernels_sm70.build import build, source_digest

    for operation in sorted({name for hook in hooks for name in hook.OPERATIONS}):
        if architecture == "cpu":
            yield f"{operation}.cpu_reference", source_digest(operation)
        else:
            yield f"{operation}.{architecture}", build(operation, architecture).stamp.cubin_digest
