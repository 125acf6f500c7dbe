"""Builds the template `code-interpreter-v1`, or another name, from base.

The packages are fetched by this host, so the sandbox of the build needs no network. Needs pip and
the SDK (`pip install e2b`), with E2B_API_URL, E2B_SANDBOX_URL and E2B_API_KEY.
"""

import pathlib
import subprocess
import sys

from e2b import Template, default_build_logger, wait_for_url

HERE = pathlib.Path(__file__).parent
# Of the Python that base has.
PLATFORMS = ["manylinux2014_x86_64", "manylinux_2_17_x86_64", "manylinux_2_27_x86_64", "manylinux_2_28_x86_64", "any"]
PLACE = "/opt/code-interpreter"


def fetch(into):
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary", ":all:"]
    command += ["--python-version", "3.11", "--dest", str(into)]
    for platform in PLATFORMS:
        command += ["--platform", platform]
    subprocess.run([*command, "-r", str(HERE / "requirements.txt")], check=True)


def main():
    name = sys.argv[1] if len(sys.argv) > 1 else "code-interpreter-v1"
    wheels = HERE / "wheels"
    if not wheels.exists():
        fetch(wheels)
    install = (
        f"PYTHONPATH=$(echo {PLACE}/wheels/pip-*.whl) python3 -m pip install --quiet --no-index --break-system-packages"
        f" --find-links {PLACE}/wheels --root-user-action ignore -r {PLACE}/requirements.txt"
        f" && python3 -m bash_kernel.install --sys-prefix"
        f" && mkdir -p /etc/ipython && rm -r {PLACE}/wheels"
        f" && printf 'c.InteractiveShellApp.exec_files = [\"{PLACE}/startup.py\"]\\n'"
        f" > /etc/ipython/ipython_kernel_config.py"
    )
    template = (
        Template(file_context_path=str(HERE))
        .from_template("base")
        .copy("wheels", f"{PLACE}/wheels", user="root")
        .copy("requirements.txt", f"{PLACE}/requirements.txt", user="root")
        .copy("startup.py", f"{PLACE}/startup.py", user="root")
        .run_cmd(install, user="root")
        .copy("service.py", f"{PLACE}/service.py", user="root")
        .set_start_cmd(f"python3 {PLACE}/service.py", wait_for_url("http://localhost:49999/health"))
    )
    Template.build(template, name, cpu_count=2, memory_mb=1024, on_build_logs=default_build_logger())


if __name__ == "__main__":
    main()
