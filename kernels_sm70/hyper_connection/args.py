# SPDX-License-Identifier: Apache-2.0
"""Args of the hyper-connection kernels: mirrors of the structs in kernel.cuh, field by field."""

from __future__ import annotations

import ctypes

_pointer, _long, _int = ctypes.c_void_p, ctypes.c_longlong, ctypes.c_int


class NormArgs(ctypes.Structure):
    """Mirror of NormArgs in kernel.cuh."""

    _fields_ = (
        *(
            (n, _pointer)
            for n in (
                "residual",
                "block",
                "injection",
                "weight",
                "combined",
                "normed",
                "arrivals",
                "hits",
            )
        ),
        *((n, _long) for n in ("residual_stride", "block_stride", "injection_stride")),
        *((n, _int) for n in ("rows", "hidden", "stream_weight_stride", "arrival_count")),
        ("eps", ctypes.c_float),
        ("reserved", _int),
    )


class DownArgs(ctypes.Structure):
    """Mirror of DownArgs in kernel.cuh."""

    _fields_ = (
        *(
            (n, _pointer)
            for n in ("normed", "weight", "lora", "injection", "partials", "arrivals", "hits")
        ),
        *((n, _long) for n in ("lora_stride", "injection_stride")),
        *((n, _int) for n in ("rows", "depth", "lora_rows", "injection_rows")),
    )


class CombineDownArgs(ctypes.Structure):
    """Mirror of CombineDownArgs in kernel.cuh."""

    _fields_ = (
        *(
            (n, _pointer)
            for n in (
                "residual",
                "block",
                "injection",
                "norm_weight",
                "weight",
                "combined",
                "normed",
                "lora",
                "logits",
                "hits",
            )
        ),
        *((n, _long) for n in ("residual_stride", "block_stride", "injection_stride")),
        *(
            (n, _int)
            for n in ("rows", "hidden", "stream_weight_stride", "lora_rows", "injection_rows")
        ),
        ("eps", ctypes.c_float),
    )


class UpArgs(ctypes.Structure):
    """Mirror of UpArgs in kernel.cuh."""

    _fields_ = (
        *((n, _pointer) for n in ("lora", "weight", "normed", "mixed", "hits")),
        *((n, _long) for n in ("lora_stride", "mixed_stride")),
        *((n, _int) for n in ("rows", "rank", "columns", "hidden")),
    )
