"""What deploy/ holds is whole: manifests of known fields, options that the command has, probes on paths that exist.

SCHEMA   The part of Kubernetes' that is used here, written down by hand: a field of another name, or of another type,
         is a mistake.  Nothing is asked of a cluster, and no image is built.
"""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
import warnings
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from headwater.cli.main import app
from headwater.server.settings import ServerSettings

DEPLOY = Path(__file__).resolve().parent.parent / "deploy"
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
CONTAINERFILE = (DEPLOY / "Containerfile").read_text()
UNIT = DEPLOY / "systemd" / "headwater.service"
USER = 10001


class Part(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """A part of a manifest: its fields, and no others."""


class Metadata(Part):
    name: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class ServicePort(Part):
    name: str
    port: int
    target_port: str


class ServiceSpec(Part):
    selector: dict[str, str]
    ports: list[ServicePort]
    cluster_ip: str = msgspec.field(default="", name="clusterIP")


class Service(Part, tag_field="kind", tag="Service"):
    api_version: str
    metadata: Metadata
    spec: ServiceSpec


class ConfigMap(Part, tag_field="kind", tag="ConfigMap"):
    api_version: str
    metadata: Metadata
    data: dict[str, str]


class HttpGet(Part):
    path: str
    port: str
    scheme: str


class Probe(Part):
    http_get: HttpGet
    period_seconds: int
    failure_threshold: int = 3
    timeout_seconds: int = 1


class Capabilities(Part):
    drop: list[str]


class ContainerSecurity(Part):
    allow_privilege_escalation: bool
    read_only_root_filesystem: bool
    capabilities: Capabilities


class Seccomp(Part):
    type: str


class PodSecurity(Part):
    run_as_non_root: bool
    run_as_user: int
    run_as_group: int
    fs_group: int
    seccomp_profile: Seccomp


class Mount(Part):
    name: str
    mount_path: str
    read_only: bool = False


class Port(Part):
    name: str
    container_port: int


class Variable(Part):
    name: str
    value: str


class Named(Part):
    name: str


class VariablesFrom(Part):
    config_map_ref: Named | None = None
    secret_ref: Named | None = None


class Container(Part):
    name: str
    image: str
    args: list[str]
    resources: dict[str, dict[str, str]]
    security_context: ContainerSecurity
    volume_mounts: list[Mount]
    ports: list[Port] = []
    env: list[Variable] = []
    env_from: list[VariablesFrom] = []
    working_dir: str = ""
    startup_probe: Probe | None = None
    liveness_probe: Probe | None = None
    readiness_probe: Probe | None = None


class SecretVolume(Part):
    secret_name: str
    default_mode: int


class Volume(Part):
    name: str
    secret: SecretVolume | None = None
    config_map: Named | None = None
    empty_dir: dict[str, str] | None = None


class Labels(Part):
    match_labels: dict[str, str]


class Spread(Part):
    max_skew: int
    topology_key: str
    when_unsatisfiable: str
    label_selector: Labels


class PodSpec(Part):
    containers: list[Container]
    volumes: list[Volume]
    security_context: PodSecurity
    automount_service_account_token: bool
    termination_grace_period_seconds: int = 30
    topology_spread_constraints: list[Spread] = []


class Template(Part):
    metadata: Metadata
    spec: PodSpec


class Strategy(Part):
    type: str


class DeploymentSpec(Part):
    replicas: int
    selector: Labels
    template: Template
    strategy: Strategy | None = None


class Deployment(Part, tag_field="kind", tag="Deployment"):
    api_version: str
    metadata: Metadata
    spec: DeploymentSpec


class ClaimSpec(Part):
    access_modes: list[str]
    resources: dict[str, dict[str, str]]


class Claim(Part):
    metadata: Metadata
    spec: ClaimSpec


class StatefulSpec(Part):
    service_name: str
    replicas: int
    selector: Labels
    template: Template
    volume_claim_templates: list[Claim]


class StatefulSet(Part, tag_field="kind", tag="StatefulSet"):
    api_version: str
    metadata: Metadata
    spec: StatefulSpec


Manifest = Service | ConfigMap | Deployment | StatefulSet
VERSIONS = {Service: "v1", ConfigMap: "v1", Deployment: "apps/v1", StatefulSet: "apps/v1"}


def manifests(path: Path) -> list[Manifest]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the parser is older than this Python
        from strictyaml import ruamel  # type: ignore[import-untyped]

        documents: list[Any] = list(ruamel.YAML(typ="safe", pure=True).load_all(path.read_text()))
    return [msgspec.convert(each, Manifest) for each in documents]


@functools.cache
def options_of_serve() -> set[str]:
    """As the command itself names them."""
    shown = CliRunner().invoke(app, ["serve", "--help"], env={"TERMINAL_WIDTH": "200", "NO_COLOR": "1"})
    return set(re.findall(r"--[a-z-]+", shown.stdout))


def check_options(words: list[str]) -> None:
    assert words[0] == "serve"
    given = {word.partition("=")[0] for word in words if word.startswith("--")}
    assert given <= options_of_serve(), given - options_of_serve()


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_a_manifest_has_known_fields_and_hangs_together(path: Path) -> None:
    found = manifests(path)

    for each in found:
        assert each.api_version == VERSIONS[type(each)]
    pods = [each.spec for each in found if isinstance(each, Deployment | StatefulSet)]
    assert pods
    for pod in pods:
        labels = pod.template.metadata.labels
        assert pod.selector.match_labels.items() <= labels.items()
        volumes = {each.name for each in pod.template.spec.volumes}
        if isinstance(pod, StatefulSpec):
            volumes |= {each.metadata.name for each in pod.volume_claim_templates}
        (container,) = pod.template.spec.containers
        assert {each.name for each in container.volume_mounts} <= volumes
        security = pod.template.spec.security_context
        assert security.run_as_non_root and security.run_as_user == USER
        assert container.security_context.read_only_root_filesystem
        assert not container.security_context.allow_privilege_escalation
        for service in [each for each in found if isinstance(each, Service)]:
            assert service.spec.selector.items() <= labels.items()
            assert {each.target_port for each in service.spec.ports} <= {each.name for each in container.ports}


@pytest.mark.parametrize("path", [path for path in MANIFESTS if path.stem != "client"], ids=lambda path: path.stem)
def test_a_pod_is_started_with_options_that_there_are_and_asked_where_it_answers(path: Path) -> None:
    (pod,) = [each.spec.template.spec for each in manifests(path) if isinstance(each, Deployment | StatefulSet)]
    (container,) = pod.containers

    check_options(container.args)
    assert {"--tokens", "--tls-cert", "--tls-key"} <= {each.partition("=")[0] for each in container.args}
    probes = (container.startup_probe, container.liveness_probe, container.readiness_probe)
    assert [probe.http_get.path for probe in probes if probe] == ["/livez", "/livez", "/readyz"]
    assert {probe.http_get.port for probe in probes if probe} <= {port.name for port in container.ports}
    (stop_s,) = [float(word.partition("=")[2]) for word in container.args if word.startswith("--stop-s=")]
    assert pod.termination_grace_period_seconds > stop_s


def test_the_container_runs_without_root_and_is_healthy_when_it_is_ready() -> None:
    lines = re.sub(r"\\\n", " ", CONTAINERFILE).splitlines()
    instructions = [line.split(None, 1) for line in lines if line and not line.startswith("#")]
    names = [name for name, _ in instructions]

    known = "ARG FROM ENV WORKDIR COPY RUN USER VOLUME EXPOSE STOPSIGNAL HEALTHCHECK ENTRYPOINT CMD"
    assert set(names) <= set(known.split())
    assert dict(instructions)["USER"] == f"{USER}:{USER}"
    assert names.index("USER") < names.index("ENTRYPOINT"), "nothing of ours is started by root"
    assert "/readyz" in dict(instructions)["HEALTHCHECK"]
    check_options(msgspec.json.decode(dict(instructions)["CMD"]))
    ports = {int(each) for each in dict(instructions)["EXPOSE"].split()}
    assert ports == {ServerSettings().listen[1], (ServerSettings().http or ("", 0))[1]}
    for copied in re.findall(r"^COPY (?!--from)(.*) \S+$", CONTAINERFILE, re.MULTILINE):
        for name in copied.split():
            assert (DEPLOY.parent / name).exists(), name


def test_the_unit_is_one_that_systemd_reads(tmp_path: Path) -> None:
    text = UNIT.read_text()
    assert "ExecStart=/opt/headwater/bin/headwater serve /var/lib/headwater $OPTIONS" in text
    assert "Restart=on-failure" in text
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze on this machine")
    # The command and its user are not installed here.
    text = text.replace("/opt/headwater/bin/headwater", "/bin/true").replace("User=headwater", "User=root")
    unit = tmp_path / UNIT.name
    unit.write_text(text.replace("Group=headwater", "Group=root"))

    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, timeout=60)

    assert done.returncode == 0, done.stderr
    assert str(unit) not in done.stderr, "nothing in it is unknown or ignored"
