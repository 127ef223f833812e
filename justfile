# Every command of the house.  `.ci/run` needs none of this: it stands alone.

python := if path_exists(".venv/bin/python") == "true" { ".venv/bin/python" } else { "python3" }

# what there is
default:
    @just --list --unsorted

# an environment to work in, with the versions that CI uses
setup:
    python3 -m venv .venv
    .venv/bin/python -m pip install --require-hashes -r requirements/ci.txt
    .venv/bin/python -m pip install --no-deps --no-build-isolation -e .

# before every commit: lint, format, types, unit tests but the lake's, the server's, the demo's and the peers', no examples; under 2 minutes
quick:
    {{ python }} -m ruff check .
    {{ python }} -m ruff format --check .
    {{ python }} -m mypy --strict src tests bench examples
    {{ python }} -m pytest -n 2 --dist worksteal tests/unit tests/test_*.py --ignore=tests/unit/lake --ignore=tests/unit/server --ignore=tests/unit/client \
        --ignore=tests/unit/protocol --ignore=tests/unit/page --ignore=tests/unit/demo --ignore=tests/unit/peers --ignore=tests/unit/cli/test_servers.py --ignore=tests/test_examples.py

# the lake's unit tests: each makes real tables in a real catalog, so they take two minutes of their own
lake:
    {{ python }} -m pytest -n 2 --dist worksteal tests/unit/lake

# the unit tests of the server and its clients: each starts a real one, so they take a minute of their own
server:
    {{ python }} -m pytest -n 2 --dist worksteal tests/unit/server tests/unit/client tests/unit/protocol tests/unit/page tests/unit/cli/test_servers.py

# everything that CI runs, as CI runs it
test:
    bash .ci/run

# the long form of the checks, for a part that is called done and before a release
torture *ARGS:
    {{ python }} -m tests.torture {{ ARGS }}

# the docs: what is written from the code, written again; then the site, into site/
docs *ARGS:
    {{ python }} -m tests.docs.references
    NO_MKDOCS_2_WARNING=1 {{ python }} -m mkdocs build --strict {{ ARGS }}

# one question, its figures and its bars: just bench append --quick
bench NAME *ARGS:
    {{ python }} -m bench {{ NAME }} {{ ARGS }}

# docs/tutorial.md typed into tmux, word for word, in a new environment; --spark for its last part too
tutorial *ARGS:
    {{ python }} -m tests.tutorial {{ ARGS }}

# before a release: known holes in what we stand on (pip-audit), and a list of it (an SBOM, dist/sbom.cdx.json)
release-check *ARGS:
    {{ python }} -m tests.release_check {{ ARGS }}

# format, and mend what ruff can mend
fmt:
    {{ python }} -m ruff check --fix .
    {{ python }} -m ruff format .

# write requirements/ci.txt again from pyproject.toml, and go.txt from go.in; needs uv
lock *ARGS:
    uv pip compile pyproject.toml --extra dev --extra objects --extra lake --extra duckdb --extra postgres --extra spark --universal --python-version 3.11 --generate-hashes \
        --no-emit-index-url --custom-compile-command "just lock" --output-file requirements/ci.txt --quiet {{ ARGS }}
    uv pip compile requirements/go.in --universal --python-version 3.11 --generate-hashes \
        --no-emit-index-url --custom-compile-command "just lock" --output-file requirements/go.txt --quiet {{ ARGS }}
    ! grep -nE '://|--index-url|--find-links' requirements/ci.txt requirements/go.txt
