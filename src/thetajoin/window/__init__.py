"""Windows: which rows may still meet."""

from thetajoin.window.windows import CountWindow, FullHistory, TimeWindow, Window, window_from_dict

__all__ = ["CountWindow", "FullHistory", "TimeWindow", "Window", "window_from_dict"]
