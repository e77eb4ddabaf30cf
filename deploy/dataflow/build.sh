#!/usr/bin/env bash
# Builds the image and the Flex Template of Headcount.
set -euo pipefail

usage() {
  cat <<'END'
usage: PROJECT=... IMAGE=... TEMPLATE=... build.sh

Builds the image of launcher and workers with Cloud Build, and writes the Flex Template that starts it.

  PROJECT    the project to build in
  IMAGE      the image to push: REGION-docker.pkg.dev/PROJECT/REPOSITORY/headcount:TAG, with a tag of its own for each build
  TEMPLATE   the template to write: gs://BUCKET/headcount.json

The repository and the bucket must be there. run.sh launches jobs; docs/dataflow.md has the rest.
END
}

case ${1-} in
  '') ;;
  -h | --help) usage; exit 0 ;;
  *) usage >&2; exit 2 ;;
esac
for name in PROJECT IMAGE TEMPLATE; do
  if [[ -z ${!name-} ]]; then
    echo "build.sh: set $name; see build.sh --help" >&2
    exit 2
  fi
done
if [[ $TEMPLATE != gs://*/* ]]; then
  echo "build.sh: TEMPLATE must be a file in a bucket, gs://BUCKET/NAME.json, got '$TEMPLATE'" >&2
  exit 2
fi
if ! command -v gcloud >/dev/null; then
  echo "build.sh: gcloud is not installed: https://cloud.google.com/sdk/docs/install" >&2
  exit 2
fi

here=$(cd -P -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
# The version, where the tree is that of a tag; Cloud Build gets no tags.
tag=$(git -C "$here" describe --tags --exact-match --match 'v[0-9]*' 2>/dev/null || true)
gcloud builds submit "$here/../.." --project "$PROJECT" --config "$here/cloudbuild.yaml" \
  --substitutions "_IMAGE=$IMAGE,_VERSION=${tag#v}"
gcloud dataflow flex-template build "$TEMPLATE" --project "$PROJECT" --image "$IMAGE" --sdk-language PYTHON \
  --metadata-file "$here/metadata.json"
