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

# before every commit: lint, format, types, unit tests but the lake's; under 2 minutes
quick:
    {{ python }} -m ruff check .
    {{ python }} -m ruff format --check .
    {{ python }} -m mypy --strict src tests bench examples
    {{ python }} -m pytest -n 2 tests/unit tests/test_*.py --ignore=tests/unit/lake

# the lake's unit tests: each makes real tables in a real catalog, so they take two minutes of their own
lake:
    {{ python }} -m pytest -n 2 tests/unit/lake

# everything that CI runs, as CI runs it
test:
    bash .ci/run

# the long form of the checks, for a part that is called done and before a release
torture *ARGS:
    {{ python }} -m tests.torture {{ ARGS }}

# one question, its figures and its bars: just bench append --quick
bench NAME *ARGS:
    {{ python }} -m bench {{ NAME }} {{ ARGS }}

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
