"""Error responses of a cluster as one-sentence messages."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from torchx.errors import StateError, UnreachableError
from torchx.json_shape import items_at
from torchx.schedulers.kubernetes.api.objects import Object

_VERBS = {"POST": "create", "PATCH": "change", "PUT": "replace", "DELETE": "delete"}
_RESOURCE = (
    r"^/apis?/(?:(?P<group>[^/]+)/)??(?P<version>v[^/]+)(?:/namespaces/(?P<namespace>[^/]+))?"
    r"(?:/(?P<resource>[^/]+))?(?:/(?P<name>[^/]+))?(?:/(?P<sub>[^/]+))?$"
)
BOTH_VERBS = ("exec", "portforward")
"""The parts of pods that a WebSocket uses: a GET, for which newer clusters also take the right to create."""
_MAX_LENGTH = 600
_KUBELET = r":10250\b"
_QUOTED = r",? error found in #\d+ byte of .*"


class ClusterError(StateError):
    """A request to a cluster failed.

    Args:
        message: the message.
        hint: the next step.
        status: the HTTP status; 0 without a response.
        reason: the API's reason code, such as ``AlreadyExists``.
        retry_after: seconds after which the cluster accepts a retry, or None.

    Attributes:
        hopeless: an immediate retry would fail too.
        of_node: the node of a pod did not answer, or the cluster for it; other nodes may answer.
    """

    code = "engine_error"

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        status: int = 0,
        reason: str = "",
        retry_after: float | None = None,
    ) -> None:
        code = {0: "engine_unreachable", 401: "access_denied", 403: "access_denied"}.get(status)
        super().__init__(message, hint=hint, code=code)
        self.status, self.reason, self.retry_after = status, reason, retry_after
        if self.passes:
            self.exit_code = UnreachableError.exit_code
        self.hopeless = False
        self.of_node = False

    @property
    def passes(self) -> bool:
        """True if a later retry may succeed."""
        return self.status in (0, 408, 429, 500, 502, 503, 504)


@contextmanager
def if_allowed() -> Iterator[None]:
    """Suppresses the error for an object that does not exist, or that the caller has no right to."""
    try:
        yield
    except ClusterError as error:
        if error.status not in (403, 404):
            raise


def response_error(
    method: str, path: str, status: int, body: bytes, headers: Mapping[str, str]
) -> ClusterError:
    """Returns the exception for an error response.

    Args:
        method: the HTTP method of the request.
        path: the path of the request.
        status: the HTTP status.
        body: the response, usually a ``Status`` as JSON.
        headers: the response headers.
    """
    data = _status(body)
    # older decoders quote the text around an error, which may be a value of the environment
    message = re.sub(_QUOTED, "", " ".join(str(data.get("message") or "").split()))[:_MAX_LENGTH]
    reason = str(data.get("reason") or "")
    where = re.match(_RESOURCE, path)
    parts = where.groupdict() if where else {}
    sentence, hint = _sentence(method, parts, status, reason, message, data)
    try:
        retry_after = max(float(headers.get("Retry-After", "")), 0.0)
    except ValueError:
        retry_after = None
    error = ClusterError(sentence, hint=hint, status=status, reason=reason, retry_after=retry_after)
    error.of_node = status >= 500 and re.search(_KUBELET, message) is not None
    return error


def _status(body: bytes) -> Object:
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        return {"message": body.decode("utf-8", "replace")}
    if isinstance(data, dict):
        return data
    return {"message": str(data)}


def _sentence(
    method: str, parts: Mapping[str, str | None], status: int, reason: str, message: str, data: Object
) -> tuple[str, str | None]:
    what, namespace = _thing(parts), parts.get("namespace")
    if status == 401:
        return "the cluster does not accept your credentials", "log in to it again; kubectl auth whoami"
    if status == 403:
        return _forbidden(method, parts, message, data)
    missing = None
    if status == 404:
        missing = _missing(parts, message)
    if missing is not None:
        return missing
    if status == 409 and "object is being deleted" in message:
        return f"the previous object of this name is still being deleted: {message}", "try again later"
    if status == 422 or reason == "Invalid":
        return _invalid(what, message, data), "show the request: --dryrun -o yaml"
    if status >= 500 and re.search(_KUBELET, message):
        # the address of the node is of no use to the caller
        return (
            f"the node of {what} does not answer: {message.rpartition(': ')[2]}",
            f"kubectl get pod {parts.get('name')} -n {namespace} -o wide, then kubectl get node NODE",
        )
    if status == 429:
        return f"the cluster is overloaded: {message or 'too many requests'}", "try again later"
    verb = _VERBS.get(method, "read")
    return f"the cluster could not {verb} {what}: {message or f'status {status}'}", None


def _missing(parts: Mapping[str, str | None], message: str) -> tuple[str, str] | None:
    """Distinguishes the causes of a 404; returns None for a missing object."""
    namespace = parts.get("namespace")
    if f'namespaces "{namespace}" not found' in message:
        hint = f"kubectl create namespace {namespace}, or choose one with -cfg namespace=NAME"
        return f"the cluster has no namespace `{namespace}`", hint
    if "page not found" in message or "find the requested resource" in message:
        api = f"{parts['group']}/{parts['version']}" if parts.get("group") else parts.get("version")
        what = f"the cluster has no {parts.get('resource') or 'API'} of {api}"
        return what, "a Job is on every cluster: -cfg kind=job"
    return None


def _invalid(what: str, message: str, data: Object) -> str:
    """Lists the errors of an object, without the regular expressions of names."""
    named = re.match(r'(\w+)\S* "([^"]*)" is invalid', message)
    if named:
        what = f"{named[1]} {named[2]}"
    causes = items_at(data, dict, "details", "causes")
    details = [f"{c.get('field')}: {c.get('message')}" for c in causes[:5]] or [message]
    brief = dict.fromkeys(re.sub(r",? (\(e\.g\.|regex used for).*", "", each) for each in details)
    return f"the cluster refuses {what}: {'; '.join(brief)}"


def _forbidden(
    method: str, parts: Mapping[str, str | None], message: str, data: Object
) -> tuple[str, str | None]:
    """Distinguishes the causes of a 403: a missing right, a used-up quota, a namespace in deletion."""
    namespace, resource = parts.get("namespace"), parts.get("resource")
    causes = items_at(data, dict, "details", "causes")
    if any(cause.get("reason") == "NamespaceTerminating" for cause in causes):
        return f"namespace `{namespace}` is being deleted", "choose another: -cfg namespace=NAME"
    quota = re.search(r"exceeded quota: .*", message)
    if quota:
        return (
            f"namespace `{namespace}` has no quota left: {quota[0]}",
            f"show its usage: kubectl describe quota -n {namespace}",
        )
    missing = re.search(r'User "([^"]*)" cannot (\S+) resource "([^"]*)"', message)
    if missing:
        user, verb, resource = missing.groups()
        group = parts.get("group")
        return _without_right(user, verb, f"{resource}.{group}" if group else resource, namespace)
    if parts.get("sub") in BOTH_VERBS:  # the reason is empty
        return _without_right("", "create", f"{resource}/{parts['sub']}", namespace)
    verb = _VERBS.get(method, "read")
    return f"the cluster does not let you {verb} {_thing(parts)}: {message}", None


def _without_right(user: str, verb: str, target: str, namespace: str | None) -> tuple[str, str]:
    """Returns the sentence and the hint for a missing right.

    Args:
        user: the name of the caller, if it is known.
        verb: the verb.
        target: the resource with its group or its part, as ``jobs.batch`` or ``pods/exec``.
        namespace: the namespace, or None for the whole cluster.
    """
    place, scope = "in the whole cluster", "-A"
    if namespace:
        place, scope = f"in namespace `{namespace}`", f"-n {namespace}"
    resource, _, sub = target.partition("/")
    more = part = ""
    if sub:
        part = f" --subresource={sub}"
    if sub in BOTH_VERBS:
        more = ": it takes the rights to get and to create"
    return (
        f"the cluster does not let {user or 'you'} {verb} {target.partition('.')[0]} {place}{more}",
        f"request the right, then check: kubectl auth can-i {verb} {resource}{part} {scope}",
    )


def _thing(parts: Mapping[str, str | None]) -> str:
    name, resource, namespace = parts.get("name"), parts.get("resource") or "it", parts.get("namespace")
    text = f"{resource}/{name}" if name else resource
    if namespace:
        return f"{text} in namespace `{namespace}`"
    return text
