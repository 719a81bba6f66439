"""Versions and hardware, as environment.json tells them."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

_PACKAGES = ("gcfl", "torch", "numpy", "scipy", "scikit-learn", "pydantic", "safetensors")


def environment_of(device: str, workers: int) -> dict[str, Any]:
    """Versions, processor, memory; nothing that names a person or a machine."""
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "packages": {name: metadata.version(name) for name in _PACKAGES},
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "device": device if device == "cpu" else f"{device} ({_accelerator(device)})",
        "workers": workers,
    }


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _accelerator(device: str) -> str:
    return torch.cuda.get_device_name(device) if device.startswith("cuda") else device
