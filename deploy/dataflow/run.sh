#!/usr/bin/env bash
# Launches a headcount command as a job on Dataflow, from the template that build.sh wrote.
set -euo pipefail

usage() {
  cat <<'END'
usage: PROJECT=... REGION=... TEMPLATE=... TEMP=... run.sh COMMAND [FLAGS OF HEADCOUNT] [-- FLAGS OF GCLOUD]

Launches a headcount command on Dataflow and returns; the output is complete when its report.json is there.

  PROJECT    the project to run in
  REGION     where to run, such as europe-west1
  TEMPLATE   the template that build.sh wrote: gs://BUCKET/headcount.json
  TEMP       for temporary and staged files: gs://BUCKET/tmp
  PYTHON     a Python with Headcount, if it is not that of the checkout's .venv or of the PATH

example:
  run.sh histogram --input 'gs://b/events-*.parquet' --user user_id --item query --epsilon 1 --delta 1e-8 --bound 10 \
      --key-secret projects/P/secrets/headcount-key/versions/1 --output gs://b/out \
      -- --service-account-email=counter@P.iam.gserviceaccount.com --worker-machine-type=n2-standard-4 --max-workers=20

docs/dataflow.md has the rest.
END
}

if [[ ${1-} == -h || ${1-} == --help ]]; then
  usage
  exit 0
fi
if [[ $# -eq 0 || $1 == -* ]]; then
  usage >&2
  exit 2
fi
for name in PROJECT REGION TEMPLATE TEMP; do
  if [[ -z ${!name-} ]]; then
    echo "run.sh: set $name; see run.sh --help" >&2
    exit 2
  fi
done
for name in TEMPLATE TEMP; do
  if [[ ${!name} != gs://*/* ]]; then
    echo "run.sh: $name must be a path in a bucket, gs://BUCKET/NAME, got '${!name}'" >&2
    exit 2
  fi
done
if ! command -v gcloud >/dev/null; then
  echo "run.sh: gcloud is not installed: https://cloud.google.com/sdk/docs/install" >&2
  exit 2
fi

words=()
while [[ $# -gt 0 && $1 != -- ]]; do
  words+=("$1")
  shift
done
[[ $# -eq 0 ]] || shift # what is left is for gcloud

here=$(cd -P -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
python=$here/../../.venv/bin/python
[[ -x $python ]] || python=python3
flags=$(mktemp)
trap 'rm -f "$flags"' EXIT
"${PYTHON:-$python}" "$here/parameters.py" "${words[@]}" >"$flags"
gcloud dataflow flex-template run "headcount-${words[0]}-$(date -u +%Y%m%d-%H%M%S)" --project "$PROJECT" --region "$REGION" \
  --template-file-gcs-location "$TEMPLATE" --temp-location "$TEMP" --staging-location "$TEMP/staging" \
  --flags-file "$flags" "$@"
