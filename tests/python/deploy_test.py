#!/usr/bin/env python3
"""The files of deploy/, held against the programs that read them and against the server they name.

Each check needs a program of its own (systemd, haproxy, promtool) and is skipped where that is missing."""
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import serving
from page_browser import get, serve
from serving import BINARY, ROOT, Skip

DEPLOY = ROOT / "deploy"


def need(name):
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")
    if not found:
        raise Skip(f"no {name} on this machine")
    return found


def must(*command, **options):
    result = subprocess.run(list(map(str, command)), text=True, capture_output=True, **options)
    assert result.returncode == 0, (result.stdout + result.stderr)[-1500:]
    return result.stdout + result.stderr


def test_unit():
    analyze = need("systemd-analyze")
    with tempfile.TemporaryDirectory() as folder:
        unit = Path(folder) / "sluice.service"
        text = (DEPLOY / "systemd/sluice.service").read_text()
        unit.write_text(text.replace("/usr/bin/sluice", sys.executable))
        said = must(analyze, "verify", "--man=no", unit)
        assert not said.strip(), said
        must(analyze, "security", "--offline=yes", "--threshold=20", unit)


def test_haproxy():
    must(need("haproxy"), "-c", "-f", DEPLOY / "haproxy/haproxy.cfg")


def test_slurm_script():
    must("bash", "-n", DEPLOY / "slurm/replicas.sbatch")


def manifests():
    """Every object of deploy/kubernetes, with the name of its file."""
    try:
        import yaml
    except ImportError:
        raise Skip("PyYAML is missing") from None
    for path in sorted((DEPLOY / "kubernetes").glob("*.yaml")):
        for one in yaml.safe_load_all(path.read_text()):
            yield path.name, one


def test_selectors_find_their_pods():
    for name, one in manifests():
        if "template" in one.get("spec", {}):
            wanted = one["spec"]["selector"]["matchLabels"].items()
            assert wanted <= one["spec"]["template"]["metadata"]["labels"].items(), (name, one["metadata"]["name"])


def test_manifests_meet_the_schemas_of_kubernetes():
    """The schemas that Kubernetes publishes, of the oldest and the newest release that the package has, without fields that
    these do not know."""
    validate = serving.package("kubernetes_validate")
    found = list(manifests())
    assert {name for name, _ in found} == {"group.yaml", "replicas.yaml", "router.yaml"}
    versions = validate.utils.all_versions()
    for version in (versions[0], versions[-1]):
        for _, one in found:
            validate.validate(one, version, strict=True)
    broken = dict(found[0][1], spec=dict(found[0][1]["spec"], replica=3))
    try:
        validate.validate(broken, versions[-1], strict=True)
    except validate.ValidationError:
        return
    raise AssertionError("a field that Kubernetes does not have was taken")


def test_commands_of_scripts_and_manifests():
    """Every flag of a `sluice VERB` in them is one that the verb has."""
    for name in ("slurm/replicas.sbatch", "kubernetes/replicas.yaml", "kubernetes/router.yaml", "kubernetes/group.yaml"):
        text = (DEPLOY / name).read_text()
        verbs = re.findall(r"(?:sluice,? |args: \[)(serve|route)\b", text)
        assert verbs, name
        known = "".join(must(BINARY, verb, "--help") for verb in set(verbs))
        lines = [line for line in text.splitlines() if not line.lstrip().startswith("#") and not re.search(r"srun|mpirun", line)]
        for flag in set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", "\n".join(lines))):
            assert re.search(rf"{flag}\b", known), f"{name}: no verb of {verbs} has {flag}"


def test_prometheus():
    must(need("promtool"), "check", "config", DEPLOY / "prometheus/prometheus.yml")


def names(text):
    """Metrics that an expression reads, with the endings of histograms cut off."""
    return {re.sub(r"_(bucket|sum|count)$", "", name) for name in re.findall(r"\b(?:sluice|process)_[a-z_]+", text)}


def test_names_are_those_of_the_server():
    board = json.loads((DEPLOY / "grafana/sluice.json").read_text())
    expressions = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    rules = (DEPLOY / "prometheus/sluice.rules.yml").read_text()
    used = names("\n".join(expressions + re.findall(r"expr: (.*)", rules)))
    with serve() as url:
        exposed = set(re.findall(r"^# TYPE (\S+)", get(url + "metrics")[2].decode(), flags=re.M))
    assert len(used) > 20 and used <= exposed, sorted(used - exposed)


def test_image_has_the_libraries():
    if not Path(BINARY).exists() or not Path("/etc/debian_version").exists() or \
            not Path("/etc/debian_version").read_text().startswith("12"):
        raise Skip("needs the program, built on Debian 12")
    # Those that it names itself: what they need, their packages depend on.
    needed = re.findall(r"\(NEEDED\).*\[(\S+)\]", must("readelf", "-d", BINARY))
    libraries = [path for name, path in re.findall(r"(\S+) => (\S+)", must("ldd", BINARY)) if name in needed]
    paths = {str(path) for library in libraries for path in (Path(library), Path(library).resolve(), Path("/usr" + library))}
    found = subprocess.run(["dpkg", "-S", *paths], text=True, capture_output=True).stdout
    packages = {line.partition(":")[0] for line in found.splitlines()} - {"libc6", "libgcc-s1", "libstdc++6"}
    image = (DEPLOY / "Dockerfile").read_text()
    assert packages and all(package in image for package in packages), packages


def test_the_image_is_made_from_bases_with_digests():
    image = (DEPLOY / "Dockerfile").read_text()
    arguments = dict(re.findall(r"^ARG (\w+)=(\S+)$", image, re.MULTILINE))
    stages = set(re.findall(r"^FROM \S+ AS (\w+)$", image, re.MULTILINE))
    bases = [re.sub(r"\$\{(\w+)\}", lambda found: arguments[found[1]], base) for base in re.findall(r"^FROM (\S+)", image, re.MULTILINE)]
    assert len(bases) == 2 and all(base in stages or re.fullmatch(r"\S+@sha256:[0-9a-f]{64}", base) for base in bases), bases


if __name__ == "__main__":
    sys.exit(serving.run_tests(serving.tests_of(sys.modules[__name__])))
