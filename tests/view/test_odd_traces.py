"""Every scene takes every odd trace: a widget, or a widget that says why there is nothing to see."""

import odd_traces as odd
import pytest


@pytest.mark.parametrize("scene", odd.SCENES)
@pytest.mark.parametrize("oddity", odd.ODD)
def test_every_scene_takes_every_oddity(scene, oddity):
    trace = odd.ODD[oddity](scene)
    widget = odd.SCENES[scene](trace)
    missing = getattr(widget, "missing", "")
    assert missing == "" or len(missing) > 30
    if oddity in ("no length", "huge names", "markup"):
        assert missing == "", "names and lengths are no reason to draw nothing"
