"""The documented base class of unit tests for components."""

from __future__ import annotations

import os
import tempfile
import unittest
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any
from unittest import mock

from torchx import specs


class ComponentTestCase(unittest.TestCase):
    """Tests of components: by name, and by running them.

    Example::

        class TrainTest(ComponentTestCase):
            def test_train(self) -> None:
                self.validate(my_components, "train")
    """

    def setUp(self) -> None:
        """Sets a separate state home for each test."""
        home = tempfile.TemporaryDirectory()
        self.addCleanup(home.cleanup)
        patched = mock.patch.dict(os.environ, {"TORCHX_HOME": home.name})
        patched.start()
        self.addCleanup(patched.stop)

    def validate(self, module: ModuleType, function_name: str) -> None:
        """Checks a component as ``torchx run FILE.py:FUNCTION --help`` does.

        Args:
            module: the module of the component.
            function_name: the component.
        """
        from torchx.errors import UsageError
        from torchx.specs.finder import get_component

        try:
            get_component(f"{module.__file__}:{function_name}")
        except UsageError as error:
            self.fail(str(error))

    def run_component(
        self,
        component: Callable[..., specs.AppDef],
        args: Mapping[str, Any] | None = None,
        scheduler_params: Mapping[str, Any] | None = None,
        scheduler: str = "local_cwd",
        interval: float = 0.1,
        timeout: float = 1,
    ) -> specs.AppStatus | None:
        """Runs a component and waits for its end; cancels it after a timeout, and deletes it.

        Args:
            component: the component.
            args: its arguments.
            scheduler_params: arguments of the scheduler's factory.
            scheduler: the scheduler.
            interval: seconds between polls, for schedulers that cannot wait.
            timeout: maximum seconds.

        Returns:
            The status at its end or after the timeout.
        """
        from torchx.runner import get_runner

        with get_runner("test", **(scheduler_params or {})) as runner:
            handle = runner.run(component(**(args or {})), scheduler)
            try:
                return runner.wait(handle, wait_interval=interval, timeout=timeout)
            finally:
                # waits until no process writes to the state home, and leaves no container behind
                runner.delete(handle)
