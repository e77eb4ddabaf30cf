"""What the Flex Template's launcher runs: builds the job of a headcount command, hands it over, and does not wait.

The job's last step commits the output, so nobody has to wait for the end: it is complete when report.json is there.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from parameters import to_command_line

from headcount.mechanisms.errors import ParameterError
from headcount.pipelines.main import main

IMAGE = "HEADCOUNT_IMAGE"  # the name of the image that this runs in, for the workers to use the same

_BEAM_FLAGS = ["--runner=DataflowRunner", "--no_wait_until_finish", "--no_save_main_session"]


def launch(words: Sequence[str]) -> int:
    """Launch what the parameters ask for, and return the exit status; what they say of Beam wins over what is set here."""
    try:
        command, *flags = to_command_line([*_own_flags(), *words])
        if not any(flag.startswith("--sdk_container_image=") for flag in flags):
            raise ParameterError(f"the workers' image is not known: set sdk_container_image, or {IMAGE} in the image")
    except ParameterError as error:
        print(f"headcount: {error}", file=sys.stderr)
        return 2
    return main([command, *flags])


def _own_flags() -> list[str]:
    image = os.environ.get(IMAGE)
    return [*_BEAM_FLAGS, *([f"--sdk_container_image={image}"] if image else [])]


if __name__ == "__main__":
    sys.exit(launch(sys.argv[1:]))
