#!/usr/bin/env bash
# Installs the vendors' libraries in a folder, for tests/it/sdk.rs, and says on stdout where they are:
#
#   eval "$(tests/sdk/install.sh DIR)"
#
# Exactly the versions that are written down beside this file, and none of their scripts is run. Where Node or Python is
# missing, its libraries are left out; with CI=true they are installed with apt-get.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

dir="${1:?a folder}"
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)

tools() {
    local missing=()
    command -v npm >/dev/null || missing+=(nodejs npm)
    python3 -c 'import venv, ensurepip' 2>/dev/null || missing+=(python3 python3-venv)
    if ((${#missing[@]} == 0)) || [[ ${CI:-false} != true ]]; then return; fi
    if [[ $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
        echo "missing: ${missing[*]} (on Debian: apt-get install ${missing[*]})" >&2
        return 1
    fi
    apt-get update -qq >&2
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2
}

node() {
    mkdir -p "$dir/node"
    cp package.json package-lock.json "$dir/node/"
    npm ci --prefix "$dir/node" --ignore-scripts --no-audit --no-fund --loglevel error >&2
}

python() {
    python3 -m venv "$dir/python"
    "$dir/python/bin/pip" install --quiet --disable-pip-version-check --no-compile --only-binary :all: --requirement requirements.txt >&2
}

tools
pids=()
if command -v npm >/dev/null; then node & pids+=($!); else echo "no Node: its libraries are left out" >&2; fi
if python3 -c 'import venv, ensurepip' 2>/dev/null; then python & pids+=($!); else echo "no Python: its libraries are left out" >&2; fi
for pid in "${pids[@]}"; do wait "$pid"; done
if [[ -d $dir/node/node_modules ]]; then echo "export COUNTERSIGN_TEST_SDK_NODE=$dir/node"; fi
if [[ -x $dir/python/bin/python ]]; then echo "export COUNTERSIGN_TEST_SDK_PYTHON=$dir/python/bin/python"; fi
