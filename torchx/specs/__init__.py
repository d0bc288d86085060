"""What an application is: plain data that every other part of the project speaks."""

from __future__ import annotations
