"""The soak campaign: how it measures growth, and a short run."""

from __future__ import annotations

import json
import os
import shutil
import time
import zipfile
from pathlib import Path

import pytest

from campaigns import soak, soak_looks
from campaigns.names import CAMPAIGNS
from thetajoin.errors import OptionError


def test_growth_is_the_last_tenth_over_the_second() -> None:
    flat = [(batch, 8.0) for batch in range(1000)]
    assert soak_looks.grown(flat, 1000) == 1.0
    # What comes before the second tenth, while windows fill, and between the two does not count.
    assert (
        soak_looks.grown([(b, 8.0 if 100 <= b < 200 or b >= 900 else 99.0) for b, _ in flat], 1000)
        == 1
    )
    assert soak_looks.grown([(b, 8.0 if b < 950 else 9.0) for b, _ in flat], 1000) == pytest.approx(
        1.0625
    )


def test_growth_of_files_is_that_of_their_number_or_of_their_bytes(tmp_path: Path) -> None:
    watch = soak_looks.Watch(tmp_path, 100, 1.0)
    flat, more = (
        [(b, v) for b in range(100) for v in [5.0 + grows * (b > 50)]] for grows in (0, 1)
    )
    watch.samples = {"files": flat, "bytes": more, "restart": flat}
    growth = watch.growth()
    assert growth.pop("ratios") == {"files": 1.0, "bytes": 1.2, "restart": 1.0}
    assert growth == {
        "batches": 100,
        "memory_growth": None,
        "files_growth": 1.2,
        "restart_growth": 1.0,
    }


def test_a_restart_reads_the_newest_snapshot_and_the_changes_since(tmp_path: Path) -> None:
    (tmp_path / "SSTs").mkdir()
    for name, size in (("01-a.sst", 100), ("02-b.sst", 1000), ("03-c.sst", 10_000)):
        (tmp_path / "SSTs" / name).write_bytes(b"x" * size)
    for version in range(1, 8):
        (tmp_path / f"{version}.changelog").write_bytes(b"x" * version)
    (tmp_path / ".7.changelog.crc").write_bytes(b"x" * 500)
    assert soak_looks.restart_bytes(tmp_path) == 28
    for version, names in ((2, ["01-a.sst"]), (5, ["01-a.sst", "02-b.sst"])):
        sizes = [(tmp_path / "SSTs" / name).stat().st_size for name in names]
        files = [{"sizeBytes": size} for size in sizes]
        with zipfile.ZipFile(tmp_path / f"{version}.zip", "w") as archive:
            archive.writestr("metadata", "v1\n" + json.dumps({"sstFiles": files}))
    assert soak_looks.restart_bytes(tmp_path) == (tmp_path / "5.zip").stat().st_size + 1100 + 6 + 7
    assert soak_looks.restart_bytes(tmp_path / "none") == 0


def test_segments_that_nobody_will_remove_are_counted(tmp_path: Path) -> None:
    """A file written a moment ago may wait for its layout; an old one that none names is lost."""
    ago = time.time() - 2 * soak_looks.STALE
    for name, old in (("named", True), ("new", False), ("lost", True), ("t.pending", False)):
        (tmp_path / name).write_text(name)
        if old:
            os.utime(tmp_path / name, (ago, ago))
    layout = json.dumps({"token": "t", "l": ["named"], "r": []})
    (tmp_path / "t.json").write_text(layout)
    sizes = sorted(about.st_size for about in soak_looks.kept_segments(tmp_path))
    assert sizes == sorted([len("named"), len("lost"), len(layout)])


def test_micro_batches_that_are_alike_give_as_many_rows() -> None:
    assert soak.check_outputs([(50, 7), (51, 7)]) == 7
    for wrong in ([(50, 7), (51, 8)], [(50, 0)], []):
        with pytest.raises(RuntimeError, match="alike"):
            soak.check_outputs(wrong)


def test_too_few_micro_batches_and_foreign_options_are_refused() -> None:
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    with pytest.raises(OptionError, match="at least 100"):
        CAMPAIGNS.run("soak", as_json=True, scale=1.0, words=["--batches", "10"])
    with pytest.raises(OptionError, match="campaign faults has no option '--batches'"):
        CAMPAIGNS.run("faults", as_json=True, scale=1.0, words=["--batches", "10"])


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(1500)
def test_a_short_soak_measures_everything() -> None:
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    if shutil.which("java") is None or not Path("/proc").exists():
        pytest.skip("needs Java and Linux's /proc")
    report = soak.run(lambda _: None, batches=200)
    assert report.figures["batches"] == 200
    assert report.details["soak"]["outputs"] > 0
    for key in ("files_growth", "restart_growth"):
        assert 0.5 < (report.figures[key] or 0) < 2, report.figures
    if shutil.which("jcmd"):
        assert 0.5 < (report.figures["memory_growth"] or 0) < 2
