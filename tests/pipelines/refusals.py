"""How the command line refuses: shared by its tests."""

CANARY = "canary4711"


def refused(result, *words):
    """Checks that a run of the command line said one line with these words, and nothing of the data."""
    status, out, err = result
    assert status == 2 and out == "" and len(err) == 1, result
    assert err[0].startswith("headcount: ") and all(word in err[0] for word in words), err
    assert CANARY not in err[0]
