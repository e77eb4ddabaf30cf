"""What the tests of the command line share."""

import pytest

from headcount.pipelines.main import main


@pytest.fixture
def run(capsys):
    """Runs one command line in this process: (status, standard output, lines of standard error)."""

    def call(*argv):
        status = main([str(word) for word in argv])
        out, err = capsys.readouterr()
        return status, out, err.splitlines()

    return call
