"""Builds the wheel: the package, the library with the module that is generated from it, and the command line.

`pip wheel bindings/python` runs this (PEP 517) and has cargo build what is missing. maturin is not used: the library that is
shipped has no symbols left, and its generator reads symbols; here the generator reads the library for Rust, which has them.
`PTERON_BUILT` names a folder that has all three built already: `libpteron_bindings.so`, `libpteron_bindings.rlib`, `pteron`.
"""

import base64
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
EXE = ".exe" if os.name == "nt" else ""
LIBRARY = {"win32": "pteron_bindings.dll", "darwin": "libpteron_bindings.dylib"}.get(sys.platform, "libpteron_bindings.so")


def _project() -> dict:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        from pip._vendor import tomli as tomllib
    return tomllib.loads((HERE / "pyproject.toml").read_text())["project"]


def _built() -> Path:
    """The folder with what cargo builds."""
    named = os.environ.get("PTERON_BUILT")
    if named:
        return Path(named)
    cargo = ["cargo", "build", "--release", "--package", "pteron-bindings", "--package", "pteron-cli"]
    subprocess.run(cargo, cwd=ROOT, check=True)
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"


def generate(built: Path, out: Path, language: str = "python") -> None:
    """Writes the module of a language from the library for Rust."""
    with tempfile.TemporaryDirectory() as folder:
        # The generator knows archives by their name.
        archive = Path(folder) / "libpteron_bindings.a"
        shutil.copy(built / "libpteron_bindings.rlib", archive)
        command = ["uniffi-bindgen", "generate", "--language", language, "--no-format", "--out-dir", str(out), str(archive)]
        subprocess.run(command, cwd=ROOT / "crates/bindings", check=True, stdout=sys.stderr)


def _metadata(project: dict) -> str:
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {project['name']}",
        f"Version: {project['version']}",
        f"Summary: {project['description']}",
        f"License-Expression: {project['license']}",
        f"Requires-Python: {project['requires-python']}",
        *(f"Classifier: {classifier}" for classifier in project["classifiers"]),
    ]
    for extra, packages in project["optional-dependencies"].items():
        lines.append(f"Provides-Extra: {extra}")
        lines += [f"Requires-Dist: {package}; extra == '{extra}'" for package in packages]
    lines.append("Description-Content-Type: text/markdown")
    return "\n".join(lines) + "\n\n" + (HERE / project["readme"]).read_text()


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None) -> str:
    project, built = _project(), _built()
    tag = "py3-none-" + sysconfig.get_platform().replace("-", "_").replace(".", "_")
    name = f"{project['name']}-{project['version']}"
    about = f"{name}.dist-info"
    files: list[tuple[str, bytes, int]] = []
    for path in sorted((HERE / "pteron").iterdir()):
        if path.name == "py.typed" or (path.suffix in (".py", ".pyi") and path.name != "pteron.py"):
            files.append((f"pteron/{path.name}", path.read_bytes(), 0o644))
    with tempfile.TemporaryDirectory() as folder:
        generate(built, Path(folder))
        files.append(("pteron/pteron.py", (Path(folder) / "pteron.py").read_bytes(), 0o644))
    files.append((f"pteron/{LIBRARY}", (built / LIBRARY).read_bytes(), 0o755))
    files.append((f"{name}.data/scripts/pteron{EXE}", (built / f"pteron{EXE}").read_bytes(), 0o755))
    for licence in ("LICENSE-MIT", "LICENSE-APACHE"):
        files.append((f"{about}/licenses/{licence}", (ROOT / licence).read_bytes(), 0o644))
    files.append((f"{about}/METADATA", _metadata(project).encode(), 0o644))
    wheel = f"Wheel-Version: 1.0\nGenerator: wheel_of_pteron\nRoot-Is-Purelib: false\nTag: {tag}\n"
    files.append((f"{about}/WHEEL", wheel.encode(), 0o644))

    def digest(data: bytes) -> str:
        return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()

    record = "".join(f"{path},sha256={digest(data)},{len(data)}\n" for path, data, _ in files)
    files.append((f"{about}/RECORD", (record + f"{about}/RECORD,,\n").encode(), 0o644))
    file = f"{name}-{tag}.whl"
    with zipfile.ZipFile(Path(wheel_directory) / file, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data, mode in files:
            # The same input gives the same wheel.
            entry = zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0))
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, (0o100000 | mode) << 16
            archive.writestr(entry, data)
    return file


def build_sdist(sdist_directory, config_settings=None) -> str:
    raise NotImplementedError("the sources are those of the whole repository: build a wheel from a checkout")
