#!/usr/bin/env sh
# A Spark cluster on this machine, and jobs on it or on one of your own:
#   spark.sh start                        starts it (the first time, fetches its jars) and waits until it answers
#   spark.sh submit histogram --input ... runs any headcount command that takes Beam's flags on it
#   spark.sh status                       shows the cluster and its jobs
#   spark.sh stop                         cancels what is running and ends what start started
# Each takes --help. PYTHON names a Python with Headcount, if it is not that of the checkout's .venv or of the PATH.
set -eu
here=$(cd -P -- "$(dirname -- "$0")" && pwd)
python=$here/../../.venv/bin/python
[ -x "$python" ] || python=python3
exec "${PYTHON:-$python}" "$here/standalone.py" "$@"
