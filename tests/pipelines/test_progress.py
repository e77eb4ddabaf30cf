"""The progress line: words, and silence where there is no terminal."""

import io
import time

from headcount.pipelines import progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_line():
    assert progress.line(0, 0.0, 1.2, "starting") == "0 rows read, starting, 0:01"
    text = progress.line(3_000_000, 2.0, 75.0, "counting")
    assert text == "3,000,000 rows read, 1,500,000 rows/s, counting, 1:15"


def test_a_terminal_sees_rows_and_stages(monkeypatch):
    monkeypatch.setattr(progress, "_INTERVAL", 0.01)
    terminal = Terminal()
    with progress.Progress(terminal):
        progress.advance(1000)
        progress.stage("counting")
        deadline = time.monotonic() + 10
        while "1,000 rows read" not in terminal.getvalue() and time.monotonic() < deadline:
            time.sleep(0.01)
    assert "counting" in terminal.getvalue()
    assert "1,000 rows in" in terminal.getvalue().rsplit("\x1b[K", 1)[1]


def test_anything_else_sees_nothing():
    stream = io.StringIO()
    with progress.Progress(stream):
        progress.advance(1000)
    assert stream.getvalue() == ""


def test_a_failed_run_has_no_summary_and_the_next_starts_at_zero():
    terminal = Terminal()
    try:
        with progress.Progress(terminal):
            progress.advance(1000)
            raise RuntimeError
    except RuntimeError:
        pass
    assert "rows in" not in terminal.getvalue()
    with progress.Progress(terminal):
        pass
    assert "rows in" not in terminal.getvalue()
